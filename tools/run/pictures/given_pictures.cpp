// Pictures without labels for prediction (see unlabelled.h).
#include "tools/run/data/unlabelled.h"

#include <algorithm>
#include <filesystem>

#include "tools/files/io/error.h"
#include "tools/run/data/images.h"
#include "tools/run/pictures/class_folders.h"
#include "tools/run/pictures/picture.h"

namespace reprise {
namespace {

namespace fs = std::filesystem;

// True if the entry is a picture. A link without a target counts, too: filling reports it like a
// broken picture, so that every listed file gets an answer.
bool is_listed(const fs::directory_entry& entry) {
  std::error_code ignored;
  const bool leads_nowhere = entry.is_symlink(ignored) && !entry.exists(ignored);
  return (leads_nowhere || entry.is_regular_file(ignored)) && is_picture(entry.path().string());
}

void add_folder(const std::string& folder, std::vector<std::string>& files) {
  std::error_code error;
  std::vector<std::string> found;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (is_hidden(entry->path().string())) entry.disable_recursion_pending();
    if (is_listed(*entry)) found.push_back(entry->path().string());
  }
  if (error) throw UserError(folder + ": cannot be listed: " + error.message());
  if (found.empty()) throw UserError(folder + ": holds no picture (.jpg .jpeg .png .bmp .ppm .pgm)");
  std::sort(found.begin(), found.end());
  files.insert(files.end(), found.begin(), found.end());
}

std::vector<std::string> list_pictures(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    if (!fs::exists(path)) throw UserError(path + ": --predict: is not there");
    if (fs::is_directory(path)) {
      add_folder(path, files);
    } else {
      files.push_back(path);
    }
  }
  return files;
}

class GivenPictures : public UnlabelledSet {
 public:
  GivenPictures(const Recipe& recipe, const std::vector<std::string>& files)
      : shape_(image_shape(recipe)),
        table_(recipe),
        walk_(recipe, Split::kEvaluation, read_at_once(recipe, files.size())),
        bytes_(shape_.values()) {
    for (const std::string& file : files) samples_.push_back({.place = file, .file = file});
    set_size(recipe, read_at_once(recipe, files.size()), label_form(recipe).count());
  }

  uint64_t fill(uint64_t step, uint64_t micro, BatchSink& sink) override {
    return walk_.fill(step, micro, sink,
                      [&](uint64_t sample, const Augmentation& augmentation, auto* image) -> const void* {
                        if (sample >= samples_.size()) {
                          std::fill_n(image, shape_.values(), 0.0f);
                          return nullptr;
                        }
                        try {
                          decode_picture(samples_[sample].file, shape_, bytes_.data());
                        } catch (const UserError& error) {
                          samples_[sample].fault = error.what();
                          std::fill(bytes_.begin(), bytes_.end(), uint8_t{0});
                        }
                        const auto pixel = [&](int y, int x, int c) {
                          return table_(c, bytes_[static_cast<size_t>((y * shape_.width + x) * shape_.channels + c)]);
                        };
                        write_image(
                            shape_, augmentation, pixel, [&](int c) { return table_(c, 0); }, image);
                        return nullptr;
                      });
  }

 private:
  const ImageShape shape_;
  PixelTable table_;
  ImageWalk walk_;
  std::vector<uint8_t> bytes_;
};

}  // namespace

std::unique_ptr<UnlabelledSet> open_given_pictures(const Recipe& recipe, const std::vector<std::string>& paths) {
  return std::make_unique<GivenPictures>(recipe, list_pictures(paths));
}

std::unique_ptr<UnlabelledSet> open_unlabelled(const Recipe& recipe, const std::vector<std::string>& paths) {
  const bool are_texts = describe_model(recipe.model).input == ModelDescription::Input::kTexts;
  return are_texts ? open_given_texts(recipe, paths) : open_given_pictures(recipe, paths);
}

}  // namespace reprise
