// Texts without labels for prediction (see unlabelled.h).
#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tools/files/formats/json_text.h"
#include "tools/files/formats/record_file.h"
#include "tools/files/io/error.h"
#include "tools/files/io/file_kind.h"
#include "tools/files/io/output_file.h"
#include "tools/run/data/label_columns.h"
#include "tools/run/data/unlabelled.h"
#include "tools/run/texts/text_reader.h"
#include "tools/run/texts/text_set.h"

namespace reprise {
namespace {

bool holds_records(const std::string& path) {
  return path.ends_with(".csv") || path.ends_with(".json") || path.ends_with(".jsonl");
}

class GivenTexts : public UnlabelledSet {
 public:
  GivenTexts(const Recipe& recipe, const std::vector<std::string>& paths)
      : columns_(recipe.data.columns),
        are_one_row_(are_texts_of_one_row(recipe, columns_.size())),
        compares_(describe_model(recipe.model).has_pairs()),
        set_({}) {
    for (const std::string& path : paths) {
      const size_t before = samples_.size();
      holds_records(path) ? take_records(path) : take_lines(path);
      if (samples_.size() == before)
        throw UserError(path +
                        ": --predict: holds no text: of CSV and JSON a record has one, of other files each line");
    }
    const TextReader reader(recipe);
    for (UnlabelledSample& sample : samples_) set_.add(read(reader, sample));
    walk_.emplace(recipe, Split::kEvaluation, read_at_once(recipe, samples_.size()));
    set_size(recipe, read_at_once(recipe, samples_.size()), walk_->form().count());
  }

  uint64_t fill(uint64_t step, uint64_t micro, BatchSink& sink) override {
    return walk_->fill(
        step, micro, sink,
        [this](uint64_t sample, int32_t* to, int32_t* types) {
          return sample < samples_.size() ? set_.copy(sample, to, types) : 0;
        },
        [](uint64_t) { return nullptr; });
  }

 private:
  // Returns the text's column, chosen as in a training: the recipe's column, "text", or the first
  // column other than "text_pair".
  nlohmann::ordered_json::const_iterator text_in(const nlohmann::ordered_json& record) const {
    for (const std::string& column :
         {columns_.empty() ? std::string() : columns_[0], std::string(kTextColumns.first)}) {
      if (record.contains(column)) return record.find(column);
    }
    const auto first = record.begin();
    return first != record.end() && first.key() == kTextColumns.second ? std::next(first) : first;
  }

  // Returns the second text of a row, chosen as in a training: from the recipe's second column, or
  // from "text_pair". Null counts as an empty text. Returns nothing if records have one text.
  std::optional<std::string> second_in(const nlohmann::ordered_json& record, const std::string& place) const {
    const std::string column = columns_.empty() ? std::string(kTextColumns.second) : columns_[1];
    if (columns_.empty() && (compares_ || !record.contains(column))) return std::nullopt;
    if (!record.contains(column) || !(record.at(column).is_string() || record.at(column).is_null()))
      throw UserError(place + ": --predict: has no text " + json_shown(column) + ", the second one of its row");
    return record.at(column).is_null() ? "" : record.at(column).get<std::string>();
  }

  void take_records(const std::string& path) {
    const auto records = open_records(path);
    for (uint64_t n = 0; n < records->size(); ++n) {
      UnlabelledSample sample = {.place = records->place(n), .file = path, .line = records->line(n)};
      const nlohmann::ordered_json record = records->read(n);
      const auto text = record.is_object() ? text_in(record) : record.end();
      if (text == record.end() || !text->is_string()) throw UserError(sample.place + ": --predict: has no text");
      sample.text = text->get<std::string>();
      if (columns_.empty() || are_one_row_) sample.text_pair = second_in(record, sample.place);
      samples_.push_back(std::move(sample));
    }
  }

  void take_lines(const std::string& path) {
    if (are_one_row_)
      throw UserError(path +
                      ": --predict: each line is one text, and the net was trained on two in a row; name a file of CSV "
                      "or JSON with " +
                      json_shown(columns_[0]) + " and " + json_shown(columns_[1]));
    const std::string text = read_file(path);
    refuse_other_kinds(path, text, "texts in UTF-8, one a line", {FileKind::kHtml, FileKind::kXml});
    std::istringstream file(text);
    uint64_t number = 0;
    for (std::string line; std::getline(file, line);) {
      ++number;
      if (!line.empty() && line.back() == '\r') line.pop_back();
      if (line.find_first_not_of(" \t") == std::string::npos) continue;
      samples_.push_back(
          {.place = path + ", line " + std::to_string(number), .file = path, .line = number, .text = line});
    }
  }

  static TokenRow read(const TextReader& reader, UnlabelledSample& sample) {
    try {
      return sample.text_pair ? reader.read_pair(sample.text, *sample.text_pair, sample.place)
                              : reader.read(sample.text, sample.place);
    } catch (const UserError& error) {
      sample.fault = error.what();
      return {};
    }
  }

  const std::vector<std::string> columns_;  // the recipe's columns
  const bool are_one_row_;                  // the first two columns are the texts of one row
  const bool compares_;                     // the net reads the texts of a pair separately
  LabelledTexts set_;
  std::optional<TextWalk> walk_;
};

}  // namespace

std::unique_ptr<UnlabelledSet> open_given_texts(const Recipe& recipe, const std::vector<std::string>& paths) {
  return std::make_unique<GivenTexts>(recipe, paths);
}

}  // namespace reprise
