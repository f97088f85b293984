// Pictures or texts and what is to be learned of them, from a table: a CSV file.
#include <algorithm>
#include <cstring>
#include <filesystem>

#include "tools/data/label_columns.h"
#include "tools/data/picture_set.h"
#include "tools/data/sources.h"
#include "tools/data/text_set.h"
#include "tools/formats/error.h"
#include "tools/formats/json_text.h"
#include "tools/tokenizer/tokenizer.h"

namespace reprise {
namespace {

// Of pictures the first column is the path, from the table's folder on.
std::unique_ptr<Dataset> open_pictures(const Recipe& recipe, Split split, const std::string& path) {
  const CsvFile table(path);
  const auto columns = std::make_shared<LabelColumns>(recipe, table, "a picture's path");
  const LabelForm form = label_form(recipe);
  const std::vector<double> class_weights = describe_model(recipe.model).class_weights;
  LabelledPictures set;
  for (uint64_t n = 0; n < table.size(); ++n) {
    const std::string& name = columns->samples()[n];
    if (name.empty()) throw UserError(table.place(n) + ": " + json_shown(columns->sample_column()) + " is empty; must be a picture's path");
    set.files.push_back((std::filesystem::path(path).parent_path() / name).string());
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(set.files.back(), ignored))
      throw UserError(table.place(n) + ": " + set.files.back() + " is no file; must be a picture, its path beside the table's");
    set.labelled.push_back(form.labelled(columns->labels_of(n)));
    set.weights.push_back(form.weight(columns->labels_of(n), class_weights));
  }
  set.class_names = columns->names();
  set.others = {path};
  set.write_labels = [columns, bytes = form.bytes()](uint64_t n, unsigned char* labels) { std::memcpy(labels, columns->labels_of(n), bytes); };
  return make_picture_set(recipe, split, path, std::move(set));
}

// Of texts it is the text, whose tokens stay in memory.
std::unique_ptr<Dataset> open_texts(const Recipe& recipe, Split split, const std::string& path) {
  const CsvFile table(path);
  const LabelColumns columns(recipe, table, "a text");
  const auto tokenizer = Tokenizer::open(recipe.data.tokenizer);
  const ModelDescription model = describe_model(recipe.model);
  if (tokenizer->vocabulary() > static_cast<uint32_t>(model.vocabulary)) {
    throw UserError(recipe.data.tokenizer + ": has ids up to " + std::to_string(tokenizer->vocabulary() - 1) + ", and the net's table " +
                    std::to_string(model.vocabulary) + " rows; it must be the model's own tokenizer");
  }
  LabelledTexts set = {.class_names = columns.names(), .files = {path, recipe.data.tokenizer}};
  for (uint64_t n = 0; n < table.size(); ++n) {
    try {
      std::vector<int32_t> text = tokenizer->encode(columns.samples()[n], false);
      text.resize(std::min(text.size(), static_cast<size_t>(model.text_length)));
      set.add(text);
    } catch (const UserError& error) {
      throw UserError(table.place(n) + ": " + error.what());
    }
  }
  set.labels = columns.labels();
  return make_text_set(recipe, split, std::move(set));
}

}  // namespace

std::unique_ptr<Dataset> open_table(const Recipe& recipe, Split split, DataLook* /*look*/) {
  const std::string& path = split == Split::kTraining ? recipe.data.path : recipe.data.eval_path;
  if (path.empty()) return nullptr;
  const bool are_texts = describe_model(recipe.model).input == ModelDescription::Input::kTexts;
  return are_texts ? open_texts(recipe, split, path) : open_pictures(recipe, split, path);
}

}  // namespace reprise
