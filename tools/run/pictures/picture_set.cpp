// A set of photographs. A separate thread decodes them a few micro-batches ahead, because decoding
// allocates and takes longer than copying, and a training step must do neither.
#include "tools/run/pictures/picture_set.h"

#include <unistd.h>

#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <thread>

#include "tools/files/io/error.h"
#include "tools/files/io/exception_text.h"
#include "tools/run/data/contrast_targets.h"
#include "tools/run/data/images.h"
#include "tools/run/pictures/picture.h"

namespace reprise {
namespace {

// Prints one line on stderr; on a terminal it replaces a progress line. Does not use the heap.
void warn(const char* line) {
  std::fprintf(stderr, "%swarning: %s\n", ::isatty(STDERR_FILENO) == 1 ? "\r\033[K" : "", line);
}

struct Position {
  uint64_t step = 0, micro = 0;
  bool operator==(const Position&) const = default;
};

// One decoded micro-batch, before normalisation and augmentation.
struct Decoded {
  std::vector<uint8_t> pixels;        // [batch, H, W, C]; twice as long for pairs
  std::vector<unsigned char> labels;  // labels of `batch` samples, in the form of label_form
  std::string error;                  // the message with which the run ends; "" if there is no error
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
        form_(label_form(recipe)),
        targets_(recipe, numbers_of(recipe, pictures_.files), path, notes_) {
    set_size(recipe, pictures_.files.size() / inputs_, form_.count());
    class_names_ = pictures_.class_names;
    warnings_ = pictures_.warnings;
    notes_.insert(notes_.end(), pictures_.notes.begin(), pictures_.notes.end());
    warn_of_places(recipe, split, class_names_, warnings_);
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
    if (targets_.are_there()) targets_.begin_batch(walk_.order(), step, micro);
    const uint64_t real =
        walk_.fill(step, micro, sink, [&](uint64_t, const Augmentation& augmentation, auto* image) -> const void* {
          const auto pixel = [&](int y, int x, int c) {
            return table_(c, bytes[(y * shape.width + x) * shape.channels + c]);
          };
          write_image(
              shape, augmentation, pixel, [&](int c) { return table_(c, 0); }, image);
          bytes += shape.values();
          if (targets_.are_there()) return pictures++ % inputs_ == 0 ? targets_.next() : nullptr;
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
  static constexpr uint64_t kMaxNamed = 20;

  Position after(Position position) const {
    if (split_ == Split::kEvaluation) return {(position.step + 1) % micro_batches(), 0};
    const uint64_t ranks = static_cast<uint64_t>(recipe_.ranks());  // each rank reads every ranks-th micro-batch
    if (position.micro + ranks < static_cast<uint64_t>(recipe_.micro_batches()))
      return {position.step, position.micro + ranks};
    return {position.step + 1, position.micro % ranks};
  }

  // Waits until the micro-batch at `wanted` is decoded and returns it. If `wanted` is not the next
  // position, the producer starts again at `wanted`.
  const Decoded& wait_for(Position wanted) {
    std::unique_lock lock(mutex_);
    if (front_position_ != wanted) {
      front_position_ = next_position_ = wanted;
      front_ = back_ = back_ + 1;  // skips the slot of the ring that the producer may be writing
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
      if (place != back_ || position != next_position_) continue;  // the reader asked for another position meanwhile
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
        decode_place(position, b, *sample, decoded);
      }
    } catch (const std::exception& error) {  // an exception must not leave the function of a thread
      decoded.error = words_of(error);
    }
  }

  // Decodes the sample at position `place` of a micro-batch. If the sample is broken and may be
  // skipped, training replaces it by a sample drawn from the whole set; in evaluation the position
  // has no label. A draw depends only on the position: it is known without reading the folder, and
  // no sample is preferred.
  void decode_place(Position position, uint64_t place, uint64_t sample, Decoded& decoded) {
    if (try_to_decode_sample(sample, place, decoded)) return;
    std::memcpy(decoded.labels.data() + place * form_.bytes(), walk_.none(), form_.bytes());
    if (split_ == Split::kEvaluation) return;
    for (uint64_t draw = 0; draw < size_; ++draw) {
      sample = stand_in(size_, recipe_.seed, position.step, position.micro * batch_ + place, draw);
      if (try_to_decode_sample(sample, place, decoded)) return;
    }
    // Almost all pictures are broken: use the first sample that can be decoded, beginning with the
    // last drawn sample.
    for (uint64_t next = 0; next < size_; ++next) {
      if (try_to_decode_sample((sample + next) % size_, place, decoded)) return;
    }
    throw UserError(recipe_.data.path + ": not one of its " + std::to_string(size_) + " pictures can be decoded");
  }

  // Decodes the pictures of a sample to position `place` and writes its labels. Returns false if
  // one of its pictures is broken.
  bool try_to_decode_sample(uint64_t sample, uint64_t place, Decoded& decoded) {
    const uint64_t values = image_shape(recipe_).values();
    uint8_t* target = decoded.pixels.data() + place * inputs_ * values;
    bool is_whole = true;
    for (uint64_t i = 0; i < inputs_; ++i)
      is_whole = try_to_decode(sample * inputs_ + i, target + i * values) && is_whole;
    if (is_whole) pictures_.write_labels(sample, decoded.labels.data() + place * form_.bytes());
    return is_whole;
  }

  // Decodes a picture. Returns false if it is broken and may be skipped. A broken picture is tried
  // only once.
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

  // Prints the broken pictures that the producer has found. Their strings are freed with the set,
  // because this thread must not use the heap.
  void name_skipped() {
    const std::lock_guard lock(mutex_);
    for (; named_ < skipped_.size() && named_ < kMaxNamed; ++named_) warn(skipped_[named_].c_str());
    if (named_ == kMaxNamed && skipped_.size() > kMaxNamed) {
      warn("further broken pictures are skipped without a line; --check-data names all of them");
      ++named_;
    }
  }

  // Returns equal numbers for equal files if the loss is InfoNCE, otherwise {}.
  static std::vector<uint32_t> numbers_of(const Recipe& recipe, const std::vector<std::string>& files) {
    if (!is_contrast(recipe)) return {};
    return numbers_of_equal(files.size(), [&files](uint32_t a, uint32_t b) { return files[a] < files[b]; });
  }

  Recipe recipe_;
  Split split_;
  const LabelledPictures pictures_;
  const uint64_t inputs_;  // pictures in a sample
  PixelTable table_;
  ImageWalk walk_;
  const LabelForm form_;
  ContrastTargets targets_;
  // For each picture: true if the producer found it broken and skips it.
  std::vector<bool> is_broken_ = std::vector<bool>(pictures_.files.size());

  std::mutex mutex_;  // guards all members below; a slot of the ring belongs to one thread at a time
  std::condition_variable changed_;
  uint64_t front_ = 0, back_ = 0;  // slots front_ .. back_-1 (modulo kAhead) are decoded; both numbers only grow
  Position front_position_, next_position_;
  bool stop_ = false;
  std::vector<std::string> skipped_;  // a line for each broken picture, in the order in which they were found
  uint64_t named_ = 0;                // how many of these lines are printed
  std::array<Decoded, kAhead> ring_;
  std::thread producer_;
};

}  // namespace

std::unique_ptr<Dataset> make_picture_set(const Recipe& recipe, Split split, const std::string& path,
                                          LabelledPictures pictures) {
  return std::make_unique<PictureDataset>(recipe, split, path, std::move(pictures));
}

}  // namespace reprise
