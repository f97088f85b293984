// A folder of photographs, one sub-folder for each class, decoded by a thread of its own a few micro-batches ahead.
// Decoding allocates and takes longer than copying; the training step must do neither.
// It must not keep the whole set in memory.
#include <unistd.h>

#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <thread>

#include "tools/data/class_folders.h"
#include "tools/data/images.h"
#include "tools/data/picture.h"
#include "tools/data/sources.h"
#include "tools/formats/error.h"
#include "tools/formats/text.h"

namespace reprise {
namespace {

// One line on stderr, in the place of a progress line that a terminal may show. Takes no heap.
void warn(const char* line) { std::fprintf(stderr, "%swarning: %s\n", ::isatty(STDERR_FILENO) == 1 ? "\r\033[K" : "", line); }

struct Position {
  uint64_t step = 0, micro = 0;
  bool operator==(const Position&) const = default;
};

// One decoded micro-batch, before normalisation and augmentation.
struct Decoded {
  std::vector<uint8_t> pixels;  // [batch, H, W, C]
  std::vector<int32_t> labels;  // [batch]
  std::string error;            // the line that ends the run
};

class ImageFolderDataset : public Dataset {
 public:
  ImageFolderDataset(const Recipe& recipe, Split split, const std::string& folder, const std::vector<std::string>& names,
                     std::vector<PictureList::Picture> pictures, std::vector<std::string> warnings)
      : recipe_(recipe),
        split_(split),
        pictures_(std::move(pictures)),
        table_(recipe),
        walk_(recipe, split, pictures_.size()) {
    set_size(recipe, pictures_.size(), 1);
    class_names_ = names;
    warnings_ = std::move(warnings);
    std::vector<std::string> files;
    for (const PictureList::Picture& picture : pictures_) files.push_back(picture.path);
    fingerprint_ = fingerprint_of(size_, folder, files);
    for (Decoded& decoded : ring_) {
      decoded.pixels.resize(batch_ * image_shape(recipe).values());
      decoded.labels.resize(batch_);
    }
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
    name_skipped();
    if (!decoded.error.empty()) throw UserError(decoded.error);
    const ImageShape shape = image_shape(recipe_);
    const uint8_t* bytes = decoded.pixels.data();
    const int32_t* label = decoded.labels.data();
    const uint64_t real = walk_.fill(step, micro, sink, [&](uint64_t, const Augmentation& augmentation, auto* image) {
      const auto pixel = [&](int y, int x, int c) { return table_(c, bytes[(y * shape.width + x) * shape.channels + c]); };
      write_image(shape, augmentation, pixel, [&](int c) { return table_(c, 0); }, image);
      bytes += shape.values();
      return *label++;
    });
    release();
    return real;
  }

  uint64_t unread_files() const override { return size_; }
  void check_file(uint64_t n) const override { check_picture(pictures_[n].path, image_shape(recipe_)); }

 private:
  static constexpr uint64_t kAhead = 4;  // micro-batches in the ring
  static constexpr uint64_t kMostNamed = 20;

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

  void decode(Position position, Decoded& decoded) {
    decoded.error.clear();
    try {
      for (uint64_t b = 0; b < batch_; ++b) {
        const std::optional<uint64_t> sample = walk_.sample_at(position.step, position.micro, b);
        if (!sample) break;
        decode_place(*sample, b, decoded);
      }
    } catch (const std::exception& error) {  // an exception must not leave its thread
      decoded.error = error.what();
    }
  }

  // A broken picture that is to be skipped: in training the next one of the list that is whole stands in for it, so that what a position
  // gives is known without a look at the whole folder; in evaluation its place has no label.
  void decode_place(uint64_t sample, uint64_t place, Decoded& decoded) {
    uint8_t* target = decoded.pixels.data() + place * image_shape(recipe_).values();
    for (uint64_t tried = 0; tried < size_; ++tried) {
      const uint64_t n = (sample + tried) % size_;
      decoded.labels[place] = pictures_[n].label;
      if (try_to_decode(n, target)) return;
      decoded.labels[place] = kIgnoredLabel;
      if (split_ == Split::kEvaluation) return;
    }
    throw UserError(recipe_.data.path + ": not one of its " + std::to_string(size_) + " pictures can be decoded");
  }

  // False for a broken picture that is to be skipped. Each is tried once.
  bool try_to_decode(uint64_t n, uint8_t* target) {
    if (is_broken_[n]) return false;
    try {
      decode_picture(pictures_[n].path, image_shape(recipe_), target);
      return true;
    } catch (const UserError& error) {
      if (recipe_.data.broken == DataSource::Broken::kRefuse) throw;
      is_broken_[n] = true;
      const std::lock_guard lock(mutex_);
      skipped_.push_back(std::string(error.what()) + "; it is skipped");
      return false;
    }
  }

  // Prints what the producer has found; the strings go when the set does, because the heap is not for this thread.
  void name_skipped() {
    const std::lock_guard lock(mutex_);
    for (; named_ < skipped_.size() && named_ < kMostNamed; ++named_) warn(skipped_[named_].c_str());
    if (named_ == kMostNamed && skipped_.size() > kMostNamed) {
      warn("further broken pictures are skipped without a line; --check-data names all of them");
      ++named_;
    }
  }

  Recipe recipe_;
  Split split_;
  std::vector<PictureList::Picture> pictures_;
  PixelTable table_;
  ImageWalk walk_;
  std::vector<bool> is_broken_ = std::vector<bool>(pictures_.size());  // as far as the producer knows, where they are to be skipped

  std::mutex mutex_;  // guards all below but the contents of the ring's places, which belong to one side at a time
  std::condition_variable changed_;
  uint64_t front_ = 0, back_ = 0;  // places front_ .. back_-1 are decoded, counted without wrapping
  Position front_position_, next_position_;
  bool stop_ = false;
  std::vector<std::string> skipped_;  // a line for each, in the order in which they were found
  uint64_t named_ = 0;                // of these
  std::array<Decoded, kAhead> ring_;
  std::thread producer_;
};

// What is no error, and hardly meant. `folder` may be another than that of the training, whose sub-folders are the names.
std::vector<std::string> warnings_of(const Recipe& recipe, const std::string& folder, const std::vector<std::string>& names, const PictureList& list) {
  const auto some = [](uint64_t count, const char* one, const char* more) { return std::to_string(count) + (count == 1 ? one : more); };
  const bool is_training = folder == recipe.data.path;
  std::vector<std::string> lines;
  if (is_training && names.size() < static_cast<size_t>(class_count(recipe))) {
    lines.push_back(folder + ": has " + some(names.size(), " class folder", " class folders") + ", but model.classes is " +
                    std::to_string(class_count(recipe)) + ": the others have nothing to learn from");
  }
  if (list.left_out > 0) {
    lines.push_back(folder + ": " + some(list.left_out, " entry of its class folders is", " entries of its class folders are") +
                    " left out, not being .jpg .jpeg .png .bmp .ppm or .pgm: " + list.first_left_out + (list.left_out == 1 ? "" : " and others"));
  }
  std::vector<bool> has_picture(names.size());
  for (const PictureList::Picture& picture : list.pictures) has_picture[static_cast<size_t>(picture.label)] = true;
  std::vector<std::string> without;
  for (size_t n = 0; n < names.size(); ++n) {
    if (!has_picture[n]) without.push_back(names[n]);
  }
  if (!without.empty()) {
    lines.push_back(folder + ": has no picture of " + some(without.size(), " class", " classes") + (is_training ? "" : " that " + recipe.data.path + " names") +
                    ": " + some_of(without));
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
  std::vector<std::string> warnings;  // of one folder for both sets once
  if (split == Split::kTraining || folder != data.path) warnings = warnings_of(recipe, folder, names, list);
  return std::make_unique<ImageFolderDataset>(recipe, split, folder, names, std::move(list.pictures), std::move(warnings));
}

}  // namespace reprise
