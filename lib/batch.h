// Micro-batches. A source gives each micro-batch in pieces. Each piece is copied from the source's
// memory into the slots that the plan reserves. So a source needs no access to the arena, and the
// host keeps no second copy of a batch.
#pragma once

#include "lib/host_access.h"
#include "lib/plan.h"  // kIgnoredLabel

namespace reprise {

// True if label `i` of an array of type `stored` counts in the loss. A label that does not count is
// kIgnoredByte (u8), kIgnoredLabel (i32) or a NaN (f32).
inline bool is_labelled(DType stored, const void* labels, uint64_t i) {
  if (stored == DType::kU8) return static_cast<const uint8_t*>(labels)[i] != kIgnoredByte;
  if (stored == DType::kI32) return static_cast<const int32_t*>(labels)[i] != kIgnoredLabel;
  const float number = static_cast<const float*>(labels)[i];
  return number == number;
}

// Receives one micro-batch. Pieces are consecutive and of any size, from one sample to the complete
// batch. The first piece that does not fit or cannot be copied sets status(); later pieces are
// ignored.
class BatchSink {
 public:
  // Takes the addresses of the slots and their sizes; a size of 0 means that the plan has no such
  // slot. `input_bytes` and `type_bytes` are in bytes, `label_count` and `start_count` in elements,
  // `pair_count` in pairs. `stored` is the type of the labels: i32, u8 or f32. `host` and `context`
  // are borrowed and must outlive the sink.
  BatchSink(const HostAccess& host, const KernelContext& context, ArenaAddress input, uint64_t input_bytes,
            ArenaAddress labels, uint64_t label_count, ArenaAddress document_start = {}, uint64_t start_count = 0,
            ArenaAddress pairs = {}, uint64_t pair_count = 0, DType stored = DType::kI32, ArenaAddress token_types = {},
            uint64_t type_bytes = 0)
      : host_(host),
        context_(context),
        input_(input),
        labels_(labels),
        document_start_(document_start),
        pairs_(pairs),
        input_bytes_(input_bytes),
        label_count_(label_count),
        start_count_(start_count),
        pair_count_(pair_count),
        wants_document_start_(start_count > 0),
        wants_pairs_(pair_count > 0),
        stored_(stored),
        token_types_(token_types),
        type_bytes_(type_bytes),
        wants_token_types_(type_bytes > 0) {}

  // Returns the input bytes that the micro-batch still needs, in the format of the plan's slot
  // (Program::input); 0 after a piece has failed.
  uint64_t input_bytes() const { return input_bytes_; }
  // Returns the number of labels that the micro-batch still needs; 0 after a piece has failed.
  uint64_t label_count() const { return label_count_; }
  // Returns the type of the labels.
  DType label_type() const { return stored_; }
  // True if the source must give document starts: for each position, the position of the same
  // sequence at which its document starts. Starts are given with the labels. If every position has
  // a label, a piece has one start for each label. If each sample has one label, a piece has the
  // starts of all positions of its samples.
  bool wants_document_start() const { return wants_document_start_; }
  // Returns the number of document starts that the micro-batch still needs.
  uint64_t start_count() const { return start_count_; }
  // True if the source must give the type of each token, one i32 (Program::token_types). Types are
  // given with the input.
  bool wants_token_types() const { return wants_token_types_; }
  // True if the source must give judged pairs (add_pairs).
  bool wants_pairs() const { return wants_pairs_; }
  // Returns the number of pairs that the micro-batch still needs. The source must give every entry
  // of the slot; an entry that is not a pair is all zeros (JudgedPair::wish).
  uint64_t pair_count() const { return pair_count_; }
  // Returns the number of labels given so far that count in the loss (is_labelled). If pairs are
  // judged, returns the number of pairs given so far, without the entries that are all zeros.
  uint64_t labelled() const { return labelled_; }
  // Returns the number of labels in the conversations of the first answers of the pairs given so
  // far, prompts included (JudgedPair::whole); 0 if no pairs are judged.
  uint64_t tokens() const { return tokens_; }

  // Copies the next piece into the slots: `input_bytes` bytes of input and `label_count` labels of
  // label_type(). A piece with labels must have `document_start` if the plan has a slot for
  // document starts. A piece with input must have `token_types` if the plan has a slot for token
  // types. Otherwise these two must be null. The caller keeps all arrays and may reuse them when
  // add() returns. status() returns errors.
  void add(const void* input, uint64_t input_bytes, const void* labels, uint64_t label_count,
           const int32_t* document_start = nullptr, const int32_t* token_types = nullptr) {
    if (!status_.ok()) return;
    status_ = copy(input, input_bytes, labels, label_count, document_start);
    if (status_.ok()) status_ = copy_types(input_bytes, token_types);
    if (!status_.ok()) input_bytes_ = label_count_ = 0;
  }

  // Copies the next `count` pairs. Their row numbers count from the first row of the micro-batch.
  // status() returns errors.
  void add_pairs(const JudgedPair* pairs, uint64_t count) {
    if (!status_.ok()) return;
    status_ = copy_pairs(pairs, count);
    if (!status_.ok()) pair_count_ = 0;
  }

  // Returns the first error. The error is kUnsupported if the source gave more or less than the
  // slots hold, or a wrong set of arrays. Call this function after the source has returned.
  Status status() const {
    if (!status_.ok() || (input_bytes_ == 0 && label_count_ == 0 && pair_count_ == 0)) return status_;
    return {Code::kUnsupported, "the source gives less than the plan's micro-batch holds", 0};
  }

 private:
  Status copy(const void* input, uint64_t input_bytes, const void* labels, uint64_t label_count,
              const int32_t* document_start) {
    if (input_bytes > input_bytes_ || label_count > label_count_) {
      return {Code::kUnsupported, "the source gives more than the plan's micro-batch holds", 0};
    }
    if (label_count > 0 && (document_start != nullptr) != wants_document_start_) {
      return {Code::kUnsupported,
              "the source must give the starts of documents where the plan has a slot for them, and nowhere else", 0};
    }
    if (input_bytes > 0) REPRISE_RETURN_IF_ERROR(host_.copy_in(context_, input_, input, input_bytes));
    if (label_count > 0)
      REPRISE_RETURN_IF_ERROR(host_.copy_in(context_, labels_, labels, stored_bytes(stored_, label_count)));
    if (label_count > 0 && wants_document_start_) {
      const uint64_t starts = start_count_ * label_count / label_count_;
      REPRISE_RETURN_IF_ERROR(host_.copy_in(context_, document_start_, document_start, starts * sizeof(int32_t)));
      document_start_ = document_start_ + starts * sizeof(int32_t);
      start_count_ -= starts;
    }
    for (uint64_t i = 0; !wants_pairs_ && i < label_count; ++i) labelled_ += is_labelled(stored_, labels, i);
    input_ = input_ + input_bytes;
    labels_ = labels_ + stored_bytes(stored_, label_count);
    input_bytes_ -= input_bytes;
    label_count_ -= label_count;
    return ok_status();
  }

  Status copy_types(uint64_t input_bytes, const int32_t* token_types) {
    if (input_bytes > 0 && (token_types != nullptr) != wants_token_types_) {
      return {Code::kUnsupported,
              "the source must give the tokens' types where the plan has a slot for them, and nowhere else", 0};
    }
    if (input_bytes == 0 || !wants_token_types_) return ok_status();
    if (input_bytes > type_bytes_)
      return {Code::kUnsupported, "the source gives more types than the plan's micro-batch holds", 0};
    REPRISE_RETURN_IF_ERROR(host_.copy_in(context_, token_types_, token_types, input_bytes));
    token_types_ = token_types_ + input_bytes;
    type_bytes_ -= input_bytes;
    return ok_status();
  }

  Status copy_pairs(const JudgedPair* pairs, uint64_t count) {
    if (count > pair_count_)
      return {Code::kUnsupported, "the source gives more pairs than the plan's micro-batch holds", 0};
    REPRISE_RETURN_IF_ERROR(host_.copy_in(context_, pairs_, pairs, count * sizeof(JudgedPair)));
    for (uint64_t i = 0; i < count; ++i) {
      if (pairs[i].wish == 0) continue;
      ++labelled_;
      tokens_ += static_cast<uint64_t>(pairs[i].end[0] - pairs[i].whole);
    }
    pairs_ = pairs_ + count * sizeof(JudgedPair);
    pair_count_ -= count;
    return ok_status();
  }

  const HostAccess& host_;
  const KernelContext& context_;
  ArenaAddress input_, labels_, document_start_, pairs_;           // Addresses to which the next piece is copied.
  uint64_t input_bytes_, label_count_, start_count_, pair_count_;  // Bytes or elements not given yet.
  bool wants_document_start_, wants_pairs_;
  DType stored_;
  ArenaAddress token_types_;  // Address of the next piece of types.
  uint64_t type_bytes_;       // Bytes of types not given yet.
  bool wants_token_types_;
  uint64_t labelled_ = 0, tokens_ = 0;
  Status status_;
};

// A source of micro-batches. The trainer calls fill() before each micro-batch.
struct BatchSource {
  void* state = nullptr;  // Passed to every function.
  // Gives the complete micro-batch `micro_batch` of step `step` to `sink`, from the source's own
  // memory. An error ends the step.
  Status (*fill)(void* state, uint64_t step, uint32_t micro_batch, BatchSink& sink) = nullptr;
  // Returns the number of labels that count in the loss (is_labelled), in all micro-batches of a
  // training step. If pairs are judged, returns the number of pairs instead. The trainer calls it
  // before the step's first micro-batch. If the pointer is null, every label counts. It must not be
  // null if pairs are judged.
  uint64_t (*labelled)(void* state, uint64_t step) = nullptr;
  // Returns the sum of the weights of a step's labels (StepScalars::step_weight). If the pointer is
  // null, each label has weight 1.
  double (*weight)(void* state, uint64_t step) = nullptr;
};

}  // namespace reprise
