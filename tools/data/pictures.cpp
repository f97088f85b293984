// See pictures.h.
#include "tools/data/pictures.h"

#include <algorithm>
#include <filesystem>

#include "tools/data/class_folders.h"
#include "tools/data/picture.h"
#include "tools/formats/error.h"

namespace reprise {
namespace {

namespace fs = std::filesystem;

// A link that leads nowhere is named when it is opened, as a broken picture is: whoever counts the answers misses none.
bool is_listed(const fs::directory_entry& entry) {
  std::error_code ignored;
  const bool leads_nowhere = entry.is_symlink(ignored) && !entry.exists(ignored);
  return (leads_nowhere || entry.is_regular_file(ignored)) && is_picture(entry.path().string());
}

void add_folder(const std::string& folder, std::vector<std::string>& files) {
  std::error_code error;
  std::vector<std::string> found;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (is_listed(*entry)) found.push_back(entry->path().string());
  }
  if (error) throw UserError(folder + ": cannot be listed: " + error.message());
  if (found.empty()) throw UserError(folder + ": holds no picture (.jpg .jpeg .png .bmp .ppm .pgm)");
  std::sort(found.begin(), found.end());
  files.insert(files.end(), found.begin(), found.end());
}

}  // namespace

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

PictureFiles::PictureFiles(const Recipe& recipe, const std::vector<std::string>& files)
    : files_(files), shape_(image_shape(recipe)), table_(recipe), walk_(recipe, Split::kEvaluation, files.size()), bytes_(shape_.values()),
      faults_(files.size()) {
  set_size(recipe, files.size(), label_form(recipe).count());
}

uint64_t PictureFiles::fill(uint64_t step, uint64_t micro, BatchSink& sink) {
  return walk_.fill(step, micro, sink, [&](uint64_t sample, const Augmentation& augmentation, auto* image) -> const void* {
    try {
      decode_picture(files_[sample], shape_, bytes_.data());
    } catch (const UserError& error) {
      faults_[sample] = error.what();
      std::fill(bytes_.begin(), bytes_.end(), uint8_t{0});
    }
    const auto pixel = [&](int y, int x, int c) { return table_(c, bytes_[static_cast<size_t>((y * shape_.width + x) * shape_.channels + c)]); };
    write_image(shape_, augmentation, pixel, [&](int c) { return table_(c, 0); }, image);
    return nullptr;
  });
}

}  // namespace reprise
