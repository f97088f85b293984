// Pairs of answers to one prompt, one of them preferred, or single answers that are marked as
// desirable or not. Records have the forms of trl. A pair is in one row, as two documents that
// cannot attend to each other. Both answers are thus in one micro-batch, and neither is padded to
// the other's length. The tokens are in a file without a name (token_store.h); 84 bytes for each
// sample are in memory.
#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "tools/files/chat/chat_tokens.h"
#include "tools/files/chat/preference_record.h"
#include "tools/files/io/error.h"
#include "tools/run/data/records.h"
#include "tools/run/data/sample_order.h"
#include "tools/run/data/sources.h"
#include "tools/run/texts/first_fit.h"
#include "tools/run/texts/token_store.h"

namespace reprise {
namespace {

class PreferenceDataset : public Dataset, public ReferencedRows {
 public:
  PreferenceDataset(const Recipe& recipe, Split split, const DataPart& part, DataLook* look)
      : data_(recipe.data),
        kind_(static_cast<PreferenceKind>(recipe.loss.value().kind)),
        has_reference_(has_reference(recipe)),
        sequence_(static_cast<uint32_t>(recipe.sequence)),
        micro_batches_(split == Split::kTraining ? static_cast<uint64_t>(recipe.micro_batches()) : 1),
        space_(static_cast<uint64_t>(micro_batch_of(recipe).pairs / recipe.batch)),
        tokens_(sequence_),
        labels_(sequence_),
        starts_(sequence_),
        pairs_(space_),
        rows_(pack(recipe, split, part, look)),
        order_(recipe, split, rows_.size()) {
    set_size(recipe, rows_.size(), 0);
    if (data_.pack) set_packed(samples_.size(), kind_ == PreferenceKind::kKto ? "answers" : "pairs");
    fingerprint_ = fingerprint_of(size_, "", {part.path()});
  }

  uint64_t fill(uint64_t step, uint64_t micro, BatchSink& sink) override {
    uint64_t real = 0;
    require_space_in(sink);
    for (uint64_t b = 0; b < batch_; ++b) {
      const std::optional<uint64_t> row = order_.sample_at(step, micro, b);
      write_row(row, b, sink, has_reference_);
      real += row.has_value();
    }
    return real;
  }

  uint64_t labelled_in_step(uint64_t step) override {
    uint64_t pairs = 0;
    for_each_sample(step, [&](const Sample&) { ++pairs; });
    return pairs;
  }
  double weight_in_step(uint64_t step) override {
    uint64_t tokens = 0;
    for_each_sample(step, [&](const Sample& sample) { tokens += sample.answers[0].length() - 1; });
    return static_cast<double>(tokens);
  }

  ReferencedRows* referenced() override { return has_reference_ ? this : nullptr; }

  std::vector<uint64_t> rows_read(uint64_t first, uint64_t end) const override {
    std::vector<uint64_t> rows;
    // If the steps read most of the rows, return all rows without looking up which they read.
    if (end > first && (end - first) * micro_batches_ * batch_ >= 2 * rows_.size()) {
      for (uint64_t row = 0; row < rows_.size(); ++row) rows.push_back(row);
      return rows;
    }
    for (uint64_t step = first; step < end; ++step) {
      for (uint64_t at = 0; at < micro_batches_ * batch_; ++at) {
        if (const std::optional<uint64_t> row = order_.sample_at(step, at / batch_, at % batch_)) rows.push_back(*row);
      }
    }
    std::sort(rows.begin(), rows.end());
    rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
    return rows;
  }

  void fill_rows(const std::vector<uint64_t>& rows, BatchSink& sink) override {
    require_space_in(sink);
    for (uint64_t b = 0; b < batch_; ++b)
      write_row(b < rows.size() ? std::optional(rows[b]) : std::nullopt, b, sink, false);
  }

  void set_reference(uint64_t row, const double (*answers)[2]) override {
    for (uint64_t i = rows_.begins[row]; i < rows_.begins[row + 1]; ++i, ++answers)
      std::copy_n(*answers, 2, samples_[rows_.samples[i]].reference);
  }

 private:
  // A prompt and an answer: indices of their first tokens in the store, and their lengths.
  struct Answer {
    uint64_t prompt = 0, answer = 0;
    uint32_t prompt_length = 0, answer_length = 0;
    uint32_t length() const { return prompt_length + answer_length; }
  };
  struct Sample {
    Answer answers[2];  // the preferred answer first; for kKto the second one is another sample's, or has length 0
    int wish;           // 1 or -1, see JudgedPair::wish
    // Log-probabilities of both answers in the reference; NaN until they are set.
    double reference[2] = {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::quiet_NaN()};
    uint32_t length() const { return answers[0].length() + answers[1].length(); }
  };

  template <typename Visit>
  void for_each_sample(uint64_t step, const Visit& visit) const {
    for (uint64_t at = 0; at < micro_batches_ * batch_; ++at) {
      const std::optional<uint64_t> row = order_.sample_at(step, at / batch_, at % batch_);
      for (uint64_t i = row ? rows_.begins[*row] : 0; row && i < rows_.begins[*row + 1]; ++i)
        visit(samples_[rows_.samples[i]]);
    }
  }

  void require_space_in(const BatchSink& sink) const {
    if (sink.pair_count() == batch_ * space_ && sink.wants_document_start()) return;
    throw UserError("the plan judges other pairs than the recipe's loss does; plan it again");
  }

  PackedRows pack(const Recipe& recipe, Split split, const DataPart& part, DataLook* look) {
    const ModelFiles files = ModelFiles::open(recipe.place);
    const ChatModel model(files, data_.chat);
    vocabulary_ = static_cast<uint32_t>(describe_model(recipe.model).vocabulary);
    padding_ = padding_of(model.tokenizer(), vocabulary_);
    read_records(
        data_, part, look,
        [&](const nlohmann::ordered_json& record, const std::string& place) { add_sample(model, record, place); },
        warnings_);
    for (std::string& line : notes_.warnings(part.path())) warnings_.push_back(std::move(line));
    if (split == Split::kTraining && has_texts_ && !model.ends().of_text())
      warnings_.push_back(part.path() + ": " + no_text_end(files));
    store_.finish();
    if (kind_ == PreferenceKind::kKto)
      join_neighbours(std::max<uint64_t>(2, static_cast<uint64_t>(recipe.batch)), part.path(), look);
    if (!data_.pack) return one_in_a_row(static_cast<uint32_t>(samples_.size()));
    std::vector<uint32_t> lengths;
    for (const Sample& sample : samples_) lengths.push_back(sample.length());
    return pack_first_fit(lengths, sequence_);
  }

  void add_sample(const ChatModel& model, const nlohmann::ordered_json& record, const std::string& place) {
    const PreferenceRecord read = read_preference(record, kind_ == PreferenceKind::kKto, place);
    has_texts_ = has_texts_ || read.prompt.is_string();
    const uint32_t count = kind_ == PreferenceKind::kKto ? 1 : 2;
    AnswerTokens tokens[2];
    ReadingNotes notes;
    notes.unused = read.unused;
    for (uint32_t i = 0; i < count; ++i)
      tokens[i] = model.answer_tokens(read.prompt, read.answers[i], record, place, notes);
    // The tokenised prompt may merge with the beginning of an answer. Both answers begin at the
    // first token in which one of them differs from the prompt, as in trl.
    const size_t begin = count == 1 ? tokens[0].begin : std::min(tokens[0].begin, tokens[1].begin);
    Sample sample = {.answers = {}, .wish = read.wish};
    uint64_t at = store_.size();
    for (uint32_t i = 0; i < count; ++i) {
      require_known(tokens[i].ids, vocabulary_, place);
      const size_t length = tokens[i].ids.size();
      sample.answers[i] = {at, at + begin, static_cast<uint32_t>(begin), static_cast<uint32_t>(length - begin)};
      at += length;
    }
    require_space(sample, place);
    for (uint32_t i = 0; i < count; ++i) store_.add(tokens[i].ids);
    samples_.push_back(sample);
    notes_.add(notes, 1, place);
  }

  void require_space(const Sample& sample, const std::string& place) const {
    if (sample.length() <= sequence_) return;
    throw UserError(place + ": " + std::to_string(sample.length()) +
                    " tokens, of the prompt with each of its answers, are more than the recipe's sequence of " +
                    std::to_string(sequence_) + ", which holds both; take a longer \"sequence\", or \"bad\": \"skip\"");
  }

  // Sets the second answer of each sample: the prompt of the sample with the completion of the
  // sample before it. This is done in groups of `group` samples; the first sample of a group uses
  // the last one's completion. Skips a group of one sample, and a group of which `look` has read
  // only a part. A sample that would be too long with the second answer is a fault.
  void join_neighbours(uint64_t group, const std::string& path, DataLook* look) {
    std::string first_fault;
    uint64_t faults = 0;
    for (uint64_t first = 0; first < samples_.size(); first += group) {
      const uint64_t end = std::min<uint64_t>(first + group, samples_.size());
      if (end == first + 1 || (look != nullptr && end < first + group)) continue;
      for (uint64_t n = first; n < end; ++n) {
        const Answer &own = samples_[n].answers[0], &other = samples_[n == first ? end - 1 : n - 1].answers[0];
        const Answer joined = {own.prompt, other.answer, own.prompt_length, other.answer_length};
        const uint32_t length = own.length() + joined.length();
        if (length <= sequence_) {
          samples_[n].answers[1] = joined;
          continue;
        }
        const std::string fault = path + ": sample " + std::to_string(n + 1) + ": " + std::to_string(length) +
                                  " tokens, of the prompt with its completion and " +
                                  "with that of the sample beside it, are more than the recipe's sequence of " +
                                  std::to_string(sequence_) +
                                  ", which holds both; take a longer \"sequence\", or \"bad\": \"skip\"";
        if (look != nullptr) look->add(fault);
        if (look == nullptr && data_.bad == DataSource::Bad::kRefuse) throw UserError(fault);
        if (faults++ == 0) first_fault = fault;
      }
    }
    if (faults == 0 || look != nullptr) return;
    warnings_.push_back(
        path + ": " + std::to_string(faults) + (faults == 1 ? " sample is" : " samples are") +
        " not compared with the completion of the one beside them, which is too long; the first: " + first_fault);
  }

  // Writes the pairs of a row one after another. After them the row is padding, which is a document
  // of its own.
  void write_row(const std::optional<uint64_t>& row, uint64_t b, BatchSink& sink, bool needs_reference) {
    std::fill(labels_.begin(), labels_.end(), kIgnoredLabel);
    std::fill(pairs_.begin(), pairs_.end(), JudgedPair{});
    uint32_t at = 0;
    uint64_t pair = 0;
    for (uint64_t i = row ? rows_.begins[*row] : 0; row && i < rows_.begins[*row + 1]; ++i, ++pair) {
      const Sample& sample = samples_[rows_.samples[i]];
      if (needs_reference && std::isnan(sample.reference[0]))
        throw std::logic_error("a pair is filled before its reference is set");
      pairs_.at(pair) = write_sample(sample, at, b * sequence_);
      at += sample.length();
    }
    std::fill(tokens_.begin() + at, tokens_.end(), row ? padding_ : 0);
    std::fill(starts_.begin() + at, starts_.end(), static_cast<int32_t>(at));
    sink.add(tokens_.data(), tokens_.size() * sizeof(int32_t), labels_.data(), labels_.size(), starts_.data());
    sink.add_pairs(pairs_.data(), pairs_.size());
  }

  // Writes one pair from token `at` of the row on. `first_row` is the row of activations, in the
  // micro-batch, that belongs to the row's token 0.
  JudgedPair write_sample(const Sample& sample, uint32_t at, uint64_t first_row) {
    JudgedPair pair = {.wish = static_cast<double>(sample.wish),
                       .whole = static_cast<double>(first_row + at),
                       .first = {},
                       .end = {},
                       .reference = {}};
    for (uint32_t i = 0; i < 2; ++i) {
      const Answer& answer = sample.answers[i];
      const uint32_t end = at + answer.length(), begin = at + answer.prompt_length;
      if (answer.answer_length == 0) continue;
      store_.read(answer.prompt, answer.prompt_length, tokens_.data() + at);
      store_.read(answer.answer, answer.answer_length, tokens_.data() + begin);
      std::fill(starts_.begin() + at, starts_.begin() + end, static_cast<int32_t>(at));
      const bool learns_prompt = kind_ == PreferenceKind::kOrpo && i == 0;
      const uint32_t learned = learns_prompt ? at + 1 : begin;
      std::copy(tokens_.begin() + learned, tokens_.begin() + end, labels_.begin() + learned - 1);
      pair.first[i] = static_cast<double>(first_row + begin - 1);
      pair.end[i] = static_cast<double>(first_row + end - 1);
      pair.reference[i] = has_reference_ && !std::isnan(sample.reference[i]) ? sample.reference[i] : 0;
      at = end;
    }
    return pair;
  }

  const DataSource data_;
  const PreferenceKind kind_;
  const bool has_reference_;
  const uint32_t sequence_;
  const uint64_t micro_batches_;   // micro-batches in a step
  const uint64_t space_;           // maximum pairs in a row
  uint32_t vocabulary_ = 0;
  int32_t padding_ = 0;
  TokenStore store_;
  NoteCounts notes_;
  std::vector<Sample> samples_;
  bool has_texts_ = false;
  std::vector<int32_t> tokens_, labels_, starts_;  // buffers for one row
  std::vector<JudgedPair> pairs_;                  // buffers for one row
  const PackedRows rows_;
  const SampleOrder order_;
};

}  // namespace

std::unique_ptr<Dataset> open_preferences(const Recipe& recipe, Split split, DataLook* look) {
  return open_part<PreferenceDataset>(recipe, split, look);
}

}  // namespace reprise
