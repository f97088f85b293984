// Pictures and what is to be learned of them, from a table: a CSV file. Such a table of texts is read as any records of texts are.
#include <algorithm>
#include <cstring>
#include <filesystem>

#include "tools/data/label_columns.h"
#include "tools/data/picture_set.h"
#include "tools/data/sources.h"
#include "tools/formats/csv_file.h"
#include "tools/formats/error.h"
#include "tools/formats/json_text.h"

namespace reprise {
namespace {

// A picture's column is its path, from the table's folder on; of pairs each of both.
std::unique_ptr<Dataset> open_pictures(const Recipe& recipe, Split split, const std::string& path) {
  const CsvFile table(path);
  const auto columns = std::make_shared<LabelColumns>(recipe, table, "a picture's path");
  const LabelForm form = label_form(recipe);
  const std::vector<double> class_weights = describe_model(recipe.model).class_weights;
  const uint64_t inputs = columns->inputs_of_sample();
  LabelledPictures set;
  for (uint64_t i = 0; i < columns->inputs().size(); ++i) {
    const std::string &name = columns->inputs()[i], place = table.place(i / inputs);
    if (name.empty()) throw UserError(place + ": " + json_shown(columns->column_of(i)) + " is empty; must be a picture's path");
    set.files.push_back((std::filesystem::path(path).parent_path() / name).string());
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(set.files.back(), ignored))
      throw UserError(place + ": " + set.files.back() + " is no file; must be a picture, its path beside the table's");
  }
  for (uint64_t n = 0; n < table.size(); ++n) {
    set.labelled.push_back(form.labelled(columns->labels_of(n)));
    set.weights.push_back(form.weight(columns->labels_of(n), class_weights));
  }
  set.class_names = columns->names();
  set.others = {path};
  set.write_labels = [columns, bytes = form.bytes()](uint64_t n, unsigned char* labels) { std::memcpy(labels, columns->labels_of(n), bytes); };
  return make_picture_set(recipe, split, path, std::move(set));
}

}  // namespace

std::unique_ptr<Dataset> open_table(const Recipe& recipe, Split split, DataLook* look) {
  if (describe_model(recipe.model).input == ModelDescription::Input::kTexts) return open_texts(recipe, split, look);
  const std::string& path = split == Split::kTraining ? recipe.data.path : recipe.data.eval_path;
  return path.empty() ? nullptr : open_pictures(recipe, split, path);
}

}  // namespace reprise
