// Tests damaged zip archives, the format of .pt2 files. An entry must be read as it was written, or
// the archive must be refused. A third of the changed bytes of an archive once silently changed
// weights.
#include <gtest/gtest.h>
#include <zlib.h>

#include <fstream>

#include "tests/interfaces/expect_user_error.h"
#include "tools/files/formats/zip_file.h"
#include "tools/files/io/input_file.h"

namespace reprise {
namespace {

struct Entry {
  std::string name, content;
  int64_t shift = 0;  // added to the entry's offset in the directory; 0 for a correct archive
};

std::string archive_of(const std::vector<Entry>& entries) {
  std::string file, directory;
  const auto put = [](std::string& to, uint64_t value, int count) {
    for (int i = 0; i < count; ++i) to += static_cast<char>(value >> (8 * i) & 0xff);
  };
  for (const Entry& entry : entries) {
    const uint64_t at = file.size() + static_cast<uint64_t>(entry.shift);
    const auto header = [&](std::string& to) {
      put(to, 0, 8), put(to, 0, 2);
      put(to, crc32_z(0, reinterpret_cast<const Bytef*>(entry.content.data()), entry.content.size()), 4);
      put(to, entry.content.size(), 4), put(to, entry.content.size(), 4), put(to, entry.name.size(), 2);
    };
    put(file, 0x04034b50, 4), header(file), put(file, 0, 2);
    file += entry.name + entry.content;
    put(directory, 0x02014b50, 4), put(directory, 0, 2), header(directory), put(directory, 0, 8), put(directory, 0, 4),
        put(directory, at, 4);
    directory += entry.name;
  }
  const uint64_t at = file.size();
  file += directory;
  put(file, 0x06054b50, 4), put(file, 0, 4), put(file, entries.size(), 2), put(file, entries.size(), 2),
      put(file, directory.size(), 4);
  put(file, at, 4), put(file, 0, 2);
  return file;
}

class Zip : public testing::Test {
 protected:
  // Returns the names and bytes of all entries.
  std::string read(const std::string& bytes) {
    std::ofstream(path_, std::ios::binary) << bytes;
    const InputFile file(path_);
    const ZipFile zip(file);
    std::string all;
    for (const auto& [name, entry] : zip.entries()) all += name + "=" + zip.text(entry) + ";";
    return all;
  }
  const TemporaryFolder folder_;
  const std::string path_ = folder_.file("a.pt2");
};

TEST_F(Zip, AChangedBitIsRefusedOrChangesNothing) {
  const std::string good = archive_of({{"net/a", "weights"}, {"net/b", std::string(50, 'x')}, {"net/empty", ""}}),
                    is = read(good);
  EXPECT_EQ(is, "net/a=weights;net/b=" + std::string(50, 'x') + ";net/empty=;");
  for (size_t i = 0; i < 8 * good.size(); ++i) {
    std::string bad = good;
    bad[i / 8] = static_cast<char>(bad[i / 8] ^ (1 << i % 8));
    try {
      EXPECT_EQ(read(bad), is) << i;
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find(path_), std::string::npos) << error.what();
    }
  }
}

TEST_F(Zip, WhatDoesNotFitTogetherIsNamed) {
  std::string bad = archive_of({{"net/a", "weights"}});
  bad[bad.find("weights")] = 'W';
  expect_user_error([&] { read(bad); }, {path_, "\"net/a\" is damaged: its CRC-32"});
  expect_user_error([&] { read(archive_of({{"net/a", "x"}, {"net/a", "x"}})); }, {"\"net/a\" stands in it twice"});
  const std::string inner = archive_of({{"b", "x"}});
  expect_user_error(
      [&] {
        read(archive_of({{"a", inner}, {"b", "x", 31 - static_cast<int64_t>(31 + inner.size())}}));
      },
      {"shares bytes"});
  expect_user_error([&] { read(archive_of({{std::string("a\0b", 3), "x"}})); }, {"is no name of an entry"});
}

}  // namespace
}  // namespace reprise
