// A folder of photographs, one sub-folder for each class.
#include <cstring>

#include "tools/files/io/text.h"
#include "tools/run/data/images.h"
#include "tools/run/data/sources.h"
#include "tools/run/pictures/class_folders.h"
#include "tools/run/pictures/picture_set.h"

namespace reprise {
namespace {

// Returns warnings about the folder: contents that are probably not intended, but no error.
// `folder` may be the evaluation folder; `names` come from the training's folder.
std::vector<std::string> warnings_of(const Recipe& recipe, const std::string& folder,
                                     const std::vector<std::string>& names, const PictureList& list) {
  const auto some = [](uint64_t count, const char* one, const char* more) {
    return std::to_string(count) + (count == 1 ? one : more);
  };
  const bool is_training = folder == recipe.data.path;
  std::vector<std::string> lines;
  if (is_training && names.size() < static_cast<size_t>(class_count(recipe))) {
    lines.push_back(folder + ": has " + some(names.size(), " class folder", " class folders") +
                    ", but model.classes is " + std::to_string(class_count(recipe)) +
                    ": the others have nothing to learn from");
  }
  if (list.left_out > 0) {
    lines.push_back(folder + ": " +
                    some(list.left_out, " entry of its class folders is", " entries of its class folders are") +
                    " left out, not being .jpg .jpeg .png .bmp .ppm or .pgm: " + list.first_left_out +
                    (list.left_out == 1 ? "" : " and others"));
  }
  std::vector<bool> has_picture(names.size());
  for (const PictureList::Picture& picture : list.pictures) has_picture[static_cast<size_t>(picture.label)] = true;
  std::vector<std::string> without;
  for (size_t n = 0; n < names.size(); ++n) {
    if (!has_picture[n]) without.push_back(names[n]);
  }
  if (!without.empty()) {
    lines.push_back(folder + ": has no picture of " + some(without.size(), " class", " classes") +
                    (is_training ? "" : " that " + recipe.data.path + " names") + ": " + some_of(without));
  }
  return lines;
}

}  // namespace

std::unique_ptr<Dataset> open_image_folder(const Recipe& recipe, Split split, DataLook* /*look*/) {
  const DataSource& data = recipe.data;
  if (split == Split::kEvaluation && data.eval_path.empty()) return nullptr;
  const std::string& folder = split == Split::kTraining ? data.path : data.eval_path;
  const std::vector<std::string> names = class_names(data.path, class_count(recipe));
  PictureList list = list_pictures(folder, names, data.path);
  std::vector<std::string> warnings;  // if both sets are one folder, only the training set warns
  if (split == Split::kTraining || folder != data.path) warnings = warnings_of(recipe, folder, names, list);
  LabelledPictures set = {.class_names = names, .warnings = std::move(warnings)};
  const std::vector<double> weights = describe_model(recipe.model).class_weights;
  for (const PictureList::Picture& picture : list.pictures) {
    set.files.push_back(picture.path);
    if (!weights.empty()) set.weights.push_back(class_weight(weights, picture.label));
  }
  set.write_labels = [pictures = std::move(list.pictures)](uint64_t n, unsigned char* label) {
    std::memcpy(label, &pictures[n].label, sizeof pictures[n].label);
  };
  return make_picture_set(recipe, split, folder, std::move(set));
}

}  // namespace reprise
