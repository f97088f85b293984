// Conversations: a file of records, tokenised once as the model reads it, packed into rows of the recipe's length.
// The tokens lie in a file without a name (token_store.h); in memory are 28 bytes a sample. So opening reads the whole file once, and checks
// every sample, and a batch reads nothing but tokens.
#include <algorithm>

#include "tools/chat/chat_tokens.h"
#include "tools/data/first_fit.h"
#include "tools/data/records.h"
#include "tools/data/sample_order.h"
#include "tools/data/sources.h"
#include "tools/data/token_store.h"
#include "tools/formats/error.h"

namespace reprise {
namespace {

// An id with its label in one number: what is not learned is stored as its complement, which is below zero.
int32_t stored(int32_t id, bool is_learned) { return is_learned ? id : ~id; }
int32_t id_of(int32_t stored) { return stored < 0 ? ~stored : stored; }
int32_t label_of(int32_t stored) { return stored < 0 ? kIgnoredLabel : stored; }

class ChatDataset : public Dataset {
 public:
  ChatDataset(const Recipe& recipe, Split split, const DataPart& part, DataLook* look)
      : data_(recipe.data), sequence_(static_cast<uint32_t>(recipe.sequence)), micro_batches_(static_cast<uint64_t>(recipe.micro_batches())),
        tokens_(sequence_), labels_(sequence_), starts_(sequence_), rows_(pack(recipe, part, look)), order_(recipe, split, rows_.size()) {
    set_size(recipe, rows_.size(), 0);
    fingerprint_ = fingerprint_of(size_, "", {part.path()});
  }

  uint64_t fill(uint64_t step, uint64_t micro, BatchSink& sink) override {
    uint64_t real = 0;
    for (uint64_t b = 0; b < batch_; ++b) {
      const std::optional<uint64_t> row = order_.sample_at(step, micro, b);
      write_row(row);
      const bool wants_starts = sink.wants_document_start();
      if (data_.pack && !wants_starts) throw UserError("the plan knows no documents, but the recipe packs them (data.pack); plan it again");
      sink.add(tokens_.data(), tokens_.size() * sizeof(int32_t), labels_.data(), labels_.size(), wants_starts ? starts_.data() : nullptr);
      real += row.has_value();
    }
    return real;
  }

  uint64_t labelled_in_step(uint64_t step) override {
    uint64_t labelled = 0;
    for (uint64_t micro = 0; micro < micro_batches_; ++micro) {
      for (uint64_t b = 0; b < batch_; ++b) {
        const std::optional<uint64_t> row = order_.sample_at(step, micro, b);
        for (uint64_t i = row ? rows_.begins[*row] : 0; row && i < rows_.begins[*row + 1]; ++i) labelled += samples_[rows_.samples[i]].labels;
      }
    }
    return labelled;
  }

 private:
  struct Sample {
    uint64_t first;  // its first token in the store
    uint32_t length;
    uint32_t labels;  // of its tokens but the first: nothing stands before that, so nothing can foretell it
  };

  PackedRows pack(const Recipe& recipe, const DataPart& part, DataLook* look) {
    read_samples(recipe, part, look);
    store_.finish();
    if (!data_.pack) return one_in_a_row(static_cast<uint32_t>(samples_.size()));
    std::vector<uint32_t> lengths;
    for (const Sample& sample : samples_) lengths.push_back(sample.length);
    return pack_first_fit(lengths, sequence_);
  }

  void read_samples(const Recipe& recipe, const DataPart& part, DataLook* look) {
    const ChatModel model(ModelFiles::open(recipe.place));
    const auto vocabulary = static_cast<uint32_t>(describe_model(recipe.model).vocabulary);
    padding_ = padding_of(model.tokenizer(), vocabulary);
    read_records(data_, part, look,
                 [&](const nlohmann::ordered_json& record, const std::string& place) { add_sample(model.tokens_of(record, data_.train_on, place), place, vocabulary); },
                 warnings_);
  }

  void add_sample(ChatTokens tokens, const std::string& place, uint32_t vocabulary) {
    const size_t whole = tokens.ids.size();
    if (whole > sequence_) {
      if (data_.too_long == DataSource::TooLong::kRefuse) {
        throw UserError(place + ": " + std::to_string(whole) + " tokens are more than the recipe's sequence of " + std::to_string(sequence_) +
                        "; take a longer \"sequence\", or \"too_long\": \"cut\"");
      }
      tokens.ids.resize(sequence_);
      tokens.labels.resize(sequence_);
    }
    require_known(tokens.ids, vocabulary, place);
    const auto learned = [&](size_t i) { return tokens.labels[i] != kIgnoredLabel; };
    Sample sample{.first = store_.size(), .length = static_cast<uint32_t>(tokens.ids.size()), .labels = 0};
    for (size_t i = 0; i < tokens.ids.size(); ++i) {
      sample.labels += i > 0 && learned(i);
      tokens.ids[i] = stored(tokens.ids[i], learned(i));
    }
    if (sample.labels == 0) {
      throw UserError(place + ": nothing is learned from it" + (whole > sequence_ ? " when it is cut to " + std::to_string(sequence_) + " tokens" : ""));
    }
    store_.add(tokens.ids);
    samples_.push_back(sample);
  }

  // The samples of the row one behind the other, each with its labels shifted by one, then padding, which is a document of its own.
  void write_row(const std::optional<uint64_t>& row) {
    uint32_t at = 0;
    for (uint64_t i = row ? rows_.begins[*row] : 0; row && i < rows_.begins[*row + 1]; ++i) {
      const Sample& sample = samples_[rows_.samples[i]];
      store_.read(sample.first, sample.length, tokens_.data() + at);
      for (uint32_t t = at; t < at + sample.length; ++t) {
        labels_[t] = t + 1 < at + sample.length ? label_of(tokens_[t + 1]) : kIgnoredLabel;
        tokens_[t] = id_of(tokens_[t]);
        starts_[t] = static_cast<int32_t>(at);
      }
      at += sample.length;
    }
    std::fill(tokens_.begin() + at, tokens_.end(), row ? padding_ : 0);
    std::fill(labels_.begin() + at, labels_.end(), kIgnoredLabel);
    std::fill(starts_.begin() + at, starts_.end(), static_cast<int32_t>(at));
  }

  const DataSource data_;
  const uint32_t sequence_;
  const uint64_t micro_batches_;
  int32_t padding_ = 0;
  TokenStore store_;
  std::vector<Sample> samples_;
  std::vector<int32_t> tokens_, labels_, starts_;  // of one row
  const PackedRows rows_;
  const SampleOrder order_;
};

}  // namespace

std::unique_ptr<Dataset> open_chat(const Recipe& recipe, Split split, DataLook* look) { return open_part<ChatDataset>(recipe, split, look); }

}  // namespace reprise
