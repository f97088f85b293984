// Conversations: a file of records, tokenised once as the model reads them, and packed into rows of
// the recipe's length. The tokens are in a file without a name (token_store.h); 28 bytes for each
// sample are in memory. Opening reads the whole file and checks every sample, so that filling a
// batch only reads tokens.
#include <algorithm>

#include "tools/files/chat/chat_tokens.h"
#include "tools/files/io/error.h"
#include "tools/run/data/records.h"
#include "tools/run/data/sample_order.h"
#include "tools/run/data/sources.h"
#include "tools/run/texts/first_fit.h"
#include "tools/run/texts/token_store.h"

namespace reprise {
namespace {

// Returns a token's id and whether it is learned as one number: the id if it is learned, otherwise
// the id's complement, which is negative.
int32_t stored(int32_t id, bool is_learned) { return is_learned ? id : ~id; }
int32_t id_of(int32_t stored) { return stored < 0 ? ~stored : stored; }
int32_t label_of(int32_t stored) { return stored < 0 ? kIgnoredLabel : stored; }

class ChatDataset : public Dataset {
 public:
  ChatDataset(const Recipe& recipe, Split split, const DataPart& part, DataLook* look)
      : data_(recipe.data),
        sequence_(static_cast<uint32_t>(recipe.sequence)),
        micro_batches_(static_cast<uint64_t>(recipe.micro_batches())),
        tokens_(sequence_),
        labels_(sequence_),
        starts_(sequence_),
        rows_(pack(recipe, split, part, look)),
        order_(recipe, split, rows_.size()) {
    set_size(recipe, rows_.size(), 0);
    if (data_.pack) set_packed(samples_.size(), "conversations");
    fingerprint_ = fingerprint_of(size_, "", {part.path()});
  }

  uint64_t fill(uint64_t step, uint64_t micro, BatchSink& sink) override {
    uint64_t real = 0;
    for (uint64_t b = 0; b < batch_; ++b) {
      const std::optional<uint64_t> row = order_.sample_at(step, micro, b);
      write_row(row);
      const bool wants_starts = sink.wants_document_start();
      if (data_.pack && !wants_starts)
        throw UserError("the plan knows no documents, but the recipe packs them (data.pack); plan it again");
      sink.add(tokens_.data(), tokens_.size() * sizeof(int32_t), labels_.data(), labels_.size(),
               wants_starts ? starts_.data() : nullptr);
      real += row.has_value();
    }
    return real;
  }

  uint64_t labelled_in_step(uint64_t step) override {
    uint64_t labelled = 0;
    for (uint64_t micro = 0; micro < micro_batches_; ++micro) {
      for (uint64_t b = 0; b < batch_; ++b) {
        const std::optional<uint64_t> row = order_.sample_at(step, micro, b);
        for (uint64_t i = row ? rows_.begins[*row] : 0; row && i < rows_.begins[*row + 1]; ++i)
          labelled += samples_[rows_.samples[i]].labels;
      }
    }
    return labelled;
  }

 private:
  struct Sample {
    uint64_t first;  // index of its first token in the store
    uint32_t length;
    // Number of learned tokens; the first token does not count, because no token before it can
    // predict it
    uint32_t labels;
  };

  PackedRows pack(const Recipe& recipe, Split split, const DataPart& part, DataLook* look) {
    read_samples(recipe, split, part, look);
    store_.finish();
    if (!data_.pack) return one_in_a_row(static_cast<uint32_t>(samples_.size()));
    std::vector<uint32_t> lengths;
    for (const Sample& sample : samples_) lengths.push_back(sample.length);
    return pack_first_fit(lengths, sequence_);
  }

  void read_samples(const Recipe& recipe, Split split, const DataPart& part, DataLook* look) {
    const ModelFiles files = ModelFiles::open(recipe.place);
    const ChatModel model(files, data_.chat);
    const auto vocabulary = static_cast<uint32_t>(describe_model(recipe.model).vocabulary);
    padding_ = padding_of(model.tokenizer(), vocabulary);
    NoteCounts notes;
    read_records(data_, part, look,
                 [&](const nlohmann::ordered_json& record, const std::string& place) {
                   ChatRecord read = model.read(record, data_.train_on, place);
                   notes.add(read.notes, add_samples(read.samples, place, vocabulary), place);
                 },
                 warnings_);
    for (std::string& line : notes.warnings(part.path())) warnings_.push_back(std::move(line));
    if (split == Split::kTraining) warn_of_ends(files, model, part.path());
  }

  // Warns if the training would teach texts or replies without an end token: the model would then
  // not stop writing.
  void warn_of_ends(const ModelFiles& files, const ChatModel& model, const std::string& path) {
    if (texts_ > 0 && !model.ends().of_text()) warnings_.push_back(path + ": " + no_text_end(files));
    if (texts_ == samples_.size() || (data_.train_on == TrainOn::kAll && model.ends().of_reply)) return;
    if (const std::string fault = fault_of_reply_end(model.ends(), model.tokenizer()); !fault.empty())
      warnings_.push_back(files.path() + ": " + fault);
  }

  // Adds the samples of a record and returns how many were added. Leaves out samples in which no
  // token is learned, for example after a cut. Adds nothing if it throws; throws if none remains.
  size_t add_samples(std::vector<ChatTokens>& of_record, const std::string& place, uint32_t vocabulary) {
    std::vector<uint32_t> labels;
    bool is_cut = false;
    for (ChatTokens& tokens : of_record) {
      is_cut = cut(tokens, place) || is_cut;
      require_known(tokens.ids, vocabulary, place);
      const auto first = tokens.labels.begin() + !tokens.labels.empty();  // the first token is never predicted
      labels.push_back(
          static_cast<uint32_t>(tokens.labels.end() - first - std::count(first, tokens.labels.end(), kIgnoredLabel)));
    }
    const size_t added = labels.size() - static_cast<size_t>(std::count(labels.begin(), labels.end(), 0u));
    if (added == 0) {
      throw UserError(place + ": nothing is learned from it" +
                      (is_cut ? " when it is cut to " + std::to_string(sequence_) + " tokens" : ""));
    }
    for (size_t n = 0; n < of_record.size(); ++n) {
      if (labels[n] > 0) add_sample(of_record[n], labels[n]);
    }
    return added;
  }

  // Cuts a sample that is too long, or throws if the recipe refuses such samples. Returns true if
  // it was cut.
  bool cut(ChatTokens& tokens, const std::string& place) const {
    const size_t whole = tokens.ids.size();
    if (whole <= sequence_) return false;
    if (data_.too_long == DataSource::TooLong::kRefuse) {
      throw UserError(place + ": " + std::to_string(whole) + " tokens are more than the recipe's sequence of " +
                      std::to_string(sequence_) + "; take a longer \"sequence\", or \"too_long\": \"cut\"");
    }
    tokens.ids.resize(sequence_);
    tokens.labels.resize(sequence_);
    return true;
  }

  void add_sample(ChatTokens& tokens, uint32_t labels) {
    samples_.push_back({.first = store_.size(), .length = static_cast<uint32_t>(tokens.ids.size()), .labels = labels});
    for (size_t i = 0; i < tokens.ids.size(); ++i)
      tokens.ids[i] = stored(tokens.ids[i], tokens.labels[i] != kIgnoredLabel);
    store_.add(tokens.ids);
    texts_ += tokens.is_text;
  }

  // Writes the samples of a row one after another, each with its labels shifted by one token. The
  // rest of the row is padding, which is a document of its own.
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
  size_t texts_ = 0;                               // how many of the samples are texts, not conversations
  std::vector<int32_t> tokens_, labels_, starts_;  // buffers for one row
  const PackedRows rows_;
  const SampleOrder order_;
};

}  // namespace

std::unique_ptr<Dataset> open_chat(const Recipe& recipe, Split split, DataLook* look) {
  return open_part<ChatDataset>(recipe, split, look);
}

}  // namespace reprise
