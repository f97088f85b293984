// The idx format of MNIST and Fashion-MNIST: images of bytes, labels of bytes, plain or gzipped.
// Source: yann.lecun.com/exdb/mnist: a big-endian magic number (0x0803 images, 0x0801 labels),
// counts, then bytes.
#include <zlib.h>

#include <array>
#include <filesystem>

#include "tools/files/io/error.h"
#include "tools/files/io/file_kind.h"
#include "tools/run/data/images.h"
#include "tools/run/data/sources.h"

namespace reprise {
namespace {

struct IdxFile {
  std::string path;
  std::vector<uint32_t> sizes;  // sizes[0] is the number of samples, then the sides of a sample
  std::vector<uint8_t> bytes;
};

// Reads a gzipped or a plain file: zlib accepts both.
class GzipReader {
 public:
  explicit GzipReader(const std::string& path) : path_(path) {
    refuse_other_kinds(InputFile(path), "an idx file, plain or gzipped", {FileKind::kGzip});
    file_ = gzopen(path.c_str(), "rb");
    if (file_ == nullptr) throw UserError(path + ": cannot be opened");
  }
  ~GzipReader() { gzclose_r(file_); }
  GzipReader(const GzipReader&) = delete;
  GzipReader& operator=(const GzipReader&) = delete;

  // Reads up to `bytes` bytes; returns fewer only at the end of the file.
  size_t read(void* target, unsigned bytes) {
    const int count = gzread(file_, target, bytes);
    int error = Z_OK;
    const char* reason = gzerror(file_, &error);
    if (count < 0 || error == Z_BUF_ERROR) {
      throw UserError(path_ + ": truncated or damaged: " + (error == Z_ERRNO ? "it cannot be read" : reason));
    }
    return static_cast<size_t>(count);
  }

 private:
  std::string path_;
  gzFile file_ = nullptr;
};

uint32_t big_endian(const uint8_t* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

// Reads the header; `dimensions` is 3 for images, 1 for labels.
IdxFile read_header(GzipReader& reader, const std::string& path, uint32_t dimensions) {
  IdxFile file{path, {}, {}};
  std::array<uint8_t, 16> header{};
  const unsigned header_bytes = 4 + 4 * dimensions;
  const uint32_t magic = 0x0800 | dimensions;
  const size_t count = reader.read(header.data(), header_bytes);
  if (count >= 4 && big_endian(header.data()) != magic) {
    throw UserError(path + ": no idx file of bytes in " + std::to_string(dimensions) +
                    " dimensions: its magic number is " + std::to_string(big_endian(header.data())) + ", must be " +
                    std::to_string(magic));
  }
  if (count < header_bytes) {
    throw UserError(path + ": truncated: " + std::to_string(count) + " bytes, but an idx header has " +
                    std::to_string(header_bytes));
  }
  for (uint32_t i = 0; i < dimensions; ++i) file.sizes.push_back(big_endian(header.data() + 4 + 4 * i));
  if (file.sizes[0] == 0) throw UserError(path + ": holds no samples");
  return file;
}

// Reads the data in pieces, so that a wrong count in the header does not allocate too much memory.
void read_body(GzipReader& reader, uint64_t bytes_per_sample, IdxFile& file) {
  constexpr uint64_t kPiece = uint64_t{1} << 24;
  const uint64_t expected = file.sizes[0] * bytes_per_sample;
  while (file.bytes.size() < expected) {
    const size_t before = file.bytes.size();
    const uint64_t wanted = std::min(kPiece, expected - before);
    file.bytes.resize(before + wanted);
    const size_t count = reader.read(file.bytes.data() + before, static_cast<unsigned>(wanted));
    if (count < wanted) {
      throw UserError(file.path + ": truncated: its header says " + std::to_string(file.sizes[0]) + " samples, " +
                      std::to_string(expected) + " bytes, but there are " + std::to_string(before + count));
    }
  }
  uint8_t more;
  if (reader.read(&more, 1) != 0) {
    throw UserError(file.path + ": too long: its header says " + std::to_string(file.sizes[0]) + " samples, " +
                    std::to_string(expected) + " bytes");
  }
}

// Returns the path of the file, plain or with .gz; "" if neither exists.
std::string find_idx(const std::string& folder, const std::string& name) {
  for (const std::string& path : {folder + "/" + name, folder + "/" + name + ".gz"}) {
    std::error_code ignored;
    if (std::filesystem::is_regular_file(path, ignored)) return path;
  }
  return "";
}

std::string require_idx(const std::string& folder, const std::string& name) {
  const std::string path = find_idx(folder, name);
  if (path.empty())
    throw UserError(folder + "/" + name + ": missing, plain or with .gz; data.path must be the folder that holds it");
  return path;
}

class IdxDataset : public Dataset {
 public:
  IdxDataset(const Recipe& recipe, Split split, const std::string& images_path, const std::string& labels_path)
      : recipe_(recipe),
        images_(read_images(images_path)),
        labels_(read_labels(labels_path)),
        table_(recipe),
        walk_(recipe, split, images_.sizes[0]) {
    set_size(recipe, images_.sizes[0], 1);
    fingerprint_ = fingerprint_of(size_, recipe.data.path, {images_path, labels_path});
  }

  uint64_t fill(uint64_t step, uint64_t micro, BatchSink& sink) override {
    const ImageShape shape = image_shape(recipe_);
    return walk_.fill(step, micro, sink, [&](uint64_t sample, const Augmentation& augmentation, auto* image) {
      const uint8_t* bytes = images_.bytes.data() + sample * shape.values();
      const auto pixel = [&](int y, int x, int) { return table_(0, bytes[y * shape.width + x]); };
      write_image(shape, augmentation, pixel, [&](int) { return table_(0, 0); }, image);
      return int32_t{labels_.bytes[sample]};
    });
  }

  double weight_in_step(uint64_t step) override {
    return walk_.order().sum_over_step(step, [&](uint64_t sample) {
      return class_weight(class_weights_, labels_.bytes[sample]);
    });
  }

 private:
  IdxFile read_images(const std::string& path) const {
    GzipReader reader(path);
    IdxFile file = read_header(reader, path, 3);
    const ImageShape shape = image_shape(recipe_);
    if (file.sizes[1] != static_cast<uint32_t>(shape.height) || file.sizes[2] != static_cast<uint32_t>(shape.width) ||
        shape.channels != 1) {
      throw UserError(path + ": its images are " + std::to_string(file.sizes[1]) + " x " +
                      std::to_string(file.sizes[2]) + " x 1, but model.image is " + std::to_string(shape.height) +
                      " x " + std::to_string(shape.width) + " x " + std::to_string(shape.channels));
    }
    read_body(reader, shape.values(), file);
    return file;
  }

  IdxFile read_labels(const std::string& path) const {
    GzipReader reader(path);
    IdxFile file = read_header(reader, path, 1);
    if (file.sizes[0] != images_.sizes[0]) {
      throw UserError(path + ": holds " + std::to_string(file.sizes[0]) + " labels, but " + images_.path + " holds " +
                      std::to_string(images_.sizes[0]) + " images");
    }
    read_body(reader, 1, file);
    for (uint64_t i = 0; i < file.bytes.size(); ++i) require_label(path, i, file.bytes[i], class_count(recipe_));
    return file;
  }

  Recipe recipe_;
  IdxFile images_, labels_;
  PixelTable table_;
  ImageWalk walk_;
  const std::vector<double> class_weights_ = describe_model(recipe_.model).class_weights;
};

}  // namespace

std::unique_ptr<Dataset> open_idx(const Recipe& recipe, Split split, DataLook* /*look*/) {
  const DataSource& data = recipe.data;
  const bool training = split == Split::kTraining;
  const std::string folder = training || data.eval_path.empty() ? data.path : data.eval_path;
  const std::string prefix = training ? "train-" : "t10k-";
  const bool optional = !training && data.eval_path.empty();
  if (optional && find_idx(folder, prefix + "images-idx3-ubyte").empty()) return nullptr;
  const std::string images_path = require_idx(folder, prefix + "images-idx3-ubyte");
  const std::string labels_path = require_idx(folder, prefix + "labels-idx1-ubyte");
  return std::make_unique<IdxDataset>(recipe, split, images_path, labels_path);
}

}  // namespace reprise
