// Reads a zip archive of stored (uncompressed) entries, which PyTorch writes. An entry's bytes are
// read in place; a compressed entry is refused with its name. Source: PKWARE's APPNOTE.TXT, in
// particular the central directory and the 64-bit form for archives above 4 GiB.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "tools/files/io/input_file.h"

namespace reprise {

// Where an entry is.
struct ZipEntry {
  uint64_t at = 0, bytes = 0;  // offset in the archive's file, and length
  uint32_t sum = 0;            // CRC-32 of the bytes
};

// An open archive.
class ZipFile {
 public:
  // Reads the whole archive once to check each entry's CRC-32. Throws UserError that names file and
  // byte if the archive is damaged, inconsistent or of another kind, or has entries that share
  // bytes. `file` must outlive this object.
  explicit ZipFile(const InputFile& file);

  static bool is_zip(const InputFile& file);  // True if the first four bytes are those of a zip archive.

  const std::map<std::string, ZipEntry>& entries() const { return entries_; }  // entries by their full names
  // Returns null if there is no such entry.
  const ZipEntry* find(const std::string& name) const;
  // Returns the bytes of an entry.
  std::string text(const ZipEntry& entry) const;

 private:
  void read_directory(uint64_t at, uint64_t end, uint64_t count);
  void require_apart() const;
  void check_sums() const;
  ZipEntry place(const std::string& name, uint64_t header, uint64_t bytes) const;
  [[noreturn]] void refuse(uint64_t at, const std::string& reason) const;
  const InputFile& file_;
  std::map<std::string, ZipEntry> entries_;  // by full name
};

}  // namespace reprise
