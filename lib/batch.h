// Micro-batches: a source hands them on in pieces, and they go from its own memory into the slots that the plan keeps for them.
// Here because a source must work without seeing the arena, and without a second copy of a batch on the host.
#pragma once

#include "lib/host_access.h"
#include "lib/plan.h"  // kIgnoredLabel

namespace reprise {

// Whether label i of some that are stored so is one.
inline bool is_labelled(DType stored, const void* labels, uint64_t i) {
  if (stored == DType::kU8) return static_cast<const uint8_t*>(labels)[i] != kIgnoredByte;
  if (stored == DType::kI32) return static_cast<const int32_t*>(labels)[i] != kIgnoredLabel;
  const float number = static_cast<const float*>(labels)[i];
  return number == number;
}

// Takes one micro-batch: pieces follow one another, of any size, a sample or a whole batch. The first piece that does not fit or
// cannot be copied decides `status`; later ones are dropped.
class BatchSink {
 public:
  // The slots and their sizes; `document_start` of a plan that has such a slot, `pairs` of one that judges pairs. `stored`: the labels, i32, u8 or
  // f32. `token_types` and their bytes of a plan that has such a slot. `host` and `context` must outlive the sink.
  BatchSink(const HostAccess& host, const KernelContext& context, ArenaAddress input, uint64_t input_bytes, ArenaAddress labels,
            uint64_t label_count, ArenaAddress document_start = {}, uint64_t start_count = 0, ArenaAddress pairs = {}, uint64_t pair_count = 0,
            DType stored = DType::kI32, ArenaAddress token_types = {}, uint64_t type_bytes = 0)
      : host_(host), context_(context), input_(input), labels_(labels), document_start_(document_start), pairs_(pairs), input_bytes_(input_bytes),
        label_count_(label_count), start_count_(start_count), pair_count_(pair_count), wants_document_start_(start_count > 0),
        wants_pairs_(pair_count > 0), stored_(stored), token_types_(token_types), type_bytes_(type_bytes), wants_token_types_(type_bytes > 0) {}

  // What the micro-batch still wants, the input as the plan's slot has it (Program::input); nothing once a piece has failed.
  uint64_t input_bytes() const { return input_bytes_; }
  uint64_t label_count() const { return label_count_; }
  DType label_type() const { return stored_; }
  // Whether every position must come with the one, in its sequence, at which its document starts. They come with the labels, as many with each:
  // one where every position has a label, a sample's positions where the sample has.
  bool wants_document_start() const { return wants_document_start_; }
  uint64_t start_count() const { return start_count_; }
  // Whether every token must come with its type. They come with the input, one for each token.
  bool wants_token_types() const { return wants_token_types_; }
  // Whether answers are judged, and how many entries for pairs are left: every one must be given, a pair or zeros (JudgedPair::wish).
  bool wants_pairs() const { return wants_pairs_; }
  uint64_t pair_count() const { return pair_count_; }
  // What the loss divides by, so far: labels that are one (is_labelled), or where pairs are judged these; and the labels of whole preferred
  // conversations of pairs.
  uint64_t labelled() const { return labelled_; }
  uint64_t tokens() const { return tokens_; }

  void add(const void* input, uint64_t input_bytes, const void* labels, uint64_t label_count, const int32_t* document_start = nullptr,
           const int32_t* token_types = nullptr) {
    if (!status_.ok()) return;
    status_ = copy(input, input_bytes, labels, label_count, document_start);
    if (status_.ok()) status_ = copy_types(input_bytes, token_types);
    if (!status_.ok()) input_bytes_ = label_count_ = 0;
  }

  // Rows in them count from the micro-batch's first.
  void add_pairs(const JudgedPair* pairs, uint64_t count) {
    if (!status_.ok()) return;
    status_ = copy_pairs(pairs, count);
    if (!status_.ok()) pair_count_ = 0;
  }

  // Of the whole micro-batch: asked when the source has returned.
  Status status() const {
    if (!status_.ok() || (input_bytes_ == 0 && label_count_ == 0 && pair_count_ == 0)) return status_;
    return {Code::kUnsupported, "the source gives less than the plan's micro-batch holds", 0};
  }

 private:
  Status copy(const void* input, uint64_t input_bytes, const void* labels, uint64_t label_count, const int32_t* document_start) {
    if (input_bytes > input_bytes_ || label_count > label_count_) {
      return {Code::kUnsupported, "the source gives more than the plan's micro-batch holds", 0};
    }
    if (label_count > 0 && (document_start != nullptr) != wants_document_start_) {
      return {Code::kUnsupported, "the source must give the starts of documents where the plan has a slot for them, and nowhere else", 0};
    }
    if (input_bytes > 0) REPRISE_RETURN_IF_ERROR(host_.copy_in(context_, input_, input, input_bytes));
    if (label_count > 0) REPRISE_RETURN_IF_ERROR(host_.copy_in(context_, labels_, labels, stored_bytes(stored_, label_count)));
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
      return {Code::kUnsupported, "the source must give the tokens' types where the plan has a slot for them, and nowhere else", 0};
    }
    if (input_bytes == 0 || !wants_token_types_) return ok_status();
    if (input_bytes > type_bytes_) return {Code::kUnsupported, "the source gives more types than the plan's micro-batch holds", 0};
    REPRISE_RETURN_IF_ERROR(host_.copy_in(context_, token_types_, token_types, input_bytes));
    token_types_ = token_types_ + input_bytes;
    type_bytes_ -= input_bytes;
    return ok_status();
  }

  Status copy_pairs(const JudgedPair* pairs, uint64_t count) {
    if (count > pair_count_) return {Code::kUnsupported, "the source gives more pairs than the plan's micro-batch holds", 0};
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
  ArenaAddress input_, labels_, document_start_, pairs_;  // where the next piece goes
  uint64_t input_bytes_, label_count_, start_count_, pair_count_;  // left
  bool wants_document_start_, wants_pairs_;
  DType stored_;
  ArenaAddress token_types_;  // where the next piece of them goes
  uint64_t type_bytes_;       // left
  bool wants_token_types_;
  uint64_t labelled_ = 0, tokens_ = 0;
  Status status_;
};

// Gives one micro-batch, all of it, from memory of its own. Asked before every micro-batch.
struct BatchSource {
  void* state = nullptr;
  Status (*fill)(void* state, uint64_t step, uint32_t micro_batch, BatchSink& sink) = nullptr;
  // Labels of all micro-batches of the training's step that are one (is_labelled), asked before the first of them; null: all of them.
  // Where pairs are judged: these; it must then be there.
  uint64_t (*labelled)(void* state, uint64_t step) = nullptr;
  // What these weigh together (StepScalars::step_weight); null: 1 each.
  double (*weight)(void* state, uint64_t step) = nullptr;
};

}  // namespace reprise
