// A zip archive of entries that are stored as they are, which is how PyTorch writes its files.
// Here so that an entry's bytes are read where they lie: nothing is unpacked, and what is compressed is refused by its name.
// Source: PKWARE's APPNOTE.TXT; of it the central directory, and its 64-bit form, which an archive beyond 4 GiB has.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "tools/formats/input_file.h"

namespace reprise {

struct ZipEntry {
  uint64_t at = 0, bytes = 0;  // in the archive's file
  uint32_t sum = 0;            // CRC-32 of the bytes
};

class ZipFile {
 public:
  // Reads the whole archive once, to compare each entry's CRC-32. Throws UserError with file and byte for what is no such archive, is damaged,
  // has entries that share bytes, or does not fit together. The file must live longer.
  explicit ZipFile(const InputFile& file);

  static bool is_zip(const InputFile& file);  // by how it begins

  const std::map<std::string, ZipEntry>& entries() const { return entries_; }  // by their whole names
  const ZipEntry* find(const std::string& name) const;
  std::string text(const ZipEntry& entry) const;

 private:
  void read_directory(uint64_t at, uint64_t end, uint64_t count);
  void require_apart() const;
  void check_sums() const;
  ZipEntry place(const std::string& name, uint64_t header, uint64_t bytes) const;
  [[noreturn]] void refuse(uint64_t at, const std::string& reason) const;
  const InputFile& file_;
  std::map<std::string, ZipEntry> entries_;
};

}  // namespace reprise
