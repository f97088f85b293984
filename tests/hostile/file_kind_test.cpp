// Tests files of another kind than a reader expects. The refusal must name the kind, and how to
// convert the file. A parse error from a Parquet file read as CSV, or from a web page read as
// weights, would not help the user.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/interfaces/expect_user_error.h"
#include "tools/files/formats/gguf.h"
#include "tools/files/formats/json_text.h"
#include "tools/files/formats/record_file.h"
#include "tools/files/formats/safetensors.h"
#include "tools/files/io/file_kind.h"
#include "tools/files/io/output_file.h"
#include "tools/files/tokenizer/tokenizer.h"
#include "tools/files/weights/model_files.h"
#include "tools/plan/onnx/onnx_file.h"
#include "tools/run/pictures/picture.h"

namespace reprise {
namespace {

using namespace std::string_literals;

struct Sample {
  FileKind kind;
  std::string bytes;
  const char *name, *advice;
};

std::string zip_of(const std::string& name) {
  std::string header(30, '\0');
  header.replace(0, 4, "PK\x03\x04");
  header[26] = static_cast<char>(name.size());
  return header + name;
}

std::string wide(const std::string& text, bool big_endian) {
  std::string bytes;
  for (const char c : text) bytes += big_endian ? "\0"s + c : c + "\0"s;
  return bytes;
}

std::vector<Sample> samples() {
  const std::string rest(600, 'x');
  return {{FileKind::kParquet, "PAR1\x15\x04" + rest, "a Parquet file", "pandas.read_parquet"},
          {FileKind::kArrow, "ARROW1\0\0"s + rest, "an Arrow or Feather file", "datasets.Dataset.from_file"},
          {FileKind::kGzip, "\x1f\x8b\x08\0"s + rest, "a gzip file", "gunzip"},
          {FileKind::kBzip2, "BZh91AY&SY" + rest, "a bzip2 file", "bunzip2"},
          {FileKind::kXz,
           "\xfd"
           "7zXZ\0"s +
               rest,
           "an xz file", "unxz"},
          {FileKind::kZstandard, "\x28\xb5\x2f\xfd" + rest, "a Zstandard file", "unzstd"},
          {FileKind::kTar, std::string(257, 'a') + "ustar\0"s + rest, "a tar archive", "tar xf"},
          {FileKind::kZip, zip_of("train/data.csv") + rest, "a zip archive", "unzip"},
          {FileKind::kTorch, zip_of("archive/data.pkl") + rest, "a file of torch.save", "safetensors.torch.save_file"},
          {FileKind::kNumpyZip, zip_of("x.npy") + rest, "a file of numpy.savez", "safetensors.numpy.save_file"},
          {FileKind::kOffice, zip_of("[Content_Types].xml") + rest, "a workbook", "CSV in UTF-8"},
          {FileKind::kPickle, "\x80\x04\x95" + rest, "a Python pickle", "load it in Python"},
          {FileKind::kNumpy, "\x93NUMPY\x01" + rest, "a file of numpy.save", "tofile"},
          {FileKind::kHdf5, "\x89HDF\r\n\x1a\n" + rest, "an HDF5 file", "ONNX"},
          {FileKind::kSqlite, "SQLite format 3\0"s + rest, "an SQLite database", "sqlite3 -csv"},
          {FileKind::kPdf, "%PDF-1.7\n" + rest, "a PDF file", "pdftotext"},
          {FileKind::kHtml, "\n <!DOCTYPE html><html>" + rest, "an HTML page", "load the file itself"},
          {FileKind::kHtml, "<HTML lang=en>" + rest, "an HTML page", "load the file itself"},
          {FileKind::kXml, "\xef\xbb\xbf<?xml version=\"1.0\"?>" + rest, "an XML file", "JSON lines or CSV"},
          {FileKind::kUtf16, "\xff\xfe" + wide(rest, false), "a text in UTF-16", "iconv -f UTF-16"},
          {FileKind::kUtf16, "\xfe\xff" + wide(rest, true), "a text in UTF-16", "iconv -f UTF-16"},
          {FileKind::kUtf16, wide("text,label\n" + rest, false), "a text in UTF-16", "iconv -f UTF-16"},
          {FileKind::kUtf16, wide("text,label\n" + rest, true), "a text in UTF-16", "iconv -f UTF-16"},
          {FileKind::kUtf32, "\xff\xfe\0\0"s + rest, "a text in UTF-32", "iconv -f UTF-32"},
          {FileKind::kLfsPointer, "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n",
           "a pointer of git-lfs", "git lfs pull"},
          {FileKind::kSentencePiece, "\n\x0e\n\x05<unk>\x15" + rest, "a SentencePiece model", "AutoTokenizer"},
          {FileKind::kTflite, "\x1c\0\0\0TFL3"s + rest, "a TensorFlow Lite model", "ONNX"},
          {FileKind::kWebp, "RIFF\0\x01\0\0WEBPVP8 "s + rest, "a WebP picture", "PNG"},
          {FileKind::kGif, "GIF89a" + rest, "a GIF picture", "PNG"},
          {FileKind::kTiff, "II*\0"s + rest, "a TIFF picture", "PNG"},
          {FileKind::kHeif,
           "\0\0\0\x18"
           "ftypheic"s +
               rest,
           "a HEIC or AVIF picture", "PNG"}};
}

const std::string kGguf = "GGUF\x03\0\0\0"s + std::string(64, '\0');
const std::string kSafetensors = "\x10\0\0\0\0\0\0\0{\"__metadata__\":"s;

TEST(FileKind, IsKnownByTheBeginning) {
  for (const Sample& sample : samples()) EXPECT_EQ(kind_of(sample.bytes), sample.kind) << sample.name;
  EXPECT_EQ(kind_of(kGguf), FileKind::kGguf);
  EXPECT_EQ(kind_of(kSafetensors), FileKind::kSafetensors);
  for (const std::string& text : {"text,label\na,b\n"s, "{\"a\": 1}"s, ""s, "P5\n2 1\n255\n12"s, "a"s, "<3 hearts, 2"s,
                                  "versions\n"s, std::string(40, '\0'), "\x08\x07\x12\x07pytorch"s})
    EXPECT_EQ(kind_of(text), FileKind::kUnknown) << text;
}

class OtherFiles : public testing::Test {
 protected:
  template <typename Read>
  void refused(const std::string& bytes, const char* name, const char* advice, const Read& read) {
    write_file(path_, bytes);
    SCOPED_TRACE(name);
    expect_user_error([&] { read(path_); }, {path_, name, advice});
  }
  template <typename Read>
  void all_refused(const Read& read) {
    for (const Sample& sample : samples()) refused(sample.bytes, sample.name, sample.advice, read);
  }
  TemporaryFolder folder_;
  const std::string path_ = folder_.file("file");
};

TEST_F(OtherFiles, ReadAsRecordsAreNamed) {
  const auto read = [](const std::string& path) { open_records(path); };
  all_refused(read);
  refused(kGguf, "a GGUF file", "\"gguf\"", read);
  refused(kSafetensors, "a safetensors file", "config.json", read);
}

TEST_F(OtherFiles, ReadAsJsonAreNamed) {
  all_refused([](const std::string& path) { parse_json(read_file(path), path); });
}

TEST_F(OtherFiles, ReadAsWeightsAreNamed) {
  all_refused([](const std::string& path) { SafetensorsFile{path}; });
  all_refused([](const std::string& path) { GgufFile{path}; });
  all_refused([](const std::string& path) { ModelFiles::open(path); });
  refused(kGguf, "a GGUF file, and must be a safetensors file", "\"gguf\"",
          [](const std::string& path) { SafetensorsFile{path}; });
  refused(kSafetensors, "a safetensors file, and must be a GGUF file", "convert_hf_to_gguf.py",
          [](const std::string& path) { GgufFile{path}; });
}

TEST_F(OtherFiles, ReadAsNetsAreNamed) {
  for (const Sample& sample : samples()) {
    if (sample.kind != FileKind::kZip)
      refused(sample.bytes, sample.name, sample.advice, [](const std::string& path) { OnnxFile{path}; });
  }
  refused(kSafetensors, "a safetensors file, and must be an ONNX model", "config.json",
          [](const std::string& path) { OnnxFile{path}; });
}

TEST_F(OtherFiles, ReadAsTokenizersAreNamed) {
  all_refused([](const std::string& path) { Tokenizer::open(path); });
}

TEST_F(OtherFiles, ReadAsPicturesAreNamed) {
  std::vector<uint8_t> pixels(12);
  all_refused([&](const std::string& path) { decode_picture(path, {2, 2, 3}, pixels.data()); });
  std::vector<uint16_t> numbers(4);
  for (const Sample& sample : samples())
    refused(sample.bytes, sample.name, "is no mask",
            [&](const std::string& path) { decode_mask(path, 2, 2, numbers.data()); });
  refused("\xff\xd8\xff\xe0", "a JPEG picture", "is no mask",
          [&](const std::string& path) { decode_mask(path, 2, 2, numbers.data()); });
}

}  // namespace
}  // namespace reprise
