// Tests the micro-batches of every kind of data: the samples, their values, that no heap is used,
// and that every damaged file gives one clear line. With a wrong batch a net still trains, only
// worse and without an error. The test writes its files byte by byte, so it shares no code with the
// readers.
#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <new>
#include <numeric>
#include <set>
#include <sstream>

#include "tests/interfaces/expect_user_error.h"
#include "tests/interfaces/host_sink.h"
#include "tools/run/data/check_data.h"
#include "tools/run/pictures/class_folders.h"
#include "tools/run/data/unlabelled.h"
#include "tools/run/data/dataset.h"
#include "tools/run/data/held_out.h"
#include "tools/run/data/images.h"
#include "tools/run/pictures/picture.h"
#include "tools/run/pictures/resize.h"
#include "tools/run/data/sample_order.h"
#include "tools/files/io/output_file.h"
#include "tools/files/formats/safetensors.h"

namespace {
thread_local uint64_t allocations = 0;  // counts only this thread, because a producer thread may allocate
}

// If operator new were inlined, g++ would warn that malloc does not match operator delete.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace reprise {
namespace {

namespace fs = std::filesystem;

std::string big_endian(uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16), static_cast<char>(value >> 8),
          static_cast<char>(value)};
}

// Returns pixel i of sample n; all generated image sets use it.
uint8_t pixel_of(uint64_t n, uint64_t i) { return static_cast<uint8_t>(n * 37 + i * 11 + i / 3); }

std::string idx_images(uint32_t count, uint32_t height, uint32_t width) {
  std::string text = big_endian(0x803) + big_endian(count) + big_endian(height) + big_endian(width);
  for (uint64_t n = 0; n < count; ++n) {
    for (uint64_t i = 0; i < uint64_t{height} * width; ++i) text += static_cast<char>(pixel_of(n, i));
  }
  return text;
}

std::string idx_labels(uint32_t count, uint32_t classes) {
  std::string text = big_endian(0x801) + big_endian(count);
  for (uint32_t n = 0; n < count; ++n) text += static_cast<char>(n % classes);
  return text;
}

void write_gzip(const std::string& path, const std::string& text) {
  gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
  gzclose(file);
}

void write_idx_folder(const TemporaryFolder& folder, uint32_t training, uint32_t evaluation) {
  write_file(folder.file("train-images-idx3-ubyte"), idx_images(training, 4, 5));
  write_gzip(folder.file("train-labels-idx1-ubyte.gz"), idx_labels(training, 3));
  write_gzip(folder.file("t10k-images-idx3-ubyte.gz"), idx_images(evaluation, 4, 5));
  write_file(folder.file("t10k-labels-idx1-ubyte"), idx_labels(evaluation, 3));
}

Recipe image_recipe(DataSource::Kind kind, const std::string& path, int height, int width, int channels, int batch) {
  ResNetModel model;
  model.image_height = height;
  model.image_width = width;
  model.image_channels = channels;
  model.classes = 3;
  Recipe recipe;
  recipe.name = "test";
  recipe.model = model;
  recipe.batch = batch;
  recipe.data.kind = kind;
  recipe.data.path = path;
  recipe.data.shuffle = false;
  return recipe;
}

Recipe text_recipe(DataSource::Kind kind, const std::string& path, int vocabulary, int sequence, int batch) {
  Gpt2Model model;
  model.vocab_size = vocabulary;
  Recipe recipe;
  recipe.name = "test";
  recipe.model = model;
  recipe.batch = batch;
  recipe.sequence = sequence;
  recipe.data.kind = kind;
  recipe.data.path = path;
  recipe.data.shuffle = false;
  return recipe;
}

struct ImageBatch {
  std::vector<float> images;
  std::vector<int32_t> labels;
  uint64_t real = 0;
  bool operator==(const ImageBatch&) const = default;
};

ImageBatch fill_images_of(Dataset& dataset, const Recipe& recipe, uint64_t step, uint64_t micro) {
  const size_t batch = static_cast<size_t>(recipe.batch);
  ImageBatch result{std::vector<float>(batch * image_shape(recipe).values(), -9.0f), std::vector<int32_t>(batch, -9),
                    0};
  BatchSink sink = host_sink(result.images.data(), result.images.size() * sizeof(float), result.labels.data(), batch);
  result.real = dataset.fill(step, micro, sink);
  EXPECT_TRUE(sink.status().ok()) << sink.status().message;
  return result;
}

struct TokenBatch {
  std::vector<int32_t> tokens, labels;
  uint64_t real = 0;
  bool operator==(const TokenBatch&) const = default;
};

TokenBatch fill_tokens_of(Dataset& dataset, const Recipe& recipe, uint64_t step, uint64_t micro) {
  const size_t count = static_cast<size_t>(recipe.batch) * static_cast<size_t>(recipe.sequence);
  TokenBatch result{std::vector<int32_t>(count, -9), std::vector<int32_t>(count, -9), 0};
  BatchSink sink = host_sink(result.tokens.data(), count * sizeof(int32_t), result.labels.data(), count);
  result.real = dataset.fill(step, micro, sink);
  EXPECT_TRUE(sink.status().ok()) << sink.status().message;
  return result;
}

TEST(Permutation, IsOneForEverySize) {
  std::vector<uint64_t> sizes(70);
  std::iota(sizes.begin(), sizes.end(), uint64_t{1});
  for (const uint64_t more : {255, 256, 257, 1000, 4096, 4097, 60000}) sizes.push_back(more);
  for (const uint64_t size : sizes) {
    for (const uint64_t epoch : {0, 1}) {
      std::vector<bool> seen(size, false);
      for (uint64_t i = 0; i < size; ++i) {
        const uint64_t n = permuted(i, size, 42, epoch);
        ASSERT_LT(n, size);
        ASSERT_FALSE(seen[n]) << "size " << size << " index " << i;
        seen[n] = true;
      }
    }
  }
}

TEST(Permutation, MixesAndDependsOnSeedAndEpoch) {
  constexpr uint64_t kSize = 10000;
  uint64_t fixed = 0, same_seed = 0, same_epoch = 0, neighbours = 0;
  double distance = 0;
  for (uint64_t i = 0; i < kSize; ++i) {
    const uint64_t n = permuted(i, kSize, 1, 0);
    fixed += n == i;
    same_epoch += n == permuted(i, kSize, 2, 0);
    same_seed += n == permuted(i, kSize, 1, 1);
    neighbours +=
        i > 0 && std::llabs(static_cast<long long>(n) - static_cast<long long>(permuted(i - 1, kSize, 1, 0))) == 1;
    distance += std::fabs(double(n) - double(i)) / kSize;
  }
  EXPECT_LT(fixed, 10u);  // a random permutation has one fixed point on average
  EXPECT_LT(same_seed, 10u);
  EXPECT_LT(same_epoch, 10u);
  EXPECT_LT(neighbours, 15u);
  EXPECT_NEAR(distance / kSize, 1.0 / 3, 0.02);
}

TEST(SampleOrder, UnshuffledIsTheFormulaOfTheDesign) {
  Recipe recipe = image_recipe(DataSource::Kind::kSynthetic, "", 4, 4, 1, 3);
  recipe.accumulate = 2;
  const SampleOrder order(recipe, Split::kTraining, 7);
  for (uint64_t s = 0; s < 9; ++s) {
    for (uint64_t u = 0; u < 2; ++u) {
      for (uint64_t b = 0; b < 3; ++b) EXPECT_EQ(order.sample_at(s, u, b), ((s * 2 + u) * 3 + b) % 7);
    }
  }
}

TEST(SampleOrder, EachShuffledEpochHasEverySampleOnce) {
  Recipe recipe = image_recipe(DataSource::Kind::kSynthetic, "", 4, 4, 1, 4);
  recipe.accumulate = 3;
  recipe.data.shuffle = true;
  constexpr uint64_t kSize = 31;
  const SampleOrder order(recipe, Split::kTraining, kSize);
  std::vector<std::vector<uint64_t>> epochs(1);
  for (uint64_t s = 0; s < 20; ++s) {
    for (uint64_t u = 0; u < 3; ++u) {
      for (uint64_t b = 0; b < 4; ++b) {
        if (epochs.back().size() == kSize) epochs.emplace_back();
        epochs.back().push_back(*order.sample_at(s, u, b));
      }
    }
  }
  epochs.pop_back();  // the last epoch is not complete
  ASSERT_GE(epochs.size(), 3u);
  EXPECT_NE(epochs[0], epochs[1]);
  for (const auto& epoch : epochs) EXPECT_EQ(std::set<uint64_t>(epoch.begin(), epoch.end()).size(), kSize);
}

TEST(Idx, ValuesLabelsAndOrder) {
  TemporaryFolder folder;
  write_idx_folder(folder, 7, 5);
  Recipe recipe = image_recipe(DataSource::Kind::kIdx, folder.path(), 4, 5, 1, 3);
  recipe.accumulate = 2;
  recipe.data.mean = {0.25};
  recipe.data.std = {0.5};
  const auto dataset = open_dataset(recipe, Split::kTraining);
  EXPECT_EQ(dataset->size(), 7u);
  for (uint64_t s = 0; s < 4; ++s) {
    for (uint64_t u = 0; u < 2; ++u) {
      const ImageBatch batch = fill_images_of(*dataset, recipe, s, u);
      EXPECT_EQ(batch.real, 3u);
      for (uint64_t b = 0; b < 3; ++b) {
        const uint64_t n = ((s * 2 + u) * 3 + b) % 7;
        EXPECT_EQ(batch.labels[b], static_cast<int32_t>(n % 3));
        for (uint64_t i = 0; i < 20; ++i)
          ASSERT_FLOAT_EQ(batch.images[b * 20 + i], (float(pixel_of(n, i)) / 255 - 0.25f) / 0.5f);
      }
    }
  }
}

TEST(Idx, EvaluationEndsWithEmptyPlaces) {
  TemporaryFolder folder;
  write_idx_folder(folder, 7, 5);
  Recipe recipe = image_recipe(DataSource::Kind::kIdx, folder.path(), 4, 5, 1, 3);
  recipe.data.shuffle = recipe.data.flip = true;  // neither affects the evaluation
  const auto dataset = open_dataset(recipe, Split::kEvaluation);
  ASSERT_NE(dataset, nullptr);
  EXPECT_EQ(dataset->size(), 5u);
  EXPECT_EQ(dataset->micro_batches(), 2u);
  EXPECT_EQ(fill_images_of(*dataset, recipe, 0, 0).labels, (std::vector<int32_t>{0, 1, 2}));
  const ImageBatch last = fill_images_of(*dataset, recipe, 1, 0);
  EXPECT_EQ(last.real, 2u);
  EXPECT_EQ(last.labels, (std::vector<int32_t>{0, 1, kIgnoredLabel}));
  EXPECT_FLOAT_EQ(last.images[20], float(pixel_of(4, 0)) / 255);
  EXPECT_EQ(std::count(last.images.begin() + 40, last.images.end(), 0.0f), 20);

  fs::remove(folder.file("t10k-images-idx3-ubyte.gz"));
  EXPECT_EQ(open_dataset(recipe, Split::kEvaluation), nullptr);
  recipe.data.eval_path = folder.path();
  expect_user_error([&] { open_dataset(recipe, Split::kEvaluation); }, {"t10k-images-idx3-ubyte", "missing"});
}

TEST(Idx, FashionMnistAsDebianShipsIt) {
  const std::string folder = "/usr/share/datasets/fashion-mnist";
  if (!fs::exists(folder)) GTEST_SKIP() << "dataset-fashion-mnist is not installed";
  Recipe recipe = image_recipe(DataSource::Kind::kIdx, folder, 28, 28, 1, 16);
  std::get<ResNetModel>(recipe.model).classes = 10;
  EXPECT_EQ(open_dataset(recipe, Split::kTraining)->size(), 60000u);
  const auto evaluation = open_dataset(recipe, Split::kEvaluation);
  EXPECT_EQ(evaluation->size(), 10000u);
  EXPECT_EQ(fill_images_of(*evaluation, recipe, 0, 0).labels[0], 9);  // Fashion-MNIST: an ankle boot
}

TEST(Idx, DamageIsRefusedInOneLine) {
  const std::string images = "train-images-idx3-ubyte", labels = "train-labels-idx1-ubyte";
  const auto refused = [&](const char* id, std::initializer_list<std::string> fragments, const auto& damage) {
    SCOPED_TRACE(id);
    TemporaryFolder folder;
    write_file(folder.file(images), idx_images(7, 4, 5));
    write_file(folder.file(labels), idx_labels(7, 3));
    Recipe recipe = image_recipe(DataSource::Kind::kIdx, folder.path(), 4, 5, 1, 3);
    open_dataset(recipe, Split::kTraining);
    damage(folder, recipe);
    expect_user_error([&] { open_dataset(recipe, Split::kTraining); }, fragments);
  };
  using Folder = const TemporaryFolder&;
  refused("no folder", {"/nowhere/train-images-idx3-ubyte", "missing", ".gz"},
          [](Folder, Recipe& r) { r.data.path = "/nowhere"; });
  refused("no labels", {labels, "missing"}, [&](Folder f, Recipe&) { fs::remove(f.file(labels)); });
  refused("empty", {images, "truncated", "0 bytes"}, [&](Folder f, Recipe&) { write_file(f.file(images), ""); });
  refused("short header", {images, "truncated", "10 bytes"},
          [&](Folder f, Recipe&) { write_file(f.file(images), idx_images(7, 4, 5).substr(0, 10)); });
  refused("magic", {images, "magic", "2051"},
          [&](Folder f, Recipe&) { write_file(f.file(images), idx_labels(7, 3) + "123456789"); });
  refused("truncated", {images, "truncated", "7 samples", "139"}, [&](Folder f, Recipe&) {
    const std::string text = idx_images(7, 4, 5);
    write_file(f.file(images), text.substr(0, text.size() - 1));
  });
  refused("too long", {images, "too long", "140 bytes"},
          [&](Folder f, Recipe&) { write_file(f.file(images), idx_images(7, 4, 5) + "x"); });
  refused("count lies", {images, "truncated", "4294967295"}, [&](Folder f, Recipe&) {
    write_file(f.file(images), big_endian(0x803) + big_endian(~0u) + big_endian(4) + big_endian(5));
  });
  refused("no samples", {images, "no samples"},
          [&](Folder f, Recipe&) { write_file(f.file(images), idx_images(0, 4, 5)); });
  refused("image size", {images, "4 x 5 x 1", "model.image is 5 x 4 x 1"}, [](Folder, Recipe& r) {
    std::get<ResNetModel>(r.model).image_height = 5;
    std::get<ResNetModel>(r.model).image_width = 4;
  });
  refused("channels", {images, "4 x 5 x 1", "4 x 5 x 3"},
          [](Folder, Recipe& r) { std::get<ResNetModel>(r.model).image_channels = 3; });
  refused("counts differ", {labels, "6 labels", "7 images"},
          [&](Folder f, Recipe&) { write_file(f.file(labels), idx_labels(6, 3)); });
  refused("label out of range", {labels, "sample 3 is 3", "from 0 to 2", "model.classes is 3"},
          [&](Folder f, Recipe&) { write_file(f.file(labels), idx_labels(7, 4)); });
  refused("gzip truncated", {images + ".gz", "truncated"}, [&](Folder f, Recipe&) {
    fs::remove(f.file(images));
    write_gzip(f.file(images + ".gz"), idx_images(7, 4, 5));
    const std::string text = read_file(f.file(images + ".gz"));
    write_file(f.file(images + ".gz"), text.substr(0, text.size() / 2));
  });
  refused("gzip damaged", {images + ".gz", "damaged"}, [&](Folder f, Recipe&) {
    fs::remove(f.file(images));
    write_gzip(f.file(images + ".gz"), idx_images(7, 4, 5));
    std::string text = read_file(f.file(images + ".gz"));
    text[text.size() - 5] = static_cast<char>(~text[text.size() - 5]);  // changes a byte of the checksum
    write_file(f.file(images + ".gz"), text);
  });
}

// A position of the random crop, in pixels from the image's corner, and whether the image is
// mirrored. Pixels outside the image are shown as the value `outside` of matching_windows().
struct Window {
  bool flip;
  int down, right;
  bool operator<(const Window& other) const {
    return std::tie(flip, down, right) < std::tie(other.flip, other.down, other.right);
  }
};

std::vector<Window> matching_windows(const float* shown, uint64_t n, int height, int width, int crop, float outside) {
  std::vector<Window> found;
  for (const bool flip : {false, true}) {
    for (int down = -crop; down <= crop; ++down) {
      for (int right = -crop; right <= crop; ++right) {
        bool equal = true;
        for (int y = 0; y < height && equal; ++y) {
          for (int x = 0; x < width && equal; ++x) {
            const int row = y + down, column = (flip ? width - 1 - x : x) + right;
            const bool inside = row >= 0 && row < height && column >= 0 && column < width;
            const float expected =
                inside ? (float(pixel_of(n, static_cast<uint64_t>(row * width + column))) / 255 - 0.5f) / 0.25f
                       : outside;
            equal = shown[y * width + x] == expected;
          }
        }
        if (equal) found.push_back({flip, down, right});
      }
    }
  }
  return found;
}

TEST(Augmentation, EveryWindowComesUpAndNothingElse) {
  TemporaryFolder folder;
  write_idx_folder(folder, 7, 5);
  Recipe recipe = image_recipe(DataSource::Kind::kIdx, folder.path(), 4, 5, 1, 4);
  recipe.data.mean = {0.5};
  recipe.data.std = {0.25};
  recipe.data.flip = true;
  recipe.data.crop = 1;
  recipe.accumulate = 2;
  const auto dataset = open_dataset(recipe, Split::kTraining);
  std::set<Window> windows;
  int flips = 0, samples = 0;
  for (uint64_t s = 0; s < 100; ++s) {
    for (uint64_t u = 0; u < 2; ++u) {
      const ImageBatch batch = fill_images_of(*dataset, recipe, s, u);
      for (uint64_t b = 0; b < 4; ++b, ++samples) {
        const auto found = matching_windows(&batch.images[b * 20], ((s * 2 + u) * 4 + b) % 7, 4, 5, 1, -2.0f);
        ASSERT_EQ(found.size(), 1u) << "step " << s << " micro " << u << " place " << b;
        windows.insert(found[0]);
        flips += found[0].flip;
      }
    }
  }
  EXPECT_EQ(windows.size(), 18u);
  EXPECT_NEAR(double(flips) / samples, 0.5, 0.06);  // 0.06 is 3.4 standard deviations
}

TEST(Dataset, APositionGivesTheSameBatchInAFreshProcess) {
  TemporaryFolder folder;
  write_idx_folder(folder, 50, 5);
  Recipe recipe = image_recipe(DataSource::Kind::kIdx, folder.path(), 4, 5, 1, 4);
  recipe.data.shuffle = recipe.data.flip = true;
  recipe.data.crop = 2;
  recipe.accumulate = 2;
  const auto first = open_dataset(recipe, Split::kTraining);
  std::vector<ImageBatch> batches;
  for (uint64_t s = 0; s < 20; ++s) {
    for (uint64_t u = 0; u < 2; ++u) batches.push_back(fill_images_of(*first, recipe, s, u));
  }
  const auto resumed = open_dataset(recipe, Split::kTraining);
  EXPECT_TRUE(fill_images_of(*resumed, recipe, 13, 1) == batches[27]);
  EXPECT_TRUE(fill_images_of(*resumed, recipe, 2, 0) == batches[4]);
  EXPECT_FALSE(batches[4] == batches[5]);
  recipe.seed = 1;
  EXPECT_FALSE(fill_images_of(*open_dataset(recipe, Split::kTraining), recipe, 2, 0) == batches[4]);
}

void write_tensors(const std::string& path, const std::vector<uint64_t>& image_shape_nchw,
                   std::vector<int64_t> labels) {
  SafetensorsWriter writer(path);
  writer.declare("odd", StoredType::kU8, {3});  // misaligns the floats after it
  writer.declare("images", StoredType::kF32, image_shape_nchw);
  writer.declare("labels", StoredType::kI64, {labels.size()});
  writer.write("abc", 3);
  const uint64_t values =
      std::accumulate(image_shape_nchw.begin(), image_shape_nchw.end(), uint64_t{1}, std::multiplies<>());
  for (uint64_t i = 0; i < values; ++i) {
    const float value = static_cast<float>(i) - 7;
    writer.write(&value, sizeof value);
  }
  writer.write(labels.data(), labels.size() * sizeof(int64_t));
  writer.finish();
}

TEST(Tensors, PlanesBecomePixels) {
  TemporaryFolder folder;
  write_tensors(folder.file("t"), {3, 2, 4, 5}, {2, 0, 1});
  const Recipe recipe = image_recipe(DataSource::Kind::kTensors, folder.file("t"), 4, 5, 2, 2);
  const auto dataset = open_dataset(recipe, Split::kTraining);
  EXPECT_EQ(open_dataset(recipe, Split::kEvaluation), nullptr);
  const ImageBatch batch = fill_images_of(*dataset, recipe, 1, 0);  // samples 2 and 0
  EXPECT_EQ(batch.labels, (std::vector<int32_t>{1, 2}));
  for (size_t y = 0; y < 4; ++y) {
    for (size_t x = 0; x < 5; ++x) {
      for (size_t c = 0; c < 2; ++c) {
        EXPECT_EQ(batch.images[(y * 5 + x) * 2 + c], float(((2 * 2 + c) * 4 + y) * 5 + x) - 7);
        EXPECT_EQ(batch.images[40 + (y * 5 + x) * 2 + c], float((c * 4 + y) * 5 + x) - 7);
      }
    }
  }
}

TEST(Tensors, DamageIsRefusedInOneLine) {
  TemporaryFolder folder;
  const std::string path = folder.file("t");
  const Recipe recipe = image_recipe(DataSource::Kind::kTensors, path, 4, 5, 2, 2);
  const auto refused = [&](std::initializer_list<std::string> fragments) {
    expect_user_error([&] { open_dataset(recipe, Split::kTraining); }, fragments);
  };
  refused({path, "No such file"});
  write_tensors(path, {3, 4, 5, 2}, {0, 1, 2});
  refused({path, "\"images\"", "is F32 [3,4,5,2]", "must be F32 [3,2,4,5]"});
  write_tensors(path, {3, 2, 4, 5}, {0, 1});
  refused({path, "\"labels\"", "is I64 [2]", "must be I64 [3]"});
  write_tensors(path, {3, 2, 4, 5}, {0, 1, 3});
  refused({path, "sample 2 is 3", "from 0 to 2"});
  write_tensors(path, {3, 2, 4, 5}, {0, -1, 2});
  refused({path, "sample 1 is -1", "from 0 to 2"});
  write_tensors(path, {0, 2, 4, 5}, {});
  refused({path, "\"images\"", "no samples"});
  SafetensorsWriter(path).finish();
  refused({path, "\"images\"", "missing", "(N, C, H, W)"});
  // The tensor has no bytes, and so many samples that the number of label bytes would overflow to
  // 0.
  SafetensorsWriter wide(path);
  wide.declare("images", StoredType::kU8, {uint64_t{1} << 62, 0});
  wide.finish();
  refused({path, "\"images\"", "no samples"});
}

std::string tokens_of(const std::vector<uint32_t>& tokens, int bytes) {
  std::string text;
  for (const uint32_t token : tokens) {
    for (int i = 0; i < bytes; ++i) text += static_cast<char>(token >> (8 * i));
  }
  return text;
}

TEST(Tokens, WindowsShareOneToken) {
  TemporaryFolder folder;
  std::vector<uint32_t> tokens;
  for (uint32_t i = 0; i < 13; ++i) tokens.push_back(i * 5000 + 3);
  for (const int bytes : {2, 4}) {
    write_file(folder.file("t"), tokens_of(tokens, bytes));
    Recipe recipe = text_recipe(DataSource::Kind::kTokens, folder.file("t"), 65000, 4, 2);
    recipe.data.token_bytes = bytes;
    recipe.data.eval_path = folder.file("t");
    const auto dataset = open_dataset(recipe, Split::kTraining);
    EXPECT_EQ(dataset->size(), 3u);
    const auto token = [&](uint64_t i) { return static_cast<int32_t>(tokens[i]); };
    for (uint64_t s = 0; s < 3; ++s) {
      const TokenBatch batch = fill_tokens_of(*dataset, recipe, s, 0);
      EXPECT_EQ(batch.real, 2u);
      for (uint64_t b = 0; b < 2; ++b) {
        const uint64_t n = (s * 2 + b) % 3;
        for (uint64_t t = 0; t < 4; ++t) {
          EXPECT_EQ(batch.tokens[b * 4 + t], token(n * 4 + t));
          EXPECT_EQ(batch.labels[b * 4 + t], token(n * 4 + t + 1));
        }
      }
    }
    const TokenBatch last = fill_tokens_of(*open_dataset(recipe, Split::kEvaluation), recipe, 1, 0);
    EXPECT_EQ(last.real, 1u);
    EXPECT_EQ(last.labels[3], token(12));
    EXPECT_EQ(std::count(last.labels.begin(), last.labels.end(), kIgnoredLabel), 4);
  }
}

TEST(Tokens, DamageIsRefusedInOneLine) {
  TemporaryFolder folder;
  const std::string path = folder.file("t");
  Recipe recipe = text_recipe(DataSource::Kind::kTokens, path, 100, 4, 2);
  const auto refused = [&](std::initializer_list<std::string> fragments) {
    expect_user_error([&] { open_dataset(recipe, Split::kTraining); }, fragments);
  };
  refused({path, "No such file"});
  write_file(path, "");
  refused({path, "too short", "0 tokens", "needs 5"});
  write_file(path, tokens_of({1, 2, 3, 4}, 2));
  refused({path, "too short", "4 tokens", "needs 5"});
  write_file(path, tokens_of({1, 2, 3, 4, 5}, 2) + "x");
  refused({path, "truncated", "11 bytes", "token_bytes (2)"});
  // Token 7 is after the last sample, so no sample reads it. It must still be refused.
  write_file(path, tokens_of({1, 2, 3, 4, 5, 6, 7, 100}, 2));
  refused({path, "token 7 is 100", "from 0 to 99", "vocab_size is 100"});
  recipe.data.token_bytes = 4;
  write_file(path, tokens_of({1, 2, 0xffffffffu, 4, 5}, 4));
  refused({path, "token 2 is 4294967295", "from 0 to 99"});
  recipe.data.path = folder.path();
  refused({folder.path(), "regular file"});
}

TEST(Text, BytesAreTokens) {
  TemporaryFolder folder;
  write_file(folder.file("t"), "hello, w\xc3\xb6rld");
  Recipe recipe = text_recipe(DataSource::Kind::kText, folder.file("t"), 256, 6, 1);
  const auto dataset = open_dataset(recipe, Split::kTraining);
  EXPECT_EQ(dataset->size(), 2u);
  EXPECT_EQ(open_dataset(recipe, Split::kEvaluation), nullptr);
  EXPECT_EQ(fill_tokens_of(*dataset, recipe, 0, 0).tokens, (std::vector<int32_t>{'h', 'e', 'l', 'l', 'o', ','}));
  EXPECT_EQ(fill_tokens_of(*dataset, recipe, 1, 0).tokens, (std::vector<int32_t>{' ', 'w', 0xc3, 0xb6, 'r', 'l'}));
  EXPECT_EQ(fill_tokens_of(*dataset, recipe, 1, 0).labels, (std::vector<int32_t>{'w', 0xc3, 0xb6, 'r', 'l', 'd'}));
  std::get<Gpt2Model>(recipe.model).vocab_size = 128;
  expect_user_error([&] { open_dataset(recipe, Split::kTraining); },
                    {folder.file("t"), "token 8 is 195", "from 0 to 127"});
}

// Compares with a direct rule: one sample of each stretch is held out. Stretch k begins at sample k
// / share, rounded down.
TEST(HeldOut, IsOneSampleInEveryStretch) {
  for (const double share : {0.5, 0.4, 0.3, 0.1, 0.05, 0.0123}) {
    SCOPED_TRACE(share);
    const HeldOut held(share, 17), other(share, 18);
    std::vector<uint64_t> kept, rest;
    uint64_t differ = 0;
    for (uint64_t sample = 0; sample < 3000; ++sample) {
      (held.holds(sample) ? kept : rest).push_back(sample);
      differ += held.holds(sample) != other.holds(sample);
      ASSERT_EQ(held.kept_among(sample + 1), kept.size());
    }
    for (size_t i = 0; i < kept.size(); ++i) {
      ASSERT_EQ(held.held_sample(i), kept[i]);
      ASSERT_GE(kept[i], static_cast<uint64_t>(static_cast<double>(i) / share));
      ASSERT_LT(kept[i], static_cast<uint64_t>(static_cast<double>(i + 1) / share));
    }
    for (size_t i = 0; i < rest.size(); ++i) ASSERT_EQ(held.other_sample(i), rest[i]);
    EXPECT_NEAR(static_cast<double>(kept.size()), 3000 * share, 1);
    EXPECT_GT(differ, kept.size() / 2) << "the seed draws them";
  }
}

TEST(HeldOut, WindowsOfTokensAreTrainedOnOrEvaluated) {
  TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 4 * 50 + 1; ++i) text += static_cast<char>(i);
  write_file(folder.file("t"), text);
  Recipe recipe = text_recipe(DataSource::Kind::kText, folder.file("t"), 256, 4, 1);
  recipe.data.held_out = 0.2;
  std::set<int32_t> seen;
  for (const auto& [split, size] : {std::pair{Split::kTraining, 40u}, {Split::kEvaluation, 10u}}) {
    const auto dataset = open_dataset(recipe, split);
    ASSERT_EQ(dataset->size(), size);
    for (uint64_t step = 0; step < size; ++step) {
      const TokenBatch batch = fill_tokens_of(*dataset, recipe, step, 0);
      EXPECT_EQ(batch.tokens[0] % 4, 0);
      EXPECT_EQ(batch.labels[3], batch.tokens[0] + 4);
      EXPECT_TRUE(seen.insert(batch.tokens[0]).second) << "in both parts";
    }
  }
  EXPECT_EQ(seen.size(), 50u);
  write_file(folder.file("t"), "hello");
  expect_user_error([&] { open_dataset(recipe, Split::kTraining), open_dataset(recipe, Split::kEvaluation); },
                    {folder.file("t"), "data.held_out", "0.2 of 1 samples"});
}

TEST(Synthetic, ImagesShowTheirClass) {
  Recipe recipe = image_recipe(DataSource::Kind::kSynthetic, "", 8, 8, 3, 64);
  recipe.data.shuffle = true;
  const auto dataset = open_dataset(recipe, Split::kTraining), evaluation = open_dataset(recipe, Split::kEvaluation);
  const ImageBatch batch = fill_images_of(*dataset, recipe, 5, 0);
  EXPECT_TRUE(fill_images_of(*open_dataset(recipe, Split::kTraining), recipe, 5, 0) == batch);
  EXPECT_FALSE(fill_images_of(*dataset, recipe, 6, 0) == batch);
  EXPECT_FALSE(fill_images_of(*evaluation, recipe, 5, 0) == batch);
  EXPECT_EQ(std::set<int32_t>(batch.labels.begin(), batch.labels.end()), (std::set<int32_t>{0, 1, 2}));
  for (const float value : batch.images) ASSERT_TRUE(value >= 0 && value < 1);
  // Images of one class must be closer to each other than to images of another class.
  double distance[2] = {0, 0}, pairs[2] = {0, 0};
  for (size_t a = 0; a < 64; ++a) {
    for (size_t b = 0; b < a; ++b) {
      const bool same = batch.labels[a] == batch.labels[b];
      for (size_t i = 0; i < 192; ++i)
        distance[same] += std::pow(batch.images[a * 192 + i] - batch.images[b * 192 + i], 2);
      pairs[same] += 192;
    }
  }
  EXPECT_LT(distance[1] / pairs[1], 0.75 * distance[0] / pairs[0]);
}

TEST(Synthetic, TokensFollowEachOther) {
  const Recipe recipe = text_recipe(DataSource::Kind::kSynthetic, "", 50, 16, 4);
  const auto dataset = open_dataset(recipe, Split::kTraining);
  const TokenBatch batch = fill_tokens_of(*dataset, recipe, 3, 0);
  EXPECT_TRUE(fill_tokens_of(*open_dataset(recipe, Split::kTraining), recipe, 3, 0) == batch);
  for (size_t i = 0; i < 64; ++i) {
    EXPECT_TRUE(batch.tokens[i] >= 0 && batch.tokens[i] < 50);
    if (i % 16 != 15) {
      EXPECT_EQ(batch.labels[i], batch.tokens[i + 1]);
    }
  }
}

void write_ppm(const std::string& path, int height, int width, uint64_t n) {
  std::string text = "P6\n" + std::to_string(width) + " " + std::to_string(height) + "\n255\n";
  for (uint64_t i = 0; i < static_cast<uint64_t>(height * width * 3); ++i) text += static_cast<char>(pixel_of(n, i));
  write_file(path, text);
}

// Writes two classes with five images. In sorted order samples 0, 1 and 2 are "bird", and 3 and 4
// are "cat".
void write_image_folder(const TemporaryFolder& folder) {
  for (const char* name : {"cat", "bird"}) fs::create_directories(folder.file(name));
  uint64_t n = 0;
  for (const char* name : {"bird/a.ppm", "bird/b.PPM", "bird/c.ppm", "cat/a.ppm", "cat/b.ppm"})
    write_ppm(folder.file(name), 4, 5, n++);
  write_file(folder.file("bird/notes.txt"), "no image");
  write_file(folder.file("readme"), "no class");
}

TEST(ImageFolder, DecodesInOrderAheadAndAnywhere) {
  TemporaryFolder folder;
  write_image_folder(folder);
  Recipe recipe = image_recipe(DataSource::Kind::kImageFolder, folder.path(), 4, 5, 3, 2);
  recipe.accumulate = 2;
  recipe.data.mean = {0.1, 0.2, 0.3};
  recipe.data.eval_path = folder.path();
  const auto dataset = open_dataset(recipe, Split::kTraining);
  EXPECT_EQ(dataset->size(), 5u);
  const std::vector<std::pair<uint64_t, uint64_t>> positions = {{0, 0}, {0, 1}, {1, 0}, {1, 1}, {2, 0}, {2, 1},
                                                                {3, 0}, {7, 1}, {8, 0}, {0, 1}, {0, 0}, {0, 0}};
  for (const auto& [s, u] : positions) {
    const ImageBatch batch = fill_images_of(*dataset, recipe, s, u);
    for (uint64_t b = 0; b < 2; ++b) {
      const uint64_t n = ((s * 2 + u) * 2 + b) % 5;
      EXPECT_EQ(batch.labels[b], n < 3 ? 0 : 1);
      for (uint64_t i = 0; i < 60; ++i) {
        ASSERT_FLOAT_EQ(batch.images[b * 60 + i],
                        float(pixel_of(n, i)) / 255 - static_cast<float>(0.1 * double(i % 3 + 1)))
            << s << " " << u;
      }
    }
  }
  const auto evaluation = open_dataset(recipe, Split::kEvaluation);
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(fill_images_of(*evaluation, recipe, 0, 0).labels, (std::vector<int32_t>{0, 0}));
    EXPECT_EQ(fill_images_of(*evaluation, recipe, 1, 0).labels, (std::vector<int32_t>{0, 1}));
    EXPECT_EQ(fill_images_of(*evaluation, recipe, 2, 0).labels, (std::vector<int32_t>{1, kIgnoredLabel}));
  }
}

TEST(ImageFolder, DamageIsRefusedInOneLine) {
  TemporaryFolder folder;
  Recipe recipe = image_recipe(DataSource::Kind::kImageFolder, folder.path(), 4, 5, 3, 5);
  const auto refused = [&](std::initializer_list<std::string> fragments) {
    expect_user_error([&] { open_dataset(recipe, Split::kTraining); }, fragments);
  };
  refused({folder.path(), "sub-folder"});
  fs::create_directories(folder.file("cat"));
  refused({folder.path(), "no images", ".png"});
  write_image_folder(folder);
  for (const char* name : {"dog", "emu"}) fs::create_directories(folder.file(name));
  refused({folder.path(), "4 sub-folders", "model.classes is 3"});
  fs::remove(folder.file("emu"));
  write_file(folder.file("dog/broken.png"), "not a picture");
  recipe.batch = 6;
  const auto dataset = open_dataset(recipe, Split::kTraining);
  expect_user_error([&] { fill_images_of(*dataset, recipe, 0, 0); },
                    {folder.file("dog/broken.png"), "cannot be decoded"});
  recipe.data.path = "/nowhere";
  refused({"/nowhere", "cannot be listed"});
  TemporaryFolder other;
  fs::create_directories(other.file("zebra"));
  recipe.data.path = folder.path();
  recipe.data.eval_path = other.path();
  expect_user_error([&] { open_dataset(recipe, Split::kEvaluation); },
                    {other.path() + ": has 1 folder that is no class of the training set " + folder.path() +
                     ": zebra"});
}

// Returns what stderr receives during `call`.
template <typename Call>
std::string warnings_of(const Call& call) {
  testing::internal::CaptureStderr();
  call();
  return testing::internal::GetCapturedStderr();
}

// Damages samples 1, 3 and 4 of write_image_folder, each in a different way.
void break_pictures(const TemporaryFolder& folder) {
  write_file(folder.file("bird/b.PPM"), "not a picture");
  write_file(folder.file("cat/a.ppm"), "");
  const std::string whole = read_file(folder.file("cat/b.ppm"));
  write_file(folder.file("cat/b.ppm"), whole.substr(0, whole.size() - 1));
}

TEST(ImageFolder, ABrokenPictureIsRefusedByItsName) {
  for (const char* name : {"bird/b.PPM", "cat/a.ppm", "cat/b.ppm"}) {
    TemporaryFolder folder;
    write_image_folder(folder);
    break_pictures(folder);
    for (const char* other : {"bird/b.PPM", "cat/a.ppm", "cat/b.ppm"}) {
      if (std::string(other) != name) write_ppm(folder.file(other), 4, 5, 1);
    }
    const Recipe recipe = image_recipe(DataSource::Kind::kImageFolder, folder.path(), 4, 5, 3, 5);
    expect_user_error([&] { fill_images_of(*open_dataset(recipe, Split::kTraining), recipe, 0, 0); },
                      {folder.file(name), "cannot be decoded"});
  }
}

// Tests PPM and PGM, with comments and with 16 bits, and BMP. A complete file must be accepted, and
// a file without its last byte must be refused.
TEST(ImageFolder, UncompressedPicturesAreReadToTheirLastByte) {
  const std::string pixels(60, 'x');
  std::string bmp = "BM" + std::string(52, '\0') + std::string(4 * 16, 'x');  // 5 x 4, 24 bits, rows of 16 bytes
  bmp[2] = static_cast<char>(bmp.size());
  bmp[10] = 54, bmp[14] = 40, bmp[18] = 5, bmp[22] = 4, bmp[26] = 1, bmp[28] = 24;
  const std::string comments = "P6\n# made by hand\n5 4\n# and so on\n255\n" + pixels,
                    words = "P6 5 4 65535\n" + pixels + pixels;
  for (const std::string& whole : {comments, words, "P5 5 4 255 " + pixels.substr(40), bmp}) {
    SCOPED_TRACE(whole.substr(0, 10));
    TemporaryFolder folder;
    fs::create_directories(folder.file("a"));
    const Recipe recipe = image_recipe(DataSource::Kind::kImageFolder, folder.path(), 4, 5, 3, 1);
    write_file(folder.file("a/a.ppm"), whole);
    EXPECT_EQ(fill_images_of(*open_dataset(recipe, Split::kTraining), recipe, 0, 0).real, 1u);
    write_file(folder.file("a/a.ppm"), whole.substr(0, whole.size() - 1));
    expect_user_error([&] { fill_images_of(*open_dataset(recipe, Split::kTraining), recipe, 0, 0); },
                      {"a/a.ppm", "cannot be decoded", "ends before"});
  }
}

// In training, the next undamaged picture replaces a damaged picture, also if the run begins at the
// damaged one. In evaluation, the row of a damaged picture has no label.
TEST(ImageFolder, BrokenPicturesAreSkipped) {
  TemporaryFolder folder;
  write_image_folder(folder);
  break_pictures(folder);
  Recipe recipe = image_recipe(DataSource::Kind::kImageFolder, folder.path(), 4, 5, 3, 2);
  recipe.data.broken = DataSource::Broken::kSkip;
  recipe.data.eval_path = folder.path();
  const auto dataset = open_dataset(recipe, Split::kTraining), evaluation = open_dataset(recipe, Split::kEvaluation);
  EXPECT_EQ(dataset->size(), 5u);
  std::vector<ImageBatch> batches;
  const auto shows = [&](uint64_t s, uint64_t b, uint64_t n) {
    uint64_t same = 0;
    for (uint64_t i = 0; i < 60; ++i)
      same += std::abs(batches[s].images[b * 60 + i] - float(pixel_of(n, i)) / 255) < 1e-6f;
    return same == 60;
  };
  // Only samples 0 and 2 are not damaged. Both must replace damaged samples, about equally often.
  uint64_t stand_ins[2] = {};
  constexpr uint64_t kSteps = 100;
  const std::string warnings = warnings_of([&] {
    for (uint64_t s = 0; s < kSteps; ++s) {
      batches.push_back(fill_images_of(*dataset, recipe, s, 0));
      for (uint64_t b = 0; b < 2; ++b) {
        const uint64_t n = (s * 2 + b) % 5;
        EXPECT_EQ(batches[s].labels[b], 0);
        EXPECT_TRUE(shows(s, b, 0) || shows(s, b, 2)) << s << " " << b;
        if (n == 0 || n == 2) EXPECT_TRUE(shows(s, b, n)) << s << " " << b;
        else ++stand_ins[shows(s, b, 2)];
      }
    }
  });
  EXPECT_EQ(stand_ins[0] + stand_ins[1], kSteps * 2 * 3 / 5);
  EXPECT_GT(std::min(stand_ins[0], stand_ins[1]), 45u);
  for (const char* name : {"bird/b.PPM", "cat/a.ppm", "cat/b.ppm"}) {
    const size_t first = warnings.find(folder.file(name) + ": cannot be decoded");
    ASSERT_NE(first, std::string::npos) << warnings;
    EXPECT_EQ(warnings.find(folder.file(name), first + 1), std::string::npos) << "each is named once: " << warnings;
  }
  EXPECT_EQ(std::count(warnings.begin(), warnings.end(), '\n'), 3) << warnings;
  recipe.data.shuffle = true;
  const auto whole = open_dataset(recipe, Split::kTraining), resumed = open_dataset(recipe, Split::kTraining);
  warnings_of([&] {
    for (uint64_t s = 0; s < 10; ++s) batches[s] = fill_images_of(*whole, recipe, s, 0);
    for (const uint64_t s : {7u, 8u, 3u}) EXPECT_TRUE(fill_images_of(*resumed, recipe, s, 0) == batches[s]);
    EXPECT_EQ(fill_images_of(*evaluation, recipe, 0, 0).labels, (std::vector<int32_t>{0, kIgnoredLabel}));
    EXPECT_EQ(fill_images_of(*evaluation, recipe, 1, 0).labels, (std::vector<int32_t>{0, kIgnoredLabel}));
    EXPECT_EQ(fill_images_of(*evaluation, recipe, 2, 0).labels, (std::vector<int32_t>{kIgnoredLabel, kIgnoredLabel}));
  });
  for (const char* name : {"bird/a.ppm", "bird/c.ppm"}) write_file(folder.file(name), "broken too");
  const auto none = open_dataset(recipe, Split::kTraining);
  warnings_of([&] {
    expect_user_error([&] { fill_images_of(*none, recipe, 0, 0); },
                      {folder.path(), "not one of its 5 pictures can be decoded"});
  });
}

TEST(ImageFolder, HiddenFilesAreNobodysData) {
  TemporaryFolder folder;
  write_image_folder(folder);
  fs::remove(folder.file("bird/notes.txt"));
  for (const char* name : {"bird/._a.ppm", "bird/.DS_Store", "cat/Thumbs.db", "cat/desktop.ini", ".ppm"})
    write_file(folder.file(name), "hidden");
  for (const char* name : {".ipynb_checkpoints", "__MACOSX", "cat/.thumbnails"}) {
    fs::create_directories(folder.file(name));
    write_file(folder.file(std::string(name) + "/a.ppm"), "hidden");
  }
  Recipe recipe = image_recipe(DataSource::Kind::kImageFolder, folder.path(), 4, 5, 3, 2);
  std::get<ResNetModel>(recipe.model).classes = 2;
  const auto dataset = open_dataset(recipe, Split::kTraining);
  EXPECT_EQ(dataset->size(), 5u);
  EXPECT_TRUE(dataset->warnings().empty());
  EXPECT_EQ(dataset->class_names(), (std::vector<std::string>{"bird", "cat"}));
  EXPECT_EQ(class_order(recipe, *dataset), "0 is \"bird\", 1 is \"cat\"");
  const auto given = open_given_pictures(recipe, {folder.path()});
  EXPECT_EQ(given->samples().size(), 5u);
}

TEST(ImageFolder, NumbersSortAsNumbers) {
  TemporaryFolder folder;
  const auto names = [&](std::initializer_list<const char*> folders) {
    fs::remove_all(folder.path());
    for (const char* name : folders) fs::create_directories(folder.file(name));
    return class_names(folder.path(), 5);
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(names({"10", "2", "1", "-3"}), (Names{"-3", "1", "2", "10"}));
  EXPECT_EQ(names({"10.5", "9", "010", "10"}), (Names{"9", "010", "10", "10.5"}));
  EXPECT_EQ(names({"10", "2", "1", "a"}), (Names{"1", "10", "2", "a"}));
}

TEST(ImageFolder, ManyBrokenPicturesDoNotFloodTheScreen) {
  TemporaryFolder folder;
  fs::create_directories(folder.file("a"));
  for (int i = 0; i < 50; ++i) write_file(folder.file("a/" + std::to_string(i) + ".png"), "broken");
  write_ppm(folder.file("a/z.ppm"), 4, 5, 0);
  Recipe recipe = image_recipe(DataSource::Kind::kImageFolder, folder.path(), 4, 5, 3, 2);
  recipe.data.broken = DataSource::Broken::kSkip;
  const auto dataset = open_dataset(recipe, Split::kTraining);
  const std::string warnings = warnings_of([&] { fill_images_of(*dataset, recipe, 0, 0); });
  EXPECT_EQ(std::count(warnings.begin(), warnings.end(), '\n'), 21) << warnings;
  EXPECT_NE(warnings.find("--check-data"), std::string::npos) << warnings;
}

TEST(ImageFolder, WhatIsHardlyMeantIsSaidOnce) {
  TemporaryFolder folder;
  write_image_folder(folder);  // two of the recipe's three classes, and bird/notes.txt
  Recipe recipe = image_recipe(DataSource::Kind::kImageFolder, folder.path(), 4, 5, 3, 2);
  recipe.data.eval_path = folder.path();
  const auto opened = [&] {
    std::string lines;
    EXPECT_EQ(warnings_of([&] {
                for (const Split split : {Split::kTraining, Split::kEvaluation}) {
                  const auto dataset = open_dataset(recipe, split);
                  for (const std::string& warning : dataset->warnings()) lines += warning + "\n";
                }
              }), "") << "whoever opens a set decides whether it is said";
    return lines;
  };
  std::string said = opened();
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 2) << said;
  EXPECT_NE(said.find(folder.path() + ": has 2 class folders, but model.classes is 3"), std::string::npos) << said;
  EXPECT_NE(said.find(folder.path() + ": 1 entry of its class folders is left out"), std::string::npos) << said;
  EXPECT_NE(said.find("bird/notes.txt"), std::string::npos) << said;
  fs::create_directories(folder.file("cat/nested"));
  std::get<ResNetModel>(recipe.model).classes = 2;
  said = opened();
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  EXPECT_NE(said.find("2 entries of its class folders are left out"), std::string::npos) << said;
  fs::remove(folder.file("cat/nested"));
  fs::remove(folder.file("bird/notes.txt"));
  EXPECT_EQ(opened(), "");
}

TEST(ImageFolder, ClassesThatTheFoldersDoNotShareAreNamed) {
  TemporaryFolder training, evaluation;
  for (const char* name : {"ant", "bee", "cat"}) {
    fs::create_directories(training.file(name));
    write_ppm(training.file(std::string(name) + "/a.ppm"), 4, 5, 0);
  }
  fs::create_directories(evaluation.file("bee"));
  fs::create_directories(evaluation.file("cat"));
  write_ppm(evaluation.file("bee/a.ppm"), 4, 5, 0);
  Recipe recipe = image_recipe(DataSource::Kind::kImageFolder, training.path(), 4, 5, 3, 2);
  recipe.data.eval_path = evaluation.path();
  EXPECT_EQ(open_dataset(recipe, Split::kTraining)->warnings(), std::vector<std::string>());
  const std::string lacks =
      evaluation.path() + ": has no picture of 2 classes that " + training.path() + " names: ant, cat";
  EXPECT_EQ(open_dataset(recipe, Split::kEvaluation)->warnings(), std::vector<std::string>{lacks});
  for (const char* name : {"dog", "emu"}) fs::create_directories(evaluation.file(name));
  const std::string others =
      evaluation.path() + ": has 2 folders that are no class of the training set " + training.path() + ": dog, emu";
  expect_user_error([&] { open_dataset(recipe, Split::kEvaluation); }, {others, "its classes are ant, bee, cat"});
}

TEST(ImageFolder, APictureThatCannotBeDecodedSaysWhatWouldBeRight) {
  TemporaryFolder folder;
  const auto refusal_of = [&](const std::string& name, const std::string& content) {
    write_file(folder.file(name), content);
    try {
      check_picture(folder.file(name), {4, 5, 3});
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const std::string start = ": cannot be decoded: ";
  const std::string kinds = "no picture of a kind that is read (JPEG, PNG, BMP, PPM, PGM)";
  EXPECT_EQ(refusal_of("a.jpg", "text"), folder.file("a.jpg") + start + "it is " + kinds);
  EXPECT_EQ(refusal_of("a.jpg", "<html>"), folder.file("a.jpg") + start + "it is an HTML page, and " + kinds +
                                               "; a download gives one in place of the file where it wants a login, a "
                                               "consent or another address: load the file itself");
  EXPECT_EQ(refusal_of("b.png", ""), folder.file("b.png") + start + "it is empty");
  EXPECT_EQ(refusal_of("c.png", "\x89PNG\r\n\x1a\n and no more"),
            folder.file("c.png") + start + "the file ends before the picture does");
  EXPECT_EQ(refusal_of("d.pgm", "P5 5 4 0 " + std::string(20, 'x')),
            folder.file("d.pgm") + start +
                "it is damaged, or of a variant that is not read; save it anew as JPEG, PNG, BMP, PPM or PGM");
  expect_user_error(
      [&] {
        check_picture(folder.file("none.png"), {4, 5, 3});
      },
      {folder.file("none.png") + ": cannot be opened: No such file"});
}

struct Checked {
  int status;
  std::string out, err;
};

Checked check(const Recipe& recipe, uint32_t threads) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  int status = -1;
  try {
    status = check_data(recipe, threads);
  } catch (const UserError& error) {
    status = error.status;
    std::fprintf(stderr, "%s\n", error.what());
  }
  std::string err = testing::internal::GetCapturedStderr();
  return {status, testing::internal::GetCapturedStdout(), err};
}

TEST(CheckData, NamesEveryBrokenPictureInOrder) {
  TemporaryFolder folder;
  write_image_folder(folder);
  Recipe recipe = image_recipe(DataSource::Kind::kImageFolder, folder.path(), 4, 5, 3, 2);
  Checked result = check(recipe, 2);
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.out, "");
  EXPECT_NE(result.err.find("training set: 5 pictures, all of them can be decoded"), std::string::npos) << result.err;
  break_pictures(folder);
  for (int i = 10; i < 40; ++i) write_file(folder.file("cat/c" + std::to_string(i) + ".jpg"), "broken");
  std::string names = folder.file("bird/b.PPM") + folder.file("cat/a.ppm") + folder.file("cat/b.ppm");
  for (int i = 10; i < 40; ++i) names += folder.file("cat/c" + std::to_string(i) + ".jpg");
  for (const uint32_t threads : {0u, 1u, 2u, 7u}) {
    result = check(recipe, threads);
    EXPECT_EQ(result.status, 1);
    std::string named;
    std::istringstream lines(result.out);
    for (std::string line; std::getline(lines, line);) {
      ASSERT_NE(line.find(": cannot be decoded: "), std::string::npos) << line;
      named += line.substr(0, line.find(": cannot be decoded: "));
    }
    EXPECT_EQ(named, names);
    EXPECT_NE(result.err.find("33 of them broken"), std::string::npos) << result.err;
    EXPECT_NE(result.err.find("\"skip\""), std::string::npos) << result.err;
  }
  recipe.data.broken = DataSource::Broken::kSkip;
  const std::string refused = result.out;
  result = check(recipe, 2);
  EXPECT_EQ(result.status, 0) << "a run would go through";
  EXPECT_EQ(result.out, refused) << "they are named all the same";
  for (const char* name : {"bird/a.ppm", "bird/c.ppm"}) write_file(folder.file(name), "");
  result = check(recipe, 2);
  EXPECT_EQ(result.status, 1);
  EXPECT_NE(result.err.find("not one picture can be decoded"), std::string::npos) << result.err;
}

TEST(CheckData, LooksAtTheEvaluationSetToo) {
  TemporaryFolder training, evaluation;
  write_image_folder(training);
  write_image_folder(evaluation);
  break_pictures(evaluation);
  Recipe recipe = image_recipe(DataSource::Kind::kImageFolder, training.path(), 4, 5, 3, 2);
  recipe.data.eval_path = evaluation.path();
  const Checked result = check(recipe, 2);
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 3) << result.out;
  EXPECT_NE(result.err.find("evaluation set: 5 pictures, 3 of them broken"), std::string::npos) << result.err;
}

TEST(CheckData, OtherKindsAreCheckedByOpeningThem) {
  TemporaryFolder folder;
  write_file(folder.file("t"), tokens_of({1, 2, 3, 4, 5}, 2));
  Recipe recipe = text_recipe(DataSource::Kind::kTokens, folder.file("t"), 100, 4, 2);
  Checked result = check(recipe, 1);
  EXPECT_EQ(result.status, 0);
  EXPECT_NE(result.err.find("training set: 1 samples; files, lengths, labels and tokens were checked"),
            std::string::npos)
      << result.err;
  write_file(folder.file("t"), tokens_of({1, 2, 3, 400, 5}, 2));
  result = check(recipe, 1);
  EXPECT_EQ(result.status, 1);
  EXPECT_NE(result.err.find("token 3 is 400"), std::string::npos) << result.err;
}

// Another program truncates a file between two fills. If the training reads the file as it runs, it
// must then refuse the file. idx files are in memory, so the training does not notice.
TEST(Dataset, AFileThatBecomesShorterIsRefusedInOneLine) {
  TemporaryFolder folder;
  const auto refused_after = [&](const std::string& path, uint64_t bytes_left, Recipe recipe) {
    SCOPED_TRACE(path);
    recipe.data.eval_path = recipe.data.path;
    const auto dataset = open_dataset(recipe, Split::kTraining), evaluation = open_dataset(recipe, Split::kEvaluation);
    float input[64];
    int32_t labels[16];
    const auto fill = [&](Dataset& set, uint64_t step) {
      BatchSink sink = host_sink(input, sizeof input, labels, 16);
      set.fill(step, 0, sink);
    };
    for (uint64_t step = 0; step < 2; ++step) fill(*dataset, step);
    fs::resize_file(path, bytes_left);
    fill(*dataset, 0);  // reads only bytes that the file still has
    for (Dataset* set : {dataset.get(), evaluation.get()}) {
      expect_user_error([&] { fill(*set, 1); },
                        {path, "has become shorter while it was in use", std::to_string(bytes_left) + " now"});
    }
    fs::resize_file(path, 0);
    expect_user_error([&] { fill(*dataset, 0); }, {path, "has become shorter", "0 now"});
  };
  for (const int bytes : {2, 4}) {
    write_file(folder.file("tokens"), tokens_of({1, 2, 3, 4, 5, 6, 7, 8, 9}, bytes));
    Recipe recipe = text_recipe(DataSource::Kind::kTokens, folder.file("tokens"), 100, 4, 1);
    recipe.data.token_bytes = bytes;
    refused_after(folder.file("tokens"), static_cast<uint64_t>(9 * bytes - 1), recipe);  // the last label lacks a byte
  }
  write_file(folder.file("text"), "hello, world");
  refused_after(folder.file("text"), 8, text_recipe(DataSource::Kind::kText, folder.file("text"), 256, 5, 1));
  write_tensors(folder.file("tensors"), {2, 1, 4, 5}, {2, 0});
  const uint64_t labels_and_a_byte = 2 * sizeof(int64_t) + 1;
  refused_after(folder.file("tensors"), fs::file_size(folder.file("tensors")) - labels_and_a_byte,
                image_recipe(DataSource::Kind::kTensors, folder.file("tensors"), 4, 5, 1, 1));

  write_idx_folder(folder, 7, 5);
  Recipe recipe = image_recipe(DataSource::Kind::kIdx, folder.path(), 4, 5, 1, 3);
  const auto dataset = open_dataset(recipe, Split::kTraining);
  const ImageBatch before = fill_images_of(*dataset, recipe, 1, 0);
  for (const char* name : {"train-images-idx3-ubyte", "train-labels-idx1-ubyte.gz"})
    fs::resize_file(folder.file(name), 0);
  EXPECT_TRUE(fill_images_of(*dataset, recipe, 1, 0) == before);
}

TEST(Resize, KeepsConstantsAndAveragesWhenShrinking) {
  const std::vector<uint8_t> grey(13 * 17 * 3, 77);
  for (const ImageShape to : {ImageShape{4, 5, 3}, ImageShape{40, 3, 3}, ImageShape{13, 17, 3}}) {
    std::vector<uint8_t> result(to.values());
    resize_image({13, 17, 3}, grey.data(), to, result.data());
    EXPECT_EQ(std::count(result.begin(), result.end(), uint8_t{77}), static_cast<long>(to.values()));
  }
  // A ramp must remain a ramp away from the borders: half as many pixels, and each step twice as
  // large.
  std::vector<uint8_t> ramp(64), half(32);
  for (size_t i = 0; i < 64; ++i) ramp[i] = static_cast<uint8_t>(2 * i);
  resize_image({1, 64, 1}, ramp.data(), {1, 32, 1}, half.data());
  for (size_t i = 2; i < 30; ++i) EXPECT_NEAR(half[i], 4 * double(i) + 1, 1);
  // An image of the same size is copied exactly.
  std::vector<uint8_t> same(64);
  resize_image({1, 64, 1}, ramp.data(), {1, 64, 1}, same.data());
  EXPECT_EQ(same, ramp);
}

TEST(Dataset, FillNeverTouchesTheHeap) {
  TemporaryFolder folder;
  write_idx_folder(folder, 7, 5);
  write_tensors(folder.file("t"), {3, 1, 4, 5}, {2, 0, 1});
  TemporaryFolder pictures;
  write_image_folder(pictures);
  std::vector<Recipe> recipes = {
      image_recipe(DataSource::Kind::kIdx, folder.path(), 4, 5, 1, 3),
      image_recipe(DataSource::Kind::kTensors, folder.file("t"), 4, 5, 1, 3),
      image_recipe(DataSource::Kind::kSynthetic, "", 4, 5, 1, 3),
      image_recipe(DataSource::Kind::kImageFolder, pictures.path(), 4, 5, 3, 3),
      text_recipe(DataSource::Kind::kText, folder.file("text"), 256, 4, 2),
      text_recipe(DataSource::Kind::kTokens, folder.file("t10k-labels-idx1-ubyte"), 65536, 2, 2),
      text_recipe(DataSource::Kind::kSynthetic, "", 100, 4, 2)};
  write_file(folder.file("t10k-labels-idx1-ubyte"), "123456789012");
  write_file(folder.file("text"), std::string(200, 't'));
  for (Recipe& recipe : recipes) {
    SCOPED_TRACE(static_cast<int>(recipe.data.kind));
    recipe.data.shuffle = true;
    recipe.data.flip = std::holds_alternative<ResNetModel>(recipe.model);
    recipe.data.crop = recipe.data.flip ? 1 : 0;
    const auto dataset = open_dataset(recipe, Split::kTraining);
    float input[3 * 60];
    int32_t labels[16];
    const uint64_t before = allocations;
    for (uint64_t step = 0; step < 20; ++step) {
      BatchSink sink = host_sink(input, sizeof input, labels, 16);
      dataset->fill(step, 0, sink);
    }
    EXPECT_EQ(allocations, before);
  }
  const uint64_t before = allocations;
  ::operator delete(::operator new(4));
  EXPECT_EQ(allocations, before + 1) << "the counter counts";
}

TEST(Dataset, ARecipeWithoutDataSaysSo) {
  Recipe recipe = image_recipe(DataSource::Kind::kNone, "", 4, 4, 1, 1);
  expect_user_error([&] { open_dataset(recipe, Split::kTraining); }, {"test: data", "missing", "\"kind\""});
}

}  // namespace
}  // namespace reprise
