// See file_kind.h. The signatures are from the formats' own specifications.
#include "tools/files/io/file_kind.h"

#include <algorithm>
#include <cctype>

#include "tools/files/io/error.h"

namespace reprise {
namespace {

constexpr KindWords kKindWords[] = {
    {FileKind::kParquet, "a Parquet file",
     "write its rows as JSON lines: pandas.read_parquet(FILE).to_json(NEW, orient=\"records\", lines=True)"},
    {FileKind::kArrow, "an Arrow or Feather file",
     "write its rows as JSON lines: datasets.Dataset.from_file(FILE).to_json(NEW), or "
     "pandas.read_feather(FILE).to_json(NEW, orient=\"records\", lines=True)"},
    {FileKind::kAvro, "an Avro file", "write its rows as JSON lines"},
    {FileKind::kOrc, "an ORC file",
     "write its rows as JSON lines: pandas.read_orc(FILE).to_json(NEW, orient=\"records\", lines=True)"},
    {FileKind::kSqlite, "an SQLite database",
     "write a table as CSV: sqlite3 -csv -header FILE \"select * from TABLE\" >NEW.csv"},
    {FileKind::kHdf5, "an HDF5 file",
     "write its arrays with safetensors.numpy.save_file, of a Keras model through an export to ONNX"},
    {FileKind::kNumpy, "a file of numpy.save",
     "write its array with numpy.load(FILE).tofile(NEW), or under a name with safetensors.numpy.save_file"},
    {FileKind::kNumpyZip, "a file of numpy.savez",
     "write its arrays with safetensors.numpy.save_file(dict(numpy.load(FILE)), NEW)"},
    {FileKind::kOffice, "a workbook or document of an office program", "save it as CSV in UTF-8, or as plain text"},
    {FileKind::kGzip, "a gzip file", "unpack it: gunzip FILE"},
    {FileKind::kBzip2, "a bzip2 file", "unpack it: bunzip2 FILE"},
    {FileKind::kXz, "an xz file", "unpack it: unxz FILE"},
    {FileKind::kZstandard, "a Zstandard file", "unpack it: unzstd FILE"},
    {FileKind::kSevenZip, "a 7z archive", "unpack it: 7z x FILE"},
    {FileKind::kRar, "a RAR archive", "unpack it: unrar x FILE"},
    {FileKind::kTar, "a tar archive", "unpack it: tar xf FILE"},
    {FileKind::kZip, "a zip archive", "unpack it: unzip FILE"},
    {FileKind::kTorch, "a file of torch.save",
     "write its tensors with safetensors.torch.save_file(torch.load(FILE, weights_only=True), NEW), or a net with "
     "torch.export.save"},
    {FileKind::kPickle, "a Python pickle, which can run code",
     "load it in Python and write tensors with safetensors.torch.save_file, records with json.dumps"},
    {FileKind::kSafetensors, "a safetensors file",
     "a model is the folder that holds it and its config.json; llama.cpp's convert_hf_to_gguf.py makes a GGUF file of "
     "that"},
    {FileKind::kGguf, "a GGUF file",
     "name it as \"model\": {\"gguf\": FILE}; reprise export writes safetensors of a trained model"},
    {FileKind::kTflite, "a TensorFlow Lite model", "export the model that it was made of to ONNX"},
    {FileKind::kSentencePiece, "a SentencePiece model",
     "write tokenizer.json: transformers.AutoTokenizer.from_pretrained(FOLDER).save_pretrained(NEW)"},
    {FileKind::kUtf16, "a text in UTF-16", "write it in UTF-8: iconv -f UTF-16 -t UTF-8 FILE >NEW"},
    {FileKind::kUtf32, "a text in UTF-32", "write it in UTF-8: iconv -f UTF-32 -t UTF-8 FILE >NEW"},
    {FileKind::kHtml, "an HTML page",
     "a download gives one in place of the file where it wants a login, a consent or another address: load the file "
     "itself"},
    {FileKind::kXml, "an XML file", "write its records as JSON lines or CSV"},
    {FileKind::kPdf, "a PDF file", "write its text: pdftotext FILE NEW.txt"},
    {FileKind::kRtf, "an RTF document", "save it as plain text in UTF-8"},
    {FileKind::kLfsPointer, "a pointer of git-lfs and not the file itself",
     "fetch the file: git lfs pull, or huggingface-cli download"},
    {FileKind::kJpeg, "a JPEG picture", "give the file of the kind that is wanted"},
    {FileKind::kPng, "a PNG picture", "give the file of the kind that is wanted"},
    {FileKind::kGif, "a GIF picture", "write it as PNG: magick FILE NEW.png"},
    {FileKind::kWebp, "a WebP picture", "write it as PNG: magick FILE NEW.png"},
    {FileKind::kTiff, "a TIFF picture", "write it as PNG: magick FILE NEW.png"},
    {FileKind::kHeif, "a HEIC or AVIF picture", "write it as JPEG or PNG: magick FILE NEW.jpg"},
};

struct Signature {
  FileKind kind;
  size_t at;
  std::string_view bytes;
};
using std::operator""sv;
constexpr Signature kSignatures[] = {
    {FileKind::kParquet, 0, "PAR1"sv},
    {FileKind::kArrow, 0, "ARROW1\0\0"sv},
    {FileKind::kArrow, 0, "FEA1"sv},
    {FileKind::kAvro, 0, "Obj\x01"sv},
    {FileKind::kOrc, 0, "ORC"sv},
    {FileKind::kSqlite, 0, "SQLite format 3\0"sv},
    {FileKind::kHdf5, 0, "\x89HDF\r\n\x1a\n"sv},
    {FileKind::kNumpy, 0, "\x93NUMPY"sv},
    {FileKind::kOffice, 0, "\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"sv},
    {FileKind::kGzip, 0, "\x1f\x8b\x08"sv},
    {FileKind::kBzip2, 4, "1AY&SY"sv},
    {FileKind::kXz, 0, "\xfd" "7zXZ\0"sv},
    {FileKind::kZstandard, 0, "\x28\xb5\x2f\xfd"sv},
    {FileKind::kSevenZip, 0, "7z\xbc\xaf\x27\x1c"sv},
    {FileKind::kRar, 0, "Rar!\x1a\x07"sv},
    {FileKind::kTar, 257, "ustar"sv},
    // Written by PyTorch before 1.6
    {FileKind::kTorch, 0, "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"sv},
    {FileKind::kPickle, 0, "\x80\x04\x95"sv},
    {FileKind::kPickle, 0, "\x80\x05\x95"sv},
    {FileKind::kPickle, 0, "\x80\x02}q"sv},
    {FileKind::kPickle, 0, "\x80\x02]q"sv},
    {FileKind::kPickle, 0, "\x80\x02" "c"sv},
    {FileKind::kPickle, 0, "\x80\x03}q"sv},
    {FileKind::kPickle, 0, "\x80\x03]q"sv},
    {FileKind::kPickle, 0, "\x80\x03" "c"sv},
    {FileKind::kGguf, 0, "GGUF"sv},
    {FileKind::kTflite, 4, "TFL3"sv},
    {FileKind::kSentencePiece, 2, "\n\x05<unk>"sv},
    {FileKind::kUtf32, 0, "\xff\xfe\0\0"sv},
    {FileKind::kUtf32, 0, "\0\0\xfe\xff"sv},
    {FileKind::kUtf16, 0, "\xff\xfe"sv},
    {FileKind::kUtf16, 0, "\xfe\xff"sv},
    {FileKind::kPdf, 0, "%PDF-"sv},
    {FileKind::kRtf, 0, "{\\rtf"sv},
    {FileKind::kLfsPointer, 0, "version https://git-lfs.github.com/spec/"sv},
    {FileKind::kJpeg, 0, "\xff\xd8\xff"sv},
    {FileKind::kPng, 0, "\x89PNG\r\n\x1a\n"sv},
    {FileKind::kGif, 0, "GIF87a"sv},
    {FileKind::kGif, 0, "GIF89a"sv},
    {FileKind::kWebp, 8, "WEBP"sv},
    {FileKind::kTiff, 0, "II*\0"sv},
    {FileKind::kTiff, 0, "MM\0*"sv},
    {FileKind::kHeif, 4, "ftyphei"sv},
    {FileKind::kHeif, 4, "ftypmif1"sv},
    {FileKind::kHeif, 4, "ftypavi"sv},
};

// Returns the kind of a zip archive, detected by the name of its first entry.
FileKind kind_of_zip(std::string_view zip) {
  constexpr size_t kName = 30;
  if (zip.size() < kName) return FileKind::kZip;
  const size_t length = static_cast<uint8_t>(zip[26]) + size_t{256} * static_cast<uint8_t>(zip[27]);
  const std::string_view name = zip.substr(kName, length);
  if (name.ends_with("/data.pkl")) return FileKind::kTorch;
  if (name.ends_with(".npy")) return FileKind::kNumpyZip;
  if (name == "[Content_Types].xml" || name.starts_with("xl/") || name.starts_with("word/") || name == "mimetype")
    return FileKind::kOffice;
  return FileKind::kZip;
}

// True if the file begins like safetensors: 8 bytes with a length, then a JSON header.
bool is_safetensors(std::string_view bytes) {
  constexpr size_t kLength = 8;
  if (bytes.size() < kLength + 2 || bytes[kLength] != '{' ||
      (bytes[kLength + 1] != '"' && bytes[kLength + 1] != '}' && bytes[kLength + 1] != ' '))
    return false;
  return std::all_of(bytes.begin() + 4, bytes.begin() + kLength, [](char c) { return c == 0; });
}

// True for UTF-16 without a byte order mark: ASCII letters, each next to a 0 byte.
bool is_wide_text(std::string_view bytes) {
  constexpr size_t kMin = 16;
  if (bytes.size() < kMin) return false;
  for (const size_t first : {size_t{0}, size_t{1}}) {
    bool is_wide = true;
    for (size_t i = 0; i + 1 < std::min(bytes.size(), size_t{64}); i += 2) {
      const char letter = bytes[i + first], other = bytes[i + 1 - first];
      const bool is_letter = (letter >= ' ' && letter <= '~') || letter == '\n' || letter == '\r' || letter == '\t';
      is_wide = is_wide && is_letter && other == 0;
    }
    if (is_wide) return true;
  }
  return false;
}

FileKind kind_of_marked_text(std::string_view text) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  std::string begin(text.substr(0, 64));
  for (char& c : begin) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const char* tag : {"<!doctype html", "<html", "<head>", "<body"}) {
    if (begin.starts_with(tag)) return FileKind::kHtml;
  }
  return begin.starts_with("<?xml") ? FileKind::kXml : FileKind::kUnknown;
}

}  // namespace

FileKind kind_of(std::string_view beginning) {
  if (is_safetensors(beginning)) return FileKind::kSafetensors;
  if (beginning.starts_with("PK\x03\x04"sv) || beginning.starts_with("PK\x05\x06"sv)) return kind_of_zip(beginning);
  for (const Signature& signature : kSignatures) {
    if (beginning.size() >= signature.at && beginning.substr(signature.at).starts_with(signature.bytes))
      return signature.kind;
  }
  if (is_wide_text(beginning)) return FileKind::kUtf16;
  return kind_of_marked_text(beginning);
}

const KindWords* other_kind(std::string_view beginning, std::initializer_list<FileKind> taken) {
  const FileKind kind = kind_of(beginning.substr(0, kKindBytes));
  if (kind == FileKind::kUnknown || std::find(taken.begin(), taken.end(), kind) != taken.end()) return nullptr;
  return std::find_if(std::begin(kKindWords), std::end(kKindWords),
                      [kind](const KindWords& each) { return each.kind == kind; });
}

void refuse_other_kinds(const std::string& path, std::string_view beginning, const std::string& wanted,
                        std::initializer_list<FileKind> taken) {
  const KindWords* const other = other_kind(beginning, taken);
  if (other != nullptr)
    throw UserError(path + ": is " + other->name + ", and must be " + wanted + "; " + other->advice);
}

void refuse_other_kinds(const InputFile& file, const std::string& wanted, std::initializer_list<FileKind> taken) {
  std::string beginning(std::min(file.bytes(), kKindBytes), '\0');
  file.read(0, beginning.data(), beginning.size());
  refuse_other_kinds(file.path(), beginning, wanted, taken);
}

}  // namespace reprise
