// A CSV file of pictures and their labels. texts.cpp reads a CSV file of texts.
#include <algorithm>
#include <cstring>
#include <filesystem>

#include "tools/files/formats/csv_file.h"
#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"
#include "tools/run/data/label_columns.h"
#include "tools/run/data/sources.h"
#include "tools/run/pictures/class_folders.h"
#include "tools/run/pictures/picture_set.h"

namespace reprise {
namespace {

// Opens a table of pictures. The first column is a picture's path, relative to the table's folder;
// for pairs the first two columns are paths.
std::unique_ptr<Dataset> open_pictures(const Recipe& recipe, Split split, const std::string& path) {
  const CsvFile table(path);
  const auto columns = std::make_shared<LabelColumns>(recipe, table, "a picture's path");
  const LabelForm form = label_form(recipe);
  if (is_picture(columns->column_of(0)))
    throw UserError(path + ": line 1 must name the columns, as \"picture,label\"; its first field is " +
                    json_shown(columns->column_of(0)));
  const std::vector<double> class_weights = describe_model(recipe.model).class_weights;
  const uint64_t inputs = columns->inputs_of_sample();
  LabelledPictures set;
  for (uint64_t i = 0; i < columns->inputs().size(); ++i) {
    const std::string &name = columns->inputs()[i], place = table.place(i / inputs);
    if (name.empty())
      throw UserError(place + ": " + json_shown(columns->column_of(i)) + " is empty; must be a picture's path");
    set.files.push_back((std::filesystem::path(path).parent_path() / name).string());
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(set.files.back(), ignored))
      throw UserError(place + ": " + set.files.back() + " is no file; must be a picture, its path beside the table's");
  }
  for (uint64_t n = 0; n < table.size(); ++n) {
    set.labelled.push_back(form.labelled(columns->labels_of(n)));
    set.weights.push_back(form.weight(columns->labels_of(n), class_weights));
  }
  const auto without = static_cast<size_t>(std::count(set.labelled.begin(), set.labelled.end(), uint64_t{0}));
  if (without > 0)
    set.notes.push_back(std::to_string(without) + " of " + std::to_string(table.size()) +
                        " samples have no label, and nothing is learned from them");
  set.class_names = columns->names();
  set.others = {path};
  set.write_labels = [columns, bytes = form.bytes()](uint64_t n, unsigned char* labels) {
    std::memcpy(labels, columns->labels_of(n), bytes);
  };
  return make_picture_set(recipe, split, path, std::move(set));
}

}  // namespace

std::unique_ptr<Dataset> open_table(const Recipe& recipe, Split split, DataLook* look) {
  if (describe_model(recipe.model).input == ModelDescription::Input::kTexts) return open_texts(recipe, split, look);
  const std::string& path = split == Split::kTraining ? recipe.data.path : recipe.data.eval_path;
  return path.empty() ? nullptr : open_pictures(recipe, split, path);
}

}  // namespace reprise
