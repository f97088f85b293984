// Photographs decoded by a thread of its own, a few micro-batches ahead.
// Decoding allocates and takes longer than copying; the training step must do neither.
#include "tools/data/picture_set.h"

#include <unistd.h>

#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <thread>

#include "tools/data/images.h"
#include "tools/data/picture.h"
#include "tools/formats/error.h"
#include "tools/formats/exception_text.h"

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
  std::vector<uint8_t> pixels;  // [batch, H, W, C]; of pairs twice as many
  std::vector<unsigned char> labels;  // [batch]
  std::string error;            // the line that ends the run
};

class PictureDataset : public Dataset {
 public:
  PictureDataset(const Recipe& recipe, Split split, const std::string& path, LabelledPictures pictures)
      : recipe_(recipe),
        split_(split),
        pictures_(std::move(pictures)),
        inputs_(static_cast<uint64_t>(describe_model(recipe.model).inputs_of_sample())),
        table_(recipe),
        walk_(recipe, split, pictures_.files.size() / inputs_),
        form_(label_form(recipe)) {
    set_size(recipe, pictures_.files.size() / inputs_, form_.count());
    class_names_ = pictures_.class_names;
    warnings_ = pictures_.warnings;
    std::vector<std::string> files = pictures_.files;
    files.insert(files.end(), pictures_.others.begin(), pictures_.others.end());
    fingerprint_ = fingerprint_of(size_, path, files);
    for (Decoded& decoded : ring_) {
      decoded.pixels.resize(batch_ * inputs_ * image_shape(recipe).values());
      decoded.labels.resize(batch_ * form_.bytes());
    }
    producer_ = std::thread([this] { produce(); });
  }

  ~PictureDataset() override {
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
    uint64_t pictures = 0;
    const uint64_t real = walk_.fill(step, micro, sink, [&](uint64_t, const Augmentation& augmentation, auto* image) -> const void* {
      const auto pixel = [&](int y, int x, int c) { return table_(c, bytes[(y * shape.width + x) * shape.channels + c]); };
      write_image(shape, augmentation, pixel, [&](int c) { return table_(c, 0); }, image);
      bytes += shape.values();
      return decoded.labels.data() + pictures++ / inputs_ * form_.bytes();
    });
    release();
    return real;
  }

  uint64_t labelled_in_step(uint64_t step) override {
    if (pictures_.labelled.empty()) return Dataset::labelled_in_step(step);
    return walk_.order().sum_over_step(step, [&](uint64_t sample) { return pictures_.labelled[sample]; });
  }
  double weight_in_step(uint64_t step) override {
    if (pictures_.weights.empty()) return Dataset::weight_in_step(step);
    return walk_.order().sum_over_step(step, [&](uint64_t sample) { return pictures_.weights[sample]; });
  }

  uint64_t unread_files() const override { return pictures_.files.size(); }
  void check_file(uint64_t n) const override {
    check_picture(pictures_.files[n], image_shape(recipe_));
    std::vector<unsigned char> labels(form_.bytes());
    pictures_.write_labels(n / inputs_, labels.data());
  }

 private:
  static constexpr uint64_t kAhead = 4;  // micro-batches in the ring
  static constexpr uint64_t kMostNamed = 20;

  Position after(Position position) const {
    if (split_ == Split::kEvaluation) return {(position.step + 1) % micro_batches(), 0};
    const uint64_t ranks = static_cast<uint64_t>(recipe_.ranks());  // each of which asks for every so many
    if (position.micro + ranks < static_cast<uint64_t>(recipe_.micro_batches())) return {position.step, position.micro + ranks};
    return {position.step + 1, position.micro % ranks};
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
        const std::optional<uint64_t> sample = walk_.order().sample_at(position.step, position.micro, b);
        if (!sample) break;
        decode_place(*sample, b, decoded);
      }
    } catch (const std::exception& error) {  // an exception must not leave its thread
      decoded.error = words_of(error);
    }
  }

  // A broken picture that is to be skipped: in training the next one of the list that is whole stands in for it, so that what a position
  // gives is known without a look at the whole folder; in evaluation its place has no label.
  void decode_place(uint64_t sample, uint64_t place, Decoded& decoded) {
    const uint64_t values = image_shape(recipe_).values();
    uint8_t* target = decoded.pixels.data() + place * inputs_ * values;
    unsigned char* labels = decoded.labels.data() + place * form_.bytes();
    for (uint64_t tried = 0; tried < size_; ++tried) {
      const uint64_t n = (sample + tried) % size_;
      bool is_whole = true;
      for (uint64_t i = 0; i < inputs_; ++i) is_whole = try_to_decode(n * inputs_ + i, target + i * values) && is_whole;
      if (is_whole) return pictures_.write_labels(n, labels);
      std::memcpy(labels, walk_.none(), form_.bytes());
      if (split_ == Split::kEvaluation) return;
    }
    throw UserError(recipe_.data.path + ": not one of its " + std::to_string(size_) + " pictures can be decoded");
  }

  // False for a broken picture that is to be skipped. Each is tried once.
  bool try_to_decode(uint64_t n, uint8_t* target) {
    if (is_broken_[n]) return false;
    try {
      decode_picture(pictures_.files[n], image_shape(recipe_), target);
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
  const LabelledPictures pictures_;
  const uint64_t inputs_;  // pictures of a sample
  PixelTable table_;
  ImageWalk walk_;
  const LabelForm form_;
  std::vector<bool> is_broken_ = std::vector<bool>(pictures_.files.size());  // as far as the producer knows, where they are to be skipped

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

}  // namespace

std::unique_ptr<Dataset> make_picture_set(const Recipe& recipe, Split split, const std::string& path, LabelledPictures pictures) {
  return std::make_unique<PictureDataset>(recipe, split, path, std::move(pictures));
}

}  // namespace reprise
