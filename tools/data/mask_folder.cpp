// Pictures with a class for each of their places: images/NAME.jpg, or another ending of a picture, and masks/NAME.png.
#include <algorithm>
#include <filesystem>

#include "tools/data/class_folders.h"
#include "tools/data/images.h"
#include "tools/data/picture.h"
#include "tools/data/picture_set.h"
#include "tools/data/sources.h"
#include "tools/formats/error.h"

namespace reprise {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> pictures_of(const std::string& folder) {
  std::error_code error;
  std::vector<std::string> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (is_picture(entry.path().string())) files.push_back(entry.path().string());
  }
  if (error) throw UserError(folder + ": cannot be listed: " + error.message() + "; data of kind \"mask_folder\" have the folders images and masks");
  if (files.empty()) throw UserError(folder + ": holds no picture (.jpg .jpeg .png .bmp .ppm .pgm)");
  std::sort(files.begin(), files.end());
  return files;
}

// A mask at the size of what the net writes, each byte one of its classes, or 255 for none.
void read_mask(const std::string& path, const LabelForm& form, int classes, unsigned char* labels) {
  decode_mask(path, form.shape.height, form.shape.width, labels);
  for (uint64_t i = 0; i < form.count(); ++i) {
    if (labels[i] == kIgnoredByte || labels[i] < classes) continue;
    throw UserError(path + ": holds " + std::to_string(labels[i]) + ", must be from 0 to " + std::to_string(classes - 1) + ", the net's classes, or 255 for none");
  }
}

}  // namespace

// How many of each mask's places have a label is found by reading all masks, once: a step's loss is divided by it before any is read again.
std::unique_ptr<Dataset> open_mask_folder(const Recipe& recipe, Split split, DataLook* look) {
  const std::string& path = split == Split::kTraining ? recipe.data.path : recipe.data.eval_path;
  if (path.empty()) return nullptr;
  const ModelDescription model = describe_model(recipe.model);
  const LabelForm form = label_form(recipe);
  LabelledPictures set;
  set.files = pictures_of(path + "/images");
  for (const std::string& file : set.files) {
    set.others.push_back(path + "/masks/" + fs::path(file).stem().string() + ".png");
    if (!fs::exists(set.others.back())) throw UserError(file + ": has no mask; must be there as " + set.others.back());
  }
  std::vector<unsigned char> labels(form.bytes());
  for (const std::string& mask : set.others) {
    if (look != nullptr) break;
    read_mask(mask, form, model.classes, labels.data());
    set.labelled.push_back(form.labelled(labels.data()));
    set.weights.push_back(form.weight(labels.data(), model.class_weights));
  }
  set.write_labels = [masks = set.others, form, classes = model.classes](uint64_t n, unsigned char* to) { read_mask(masks[n], form, classes, to); };
  return make_picture_set(recipe, split, path, std::move(set));
}

}  // namespace reprise
