// Pictures with a class for each of their pixels: images/NAME.jpg (or another picture format) and
// masks/NAME.png.
#include <algorithm>
#include <array>
#include <filesystem>
#include <set>

#include "tools/files/io/error.h"
#include "tools/files/io/text.h"
#include "tools/run/data/images.h"
#include "tools/run/data/sources.h"
#include "tools/run/pictures/class_folders.h"
#include "tools/run/pictures/orientation.h"
#include "tools/run/pictures/picture.h"
#include "tools/run/pictures/picture_set.h"

namespace reprise {
namespace {

namespace fs = std::filesystem;

// Lists the pictures of a folder. Adds a warning if other entries are left out.
std::vector<std::string> pictures_of(const std::string& folder, std::vector<std::string>& warnings) {
  std::error_code error;
  std::vector<std::string> files, left_out;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string path = entry.path().string();
    if (is_picture(path)) files.push_back(path);
    else if (!is_hidden(path)) left_out.push_back(path);
  }
  if (error)
    throw UserError(folder + ": cannot be listed: " + error.message() +
                    "; data of kind \"mask_folder\" have the folders images and masks");
  if (files.empty()) throw UserError(folder + ": holds no picture (.jpg .jpeg .png .bmp .ppm .pgm)");
  std::sort(files.begin(), files.end());
  std::sort(left_out.begin(), left_out.end());
  if (!left_out.empty())
    warnings.push_back(
        folder + ": left out for their ending, which is not .jpg .jpeg .png .bmp .ppm or .pgm: " + some_of(left_out));
  return files;
}

// Reads masks at the size of the net's output, and counts the classes in them.
class MaskReader {
 public:
  MaskReader(const Recipe& recipe, const std::string& folder)
      : folder_(folder),
        shape_(label_form(recipe).shape),
        classes_(describe_model(recipe.model).classes),
        has_values_(!recipe.data.mask_values.empty()),
        class_of_(kNumbers, kNoClass) {
    class_of_[kIgnoredByte] = kIgnoredByte;
    if (!has_values_) {
      for (int c = 0; c < classes_; ++c) class_of_[static_cast<size_t>(c)] = c;
    }
    for (size_t c = 0; c < recipe.data.mask_values.size(); ++c)
      class_of_[static_cast<size_t>(recipe.data.mask_values[c])] = static_cast<int>(c);
  }

  // Writes the class of each pixel of the label map, or 255 for none. Returns the mask's own size.
  // Every thread may call it.
  ImageShape read(const std::string& path, unsigned char* labels) const {
    std::vector<uint16_t> numbers(shape_.values());
    const ImageShape size = decode_mask(path, shape_.height, shape_.width, numbers.data());
    for (size_t i = 0; i < numbers.size(); ++i) {
      if (class_of_[numbers[i]] == kNoClass) refuse(path, numbers, numbers[i]);
      labels[i] = static_cast<unsigned char>(class_of_[numbers[i]]);
    }
    return size;
  }

  // Reads the mask like read(), and compares its size with its picture's size. Returns a text with
  // both sizes if they differ, otherwise "". Throws if the mask has the picture's size rotated by
  // 90 degrees.
  std::string read_beside(const std::string& picture, const std::string& mask, unsigned char* labels) const {
    const ImageShape size = read(mask, labels), shown = shown_size(picture);
    if (shown.values() == 0 || (shown.height == size.height && shown.width == size.width)) return "";
    const std::string sizes =
        mask + " is " + size_text(size) + ", " + picture + " " + size_text(shown) + " (width x height)";
    if (shown.height == size.width && shown.width == size.height)
      throw UserError(
          sizes +
          ": one of the two lies on its side; a mask must be as its picture is shown, turned by its orientation tag");
    return sizes;
  }

  void count(const std::vector<unsigned char>& labels, const std::string& other_size) {
    for (const unsigned char label : labels) ++counts_[label];
    if (!other_size.empty() && other_sizes_++ == 0) first_other_size_ = other_size;
  }

  // Adds warnings and notes about the masks. Throws UserError for a training set with at most one
  // class if masks contain 255 and there are no "mask_values". 255 means "no class", but was
  // perhaps intended as a class.
  void judge(Split split, uint64_t masks, std::vector<std::string>& warnings, std::vector<std::string>& notes) const {
    std::vector<std::string> there, missing;
    for (int c = 0; c < classes_; ++c) {
      if (counts_[static_cast<size_t>(c)] == 0) missing.push_back(std::to_string(c));
      else there.push_back("class " + std::to_string(c) + " at " + std::to_string(counts_[static_cast<size_t>(c)]));
    }
    const uint64_t none = counts_[kIgnoredByte];
    if (none > 0) there.push_back("none (255) at " + std::to_string(none));
    const std::string held = folder_ + "/masks: of the net's " + std::to_string(shape_.height) + " x " +
                             std::to_string(shape_.width) + " places a picture they hold " + some_of(there);
    const size_t found = static_cast<size_t>(classes_) - missing.size();
    const std::string line =
        held + ": " + (found == 0 ? "nothing" : "one class alone") + " is there to learn" +
        (none == 0 ? "" : "; where 255 is a class and not none, set \"mask_values\": [0, 255] in \"data\"");
    if (split == Split::kTraining && none > 0 && found <= 1 && !has_values_) throw UserError(line);
    notes.push_back(held);
    if (found <= 1) warnings.push_back(line);
    else if (!missing.empty())
      warnings.push_back(folder_ + "/masks: have no place of " + (missing.size() == 1 ? "class " : "classes ") +
                         some_of(missing));
    if (other_sizes_ > 0) {
      warnings.push_back(folder_ + ": " + std::to_string(other_sizes_) + " of " + std::to_string(masks) +
                         " masks have another size than their picture: " + first_other_size_ +
                         "; both are stretched to the net's size, the mask by the pixel at the middle of each place");
    }
  }

 private:
  static constexpr size_t kNumbers = size_t{1} << 16;
  static constexpr int kNoClass = -1;

  static std::string size_text(const ImageShape& shape) {
    return std::to_string(shape.width) + " x " + std::to_string(shape.height);
  }

  [[noreturn]] void refuse(const std::string& path, const std::vector<uint16_t>& numbers, uint16_t first) const {
    const std::set<uint16_t> distinct(numbers.begin(), numbers.end());
    std::vector<std::string> held;
    for (const uint16_t number : distinct) held.push_back(std::to_string(number));
    const std::string wanted =
        has_values_ ? "be one of data.mask_values, or 255 for none"
                    : "be from 0 to " + std::to_string(classes_ - 1) + ", the net's classes, or 255 for none";
    throw UserError(path + ": holds " + std::to_string(first) + ", must " + wanted + "; it holds " + some_of(held) +
                    ": \"mask_values\" in \"data\" lists the numbers of the classes in their order");
  }

  const std::string folder_;
  const ImageShape shape_;
  const int classes_;
  const bool has_values_;
  // For each number of a mask: its class, 255 if it means "no class", kNoClass if the number is
  // refused
  std::vector<int> class_of_;
  std::array<uint64_t, 256> counts_ = {};
  uint64_t other_sizes_ = 0;
  std::string first_other_size_;
};

// Returns the path of a picture's mask: masks/, the picture's name and .png.
std::string mask_of(const std::string& path, const std::string& picture) {
  const std::string stem = path + "/masks/" + fs::path(picture).stem().string();
  const std::string usual = stem + ".png";
  std::error_code ignored;
  if (!fs::exists(usual, ignored) && fs::exists(stem + ".PNG", ignored)) return stem + ".PNG";
  if (!fs::exists(usual, ignored)) throw UserError(picture + ": has no mask; must be there as " + usual);
  return usual;
}

}  // namespace

// Opens a mask folder. Reads all masks once to count the labelled pixels: a step's loss is divided
// by their number before the step reads its masks again.
std::unique_ptr<Dataset> open_mask_folder(const Recipe& recipe, Split split, DataLook* look) {
  const std::string& path = split == Split::kTraining ? recipe.data.path : recipe.data.eval_path;
  if (path.empty()) return nullptr;
  const std::vector<double> class_weights = describe_model(recipe.model).class_weights;
  const LabelForm form = label_form(recipe);
  LabelledPictures set;
  set.files = pictures_of(path + "/images", set.warnings);
  for (const std::string& file : set.files) set.others.push_back(mask_of(path, file));
  MaskReader reader(recipe, path);
  std::vector<unsigned char> labels(form.bytes());
  const bool reads = look == nullptr || look->max_bytes == UINT64_MAX;
  bool are_whole = true;  // true if all files that were checked are readable; check_file() reports the others
  for (size_t n = 0; reads && n < set.files.size(); ++n) {
    try {
      const std::string other_size = reader.read_beside(set.files[n], set.others[n], labels.data());
      reader.count(labels, other_size);
    } catch (const UserError&) {
      if (look == nullptr) throw;
      are_whole = false;
    }
    set.labelled.push_back(form.labelled(labels.data()));
    set.weights.push_back(form.weight(labels.data(), class_weights));
  }
  if (reads && are_whole) reader.judge(split, set.files.size(), set.warnings, set.notes);
  set.write_labels = [pictures = set.files, masks = set.others, reader, checks = look != nullptr](uint64_t n,
                                                                                                  unsigned char* to) {
    if (checks) {
      reader.read_beside(pictures[n], masks[n], to);
    } else {
      reader.read(masks[n], to);
    }
  };
  return make_picture_set(recipe, split, path, std::move(set));
}

}  // namespace reprise
