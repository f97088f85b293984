// Detects the kind of a file by its first bytes, and tells the user how to convert it to a kind
// that is read here. Every reader checks the kind first. Otherwise a Parquet file that is read as
// CSV, or a web page that is read as weights, would fail with an unrelated error.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "tools/files/io/input_file.h"

namespace reprise {

enum class FileKind {
  kUnknown,
  kParquet, kArrow, kAvro, kOrc, kSqlite, kHdf5, kNumpy, kNumpyZip, kOffice,  // tables and arrays
  kGzip, kBzip2, kXz, kZstandard, kSevenZip, kRar, kTar, kZip,                // packed files
  kTorch, kPickle, kSafetensors, kGguf, kTflite, kSentencePiece,              // models
  kUtf16, kUtf32, kHtml, kXml, kPdf, kRtf, kLfsPointer,                       // texts
  kJpeg, kPng, kGif, kWebp, kTiff, kHeif,                               // pictures
};

// Number of bytes from the beginning of a file that suffice to detect its kind.
constexpr uint64_t kKindBytes = 512;

// Returns the kind of a file that begins with these bytes; kUnknown if no known kind matches.
FileKind kind_of(std::string_view beginning);

// The usual name of a kind, and advice on how to convert such a file to a kind that is read here.
struct KindWords {
  FileKind kind;
  const char *name, *advice;
};
// Returns the words for a file's kind; null if the kind is unknown or is in `taken`, the kinds that
// the caller accepts.
const KindWords* other_kind(std::string_view beginning, std::initializer_list<FileKind> taken = {});

// Throws UserError "PATH: is a Parquet file, and must be WANTED; ..." if the file is of a known
// kind that is not in `taken`.
void refuse_other_kinds(const std::string& path, std::string_view beginning, const std::string& wanted,
                        std::initializer_list<FileKind> taken = {});
void refuse_other_kinds(const InputFile& file, const std::string& wanted, std::initializer_list<FileKind> taken = {});

}  // namespace reprise
