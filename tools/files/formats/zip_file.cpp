// See zip_file.h. A record at the end of the archive states where the directory is, and the
// directory lists the entries.
#include "tools/files/formats/zip_file.h"

#include <zlib.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"
#include "tools/files/progress/long_work.h"

namespace reprise {
namespace {

constexpr uint32_t kLocalHeader = 0x04034b50, kDirectoryHeader = 0x02014b50, kEnd = 0x06054b50, kEnd64 = 0x06064b50,
                   kLocator64 = 0x07064b50;
constexpr uint64_t kLocalBytes = 30, kDirectoryBytes = 46, kEndBytes = 22, kEnd64Bytes = 56, kLocatorBytes = 20,
                   kMaxComment = 0xffff;
constexpr uint64_t kIn64 = 0xffffffff;  // stored in place of a value that only an extra field has
constexpr uint64_t kExtra64 = 1;
constexpr uint64_t kMaxDirectory = uint64_t{64} << 20;

// Reads little-endian numbers from a range of bytes of the file, which is kept in memory.
class Piece {
 public:
  Piece(const InputFile& file, uint64_t at, uint64_t bytes) : bytes_(bytes) { file.read(at, bytes_.data(), bytes); }
  uint64_t size() const { return bytes_.size(); }
  uint64_t number(uint64_t at, uint32_t count) const {
    uint64_t value = 0;
    for (uint32_t i = 0; i < count; ++i) value |= uint64_t{bytes_.at(at + i)} << (8 * i);
    return value;
  }
  std::string text(uint64_t at, uint64_t bytes) const {
    return std::string(bytes_.begin() + static_cast<int64_t>(at), bytes_.begin() + static_cast<int64_t>(at + bytes));
  }

 private:
  std::vector<unsigned char> bytes_;
};

// Reads an entry's extra fields in [at, end) of the directory. A value of `fields` that does not
// fit in 32 bits is kIn64; it is replaced by the next 64-bit value of the extra field.
void read_extra(const Piece& directory, uint64_t at, uint64_t end, std::initializer_list<uint64_t*> fields) {
  while (end - at >= 4) {
    const uint64_t id = directory.number(at, 2), bytes = directory.number(at + 2, 2);
    at += 4;
    if (bytes > end - at) return;
    uint64_t next = at;
    for (uint64_t* field : fields) {
      if (id != kExtra64 || *field != kIn64 || at + bytes - next < 8) continue;
      *field = directory.number(next, 8);
      next += 8;
    }
    at += bytes;
  }
}

}  // namespace

bool ZipFile::is_zip(const InputFile& file) {
  return file.bytes() >= 4 && Piece(file, 0, 4).number(0, 4) == kLocalHeader;
}

ZipFile::ZipFile(const InputFile& file) : file_(file) {
  if (file.bytes() < kEndBytes) refuse(0, "is too short");
  const uint64_t tail_bytes = std::min(file.bytes(), kEndBytes + kMaxComment), tail_at = file.bytes() - tail_bytes;
  const Piece tail(file, tail_at, tail_bytes);
  uint64_t end = tail_bytes - kEndBytes;
  while (tail.number(end, 4) != kEnd) {
    if (end-- == 0) refuse(file.bytes(), "has no directory at its end, as if it were cut off");
  }
  uint64_t count = tail.number(end + 10, 2), bytes = tail.number(end + 12, 4), at = tail.number(end + 16, 4);
  if (end >= kLocatorBytes && tail.number(end - kLocatorBytes, 4) == kLocator64) {
    const uint64_t end64 = tail.number(end - kLocatorBytes + 8, 8);
    if (file.bytes() < kEnd64Bytes || end64 > file.bytes() - kEnd64Bytes)
      refuse(end64, "its 64-bit directory is not there");
    const Piece record(file, end64, kEnd64Bytes);
    if (record.number(0, 4) != kEnd64) refuse(end64, "its 64-bit directory is not there");
    count = record.number(32, 8), bytes = record.number(40, 8), at = record.number(48, 8);
  }
  if (at > file.bytes() || bytes > file.bytes() - at) refuse(at, "its directory is not there");
  if (bytes > kMaxDirectory)
    refuse(at, "its directory is larger than " + std::to_string(kMaxDirectory >> 20) + " MiB");
  read_directory(at, at + bytes, count);
  require_apart();
  check_sums();
}

void ZipFile::require_apart() const {
  std::vector<std::pair<ZipEntry, const std::string*>> sorted;
  for (const auto& [name, entry] : entries_) sorted.emplace_back(entry, &name);
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.first.at < b.first.at; });
  uint64_t end = 0;
  for (const auto& [entry, name] : sorted) {
    if (entry.at < end) refuse(entry.at, json_shown(*name) + " shares bytes with another entry");
    end = entry.at + entry.bytes;
  }
}

void ZipFile::check_sums() const {
  LongWork work("checking " + file_.path());
  std::vector<Bytef> piece(size_t{1} << 20);
  uint64_t done = 0;
  for (const auto& [name, entry] : entries_) {
    uLong sum = crc32_z(0, nullptr, 0);
    for (uint64_t at = 0; at < entry.bytes; at += piece.size()) {
      const uint64_t bytes = std::min<uint64_t>(piece.size(), entry.bytes - at);
      file_.read(entry.at + at, piece.data(), bytes);
      sum = crc32_z(sum, piece.data(), bytes);
      work.done(static_cast<double>(done += bytes) / static_cast<double>(file_.bytes()));
    }
    if (sum != entry.sum) refuse(entry.at, json_shown(name) + " is damaged: its CRC-32 is not that of its bytes");
  }
}

void ZipFile::read_directory(uint64_t begin, uint64_t end, uint64_t count) {
  const Piece directory(file_, begin, end - begin);
  uint64_t at = 0;
  for (uint64_t n = 0; n < count; ++n) {
    if (directory.size() - at < kDirectoryBytes || directory.number(at, 4) != kDirectoryHeader)
      refuse(begin + at, "its directory has no entry here");
    const uint64_t flags = directory.number(at + 8, 2), method = directory.number(at + 10, 2);
    uint64_t packed = directory.number(at + 20, 4), bytes = directory.number(at + 24, 4),
             header = directory.number(at + 42, 4);
    const uint64_t name_bytes = directory.number(at + 28, 2), extra_bytes = directory.number(at + 30, 2),
                   comment_bytes = directory.number(at + 32, 2);
    const uint64_t name_at = at + kDirectoryBytes, extra_at = name_at + name_bytes;
    if (name_bytes + extra_bytes + comment_bytes > directory.size() - name_at)
      refuse(begin + at, "its directory ends within an entry");
    const std::string name = directory.text(name_at, name_bytes);
    read_extra(directory, extra_at, extra_at + extra_bytes, {&bytes, &packed, &header});
    if (method != 0 || (flags & 1) != 0 || packed != bytes)
      refuse(begin + at, json_shown(name) +
                             " is compressed or encrypted; an archive of stored entries is wanted, as torch writes it");
    if (name.empty() || name.find('\0') != std::string::npos)
      refuse(begin + at, json_shown(name) + " is no name of an entry");
    ZipEntry entry = place(name, header, bytes);
    entry.sum = static_cast<uint32_t>(directory.number(at + 16, 4));
    if (!entries_.emplace(name, entry).second) refuse(begin + at, json_shown(name) + " stands in it twice");
    at = extra_at + extra_bytes + comment_bytes;
  }
  if (at != directory.size()) refuse(begin + at, "its directory has more entries than it says");
}

// Returns where an entry's bytes are. They follow a local header, whose length is read from the
// file because its extra fields may differ from those in the directory.
ZipEntry ZipFile::place(const std::string& name, uint64_t header, uint64_t bytes) const {
  if (file_.bytes() < kLocalBytes || header > file_.bytes() - kLocalBytes)
    refuse(header, json_shown(name) + " is not there");
  const Piece local(file_, header, kLocalBytes);
  const uint64_t at = header + kLocalBytes + local.number(26, 2) + local.number(28, 2);
  if (local.number(0, 4) != kLocalHeader || at > file_.bytes() || bytes > file_.bytes() - at)
    refuse(header, json_shown(name) + " is not there");
  if (local.number(26, 2) != name.size() ||
      Piece(file_, header + kLocalBytes, name.size()).text(0, name.size()) != name)
    refuse(header, json_shown(name) + " has another name here than in the directory");
  return {.at = at, .bytes = bytes};
}

const ZipEntry* ZipFile::find(const std::string& name) const {
  const auto found = entries_.find(name);
  return found == entries_.end() ? nullptr : &found->second;
}

std::string ZipFile::text(const ZipEntry& entry) const {
  std::string text(entry.bytes, '\0');
  file_.read(entry.at, text.data(), text.size());
  return text;
}

void ZipFile::refuse(uint64_t at, const std::string& reason) const {
  throw UserError(file_.path() + ": byte " + std::to_string(at) + ": " + reason + "; a zip archive is wanted");
}

}  // namespace reprise
