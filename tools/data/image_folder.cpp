// A folder of photographs, one sub-folder for each class, decoded by a thread of its own a few micro-batches ahead.
// Decoding allocates and takes longer than copying; the training step must do neither.
// It must not keep the whole set in memory.
#define STB_IMAGE_IMPLEMENTATION
#define STB_IMAGE_STATIC
#include <stb/stb_image.h>

#include <cctype>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <thread>

#include "tools/data/images.h"
#include "tools/data/resize.h"
#include "tools/data/sources.h"
#include "tools/formats/error.h"

namespace reprise {
namespace {

namespace fs = std::filesystem;

struct LabelledFile {
  std::string path;
  int32_t label;
};

bool is_image(const fs::path& path) {
  std::string ending = path.extension().string();
  for (char& c : ending) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const char* known : {".jpg", ".jpeg", ".png", ".bmp", ".ppm", ".pgm"}) {
    if (ending == known) return true;
  }
  return false;
}

std::vector<fs::path> sorted_entries(const std::string& folder) {
  std::error_code error;
  std::vector<fs::path> paths;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    paths.push_back(entry->path());
  if (error)
    throw UserError(folder + ": cannot be listed: " + error.message() +
                    "; data.path must be a folder with one sub-folder for each class");
  std::sort(paths.begin(), paths.end());
  return paths;
}

// As torchvision's ImageFolder: classes are the sub-folders in the order of their names.
std::vector<std::string> class_names(const std::string& folder, int classes) {
  std::vector<std::string> names;
  for (const fs::path& path : sorted_entries(folder)) {
    std::error_code ignored;
    if (fs::is_directory(path, ignored)) names.push_back(path.filename().string());
  }
  if (names.empty()) throw UserError(folder + ": has no sub-folders; it must have one for each class");
  if (names.size() > static_cast<size_t>(classes)) {
    throw UserError(folder + ": has " + std::to_string(names.size()) +
                    " sub-folders, one for each class, but model.classes is " + std::to_string(classes));
  }
  return names;
}

std::vector<LabelledFile> list_images(const std::string& folder, const std::vector<std::string>& names) {
  std::vector<LabelledFile> files;
  for (const fs::path& sub_folder : sorted_entries(folder)) {
    std::error_code ignored;
    if (!fs::is_directory(sub_folder, ignored)) continue;
    const auto name = std::find(names.begin(), names.end(), sub_folder.filename().string());
    if (name == names.end()) throw UserError(sub_folder.string() + ": is no class of the training set");
    for (const fs::path& path : sorted_entries(sub_folder.string())) {
      if (is_image(path)) files.push_back({path.string(), static_cast<int32_t>(name - names.begin())});
    }
  }
  if (files.empty()) throw UserError(folder + ": its sub-folders hold no images (.jpg .jpeg .png .bmp .ppm .pgm)");
  return files;
}

void decode_image(const std::string& path, const ImageShape& shape, uint8_t* target) {
  int width = 0, height = 0, channels_in_file = 0;
  uint8_t* bytes = stbi_load(path.c_str(), &width, &height, &channels_in_file, shape.channels);
  if (bytes == nullptr) throw UserError(path + ": cannot be decoded: " + stbi_failure_reason());
  const ImageShape from = {height, width, shape.channels};
  if (height == shape.height && width == shape.width) {
    std::copy(bytes, bytes + shape.values(), target);
  } else {
    resize_image(from, bytes, shape, target);
  }
  stbi_image_free(bytes);
}

struct Position {
  uint64_t step = 0, micro = 0;
  bool operator==(const Position&) const = default;
};

// One decoded micro-batch, before normalisation and augmentation.
struct Decoded {
  std::vector<uint8_t> pixels;  // [batch, H, W, C]
  std::string error;            // the line of the first image that could not be decoded
};

class ImageFolderDataset : public Dataset {
 public:
  ImageFolderDataset(const Recipe& recipe, Split split, std::vector<LabelledFile> files)
      : recipe_(recipe), split_(split), files_(std::move(files)), table_(recipe), walk_(recipe, split, files_.size()) {
    size_ = files_.size();
    batch_ = static_cast<uint64_t>(recipe.batch);
    for (Decoded& decoded : ring_) decoded.pixels.resize(batch_ * image_shape(recipe).values());
    producer_ = std::thread([this] { produce(); });
  }

  ~ImageFolderDataset() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    producer_.join();
  }

  uint64_t fill(uint64_t step, uint64_t micro, BatchSink& sink) override {
    const Decoded& decoded = wait_for({step, micro});
    if (!decoded.error.empty()) throw UserError(decoded.error);
    const ImageShape shape = image_shape(recipe_);
    const uint8_t* bytes = decoded.pixels.data();
    const uint64_t real = walk_.fill(step, micro, sink, [&](uint64_t sample, const Augmentation& augmentation, auto* image) {
      const auto pixel = [&](int y, int x, int c) { return table_(c, bytes[(y * shape.width + x) * shape.channels + c]); };
      write_image(shape, augmentation, pixel, [&](int c) { return table_(c, 0); }, image);
      bytes += shape.values();
      return files_[sample].label;
    });
    release();
    return real;
  }

 private:
  static constexpr uint64_t kAhead = 4;  // micro-batches in the ring

  Position after(Position position) const {
    if (split_ == Split::kEvaluation) return {(position.step + 1) % micro_batches(), 0};
    if (position.micro + 1 < static_cast<uint64_t>(recipe_.accumulate)) return {position.step, position.micro + 1};
    return {position.step + 1, 0};
  }

  // The front of the ring once it holds `wanted`. Asked for anything but the next position, the producer starts over
  // there.
  const Decoded& wait_for(Position wanted) {
    std::unique_lock lock(mutex_);
    if (front_position_ != wanted) {
      front_position_ = next_position_ = wanted;
      front_ = back_ = back_ + 1;  // leaves alone the place that the producer may be writing
      changed_.notify_all();
    }
    changed_.wait(lock, [&] { return front_ < back_; });
    return ring_[front_ % kAhead];
  }

  void release() {
    {
      const std::lock_guard lock(mutex_);
      ++front_;
      front_position_ = after(front_position_);
    }
    changed_.notify_all();
  }

  void produce() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return stop_ || back_ - front_ < kAhead; });
      if (stop_) return;
      const uint64_t place = back_;
      const Position position = next_position_;
      lock.unlock();
      decode(position, ring_[place % kAhead]);
      lock.lock();
      if (place != back_ || position != next_position_) continue;  // the reader went elsewhere meanwhile
      ++back_;
      next_position_ = after(position);
      changed_.notify_all();
    }
  }

  void decode(Position position, Decoded& decoded) const {
    const ImageShape shape = image_shape(recipe_);
    decoded.error.clear();
    uint8_t* target = decoded.pixels.data();
    try {
      for (uint64_t b = 0; b < batch_; ++b) {
        const std::optional<uint64_t> sample = walk_.sample_at(position.step, position.micro, b);
        if (!sample) break;
        decode_image(files_[*sample].path, shape, target);
        target += shape.values();
      }
    } catch (const std::exception& error) {  // an exception must not leave its thread
      decoded.error = error.what();
    }
  }

  Recipe recipe_;
  Split split_;
  std::vector<LabelledFile> files_;
  PixelTable table_;
  ImageWalk walk_;

  std::mutex mutex_;  // guards all below but the contents of the ring's places, which belong to one side at a time
  std::condition_variable changed_;
  uint64_t front_ = 0, back_ = 0;  // places front_ .. back_-1 are decoded, counted without wrapping
  Position front_position_, next_position_;
  bool stop_ = false;
  std::array<Decoded, kAhead> ring_;
  std::thread producer_;
};

}  // namespace

std::unique_ptr<Dataset> open_image_folder(const Recipe& recipe, Split split) {
  const DataSource& data = recipe.data;
  if (split == Split::kEvaluation && data.eval_path.empty()) return nullptr;
  const std::vector<std::string> names = class_names(data.path, class_count(recipe));
  return std::make_unique<ImageFolderDataset>(
      recipe, split, list_images(split == Split::kTraining ? data.path : data.eval_path, names));
}

}  // namespace reprise
