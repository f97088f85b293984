// Tests large, deep and crowded inputs of the simple file formats. Each input must be read in time
// proportional to its size, or refused by the limit that it exceeds. Reading the names of 50,000
// tensors once took half a minute.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/interfaces/expect_user_error.h"
#include "tools/files/formats/json_text.h"
#include "tools/files/formats/record_file.h"
#include "tools/files/formats/safetensors.h"
#include "tools/files/io/output_file.h"

namespace reprise {
namespace {

using nlohmann::json;

// Limit in seconds. A reader whose time is quadratic takes minutes for these inputs; a good reader
// on a busy machine does not.
constexpr double kLongestSeconds = 20;

template <typename Call>
void expect_quick(const Call& call) {
  const auto begin = std::chrono::steady_clock::now();
  call();
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), kLongestSeconds);
}

// Returns the text of a JSON object with `members` members: {"k0":VALUE,"k1":VALUE,...}.
std::string object_of(size_t members, const std::string& value) {
  std::string text = "{";
  for (size_t i = 0; i < members; ++i) text += (i == 0 ? "\"k" : ",\"k") + std::to_string(i) + "\":" + value;
  return text + "}";
}

TEST(Json, AnObjectOfManyMembersIsReadInTimeOfItsSize) {
  expect_quick([] {
    const std::string text = object_of(300000, "{\"a\":1}");
    EXPECT_EQ(parse_json(text, "f.json").size(), 300000u);
    EXPECT_EQ(parse_ordered_json(text, "f.json").size(), 300000u);
    EXPECT_EQ(place_of(text, "k299999.a"), " (line 1, column " + std::to_string(text.size() - 2) + ")");
  });
}

TEST(Json, KeysGivenTwiceAreRefusedInEveryReader) {
  const std::string text = "{\"a\": {\"b\": 1,\n \"b\": 2}}";
  const std::initializer_list<std::string> fragments = {"f.json: \"b\" is given twice", "(line 2, column 7)"};
  expect_user_error([&] { parse_json(text, "f.json"); }, fragments);
  expect_user_error([&] { parse_ordered_json(text, "f.json"); }, fragments);
  expect_user_error([&] { visit_json_members(text, "f.json", [](const std::string&, json&&) {}); }, fragments);
  EXPECT_EQ(parse_ordered_json("{\"b\":1,\"a\":[2,{}]}", "f.json").dump(), "{\"b\":1,\"a\":[2,{}]}");
}

TEST(Json, MembersAreVisitedOneByOne) {
  std::string seen;
  visit_json_members("{\"b\":[1,{\"c\":2}],\"a\":null,\"\":{}}", "f.json",
                     [&](const std::string& key, json&& value) { seen += key + value.dump() + ";"; });
  EXPECT_EQ(seen, "b[1,{\"c\":2}];anull;{};");
}

TEST(Json, PlacesAreThoseOfValues) {
  const std::string text = "{\"a\": [1, {\"b\":\n  2}],\n \"c.d\": 3, // words\n \"e\": /* one */ 4, \"\": {\"f\": 5}}";
  EXPECT_EQ(place_of(text, ""), " (line 1, column 1)");
  EXPECT_EQ(place_of(text, "a[0]"), " (line 1, column 8)");
  EXPECT_EQ(place_of(text, "a[1].b"), " (line 2, column 3)");
  EXPECT_EQ(place_of(text, "a[1].missing.more"), " (line 1, column 11)");
  EXPECT_EQ(place_of(text, "a[7]"), " (line 1, column 7)");
  EXPECT_EQ(place_of(text, "c.d"), " (line 3, column 9)");
  EXPECT_EQ(place_of(text, "e"), " (line 4, column 17)");
  EXPECT_EQ(place_of(text, "f"), " (line 4, column 30)");
  EXPECT_EQ(place_of(text, "missing"), "");
}

TEST(Json, DepthValuesAndBytesHaveLimits) {
  const auto nested = [](size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_NO_THROW(parse_json(nested(101), "f.json"));
  expect_user_error([&] { parse_json(nested(102), "f.json"); }, {"f.json: nested more than 100 deep"});
  expect_user_error([&] { parse_json(std::string(1000000, '['), "f.json"); }, {"f.json: nested more than 100 deep"});
  expect_user_error([&] { parse_ordered_json(std::string(1000000, '['), "f.json"); },
                    {"f.json: nested more than 100 deep"});
  std::string many = "[0";
  for (size_t i = 1; i < kMaxJsonValues + 5; ++i) many += ",0";
  expect_user_error([&] { parse_json(many + "]", "f.json"); }, {"f.json: holds more than 5000000 values"});
}

TEST(Json, ALongValueIsShownShort) {
  EXPECT_EQ(json_shown(json(std::string(1 << 26, 'x'))).size(), 63u);
  EXPECT_EQ(json_shown(json::parse("{\"a\":[1,2.5,null],\"b\":\"x\"}")), "{\"a\":[1,2.5,null],\"b\":\"x\"}");
  EXPECT_EQ(json_shown(json(std::vector<int>(1 << 20, 7))).substr(55), "7,7,7...");
}

// Returns a safetensors file with `count` tensors of one byte each.
std::string tensors_of(size_t count) {
  std::string header = "{";
  for (size_t i = 0; i < count; ++i) {
    const std::string begin = std::to_string(i), end = std::to_string(i + 1);
    header += (i == 0 ? "\"t" : ",\"t") + begin + "\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[" + begin +
              "," + end + "]}";
  }
  header += "}";
  const uint64_t bytes = header.size();
  return std::string(reinterpret_cast<const char*>(&bytes), sizeof bytes) + header + std::string(count, 'x');
}

TEST(Safetensors, ManyTensorsAreReadInTimeOfTheirNumber) {
  TemporaryFolder folder;
  const std::string path = folder.file("w.safetensors");
  write_file(path, tensors_of(150000));
  expect_quick([&] {
    const SafetensorsFile file(path);
    EXPECT_EQ(file.tensors().size(), 150000u);
    expect_user_error([&] { file.find("t150000", StoredType::kU8, {1}); }, {"missing", "there is \"t1"});
  });
}

TEST(Safetensors, ManyTensorsAreWrittenInTimeOfTheirNumber) {
  TemporaryFolder folder;
  const std::string path = folder.file("w.safetensors");
  expect_quick([&] {
    SafetensorsWriter writer(path);
    writer.add_metadata("format", "pt");
    for (int i = 0; i < 150000; ++i) writer.declare("t" + std::to_string(i), StoredType::kU8, {0});
    writer.finish();
  });
  EXPECT_EQ(SafetensorsFile(path).tensors().size(), 150000u);
  EXPECT_EQ(SafetensorsFile(path).metadata().at("format"), "pt");
}

// A header with a changed bit must be refused, or must name other tensors. No byte outside the file
// may be read.
TEST(Safetensors, EveryChangedBitOfAHeaderIsHandled) {
  TemporaryFolder folder;
  const std::string path = folder.file("w.safetensors"), good = tensors_of(3);
  for (size_t i = 0; i < 8 * good.size(); ++i) {
    std::string bad = good;
    bad[i / 8] = static_cast<char>(bad[i / 8] ^ (1 << i % 8));
    std::ofstream(path, std::ios::binary) << bad;
    try {
      const SafetensorsFile file(path);
      for (const auto& [name, tensor] : file.tensors())
        EXPECT_LE(tensor.offset + tensor.bytes, file.tensors().size() + good.size());
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find(path), std::string::npos) << error.what();
    }
  }
}

TEST(Records, AnObjectOfManyMembersIsReadInTimeOfItsSize) {
  TemporaryFolder folder;
  const std::string path = folder.file("d.jsonl");
  write_file(path, object_of(300000, "1") + "\n");
  expect_quick([&] { EXPECT_EQ(open_records(path)->read(0).size(), 300000u); });
}

TEST(Csv, ColumnsHaveALimit) {
  TemporaryFolder folder;
  const std::string path = folder.file("d.csv");
  const auto table = [](size_t columns) {
    std::string header, row;
    for (size_t i = 0; i < columns; ++i)
      header += (i == 0 ? "c" : ",c") + std::to_string(i), row += i == 0 ? "1" : ",1";
    return header + "\n" + row + "\n" + row + "\n";
  };
  write_file(path, table(16384));
  expect_quick([&] { EXPECT_EQ(open_records(path)->read(1).size(), 16384u); });
  write_file(path, table(16385));
  expect_user_error([&] { open_records(path); }, {path + ", line 1, the header: has more than 16384 columns"});
  write_file(path, table(1000000));
  expect_quick([&] { expect_user_error([&] { open_records(path); }, {"more than 16384 columns"}); });
}

TEST(WholeFiles, WhatIsNoFileIsRefusedWithoutWaiting) {
  TemporaryFolder folder;
  const std::string fifo = folder.file("fifo"), large = folder.file("large");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  expect_quick([&] { expect_user_error([&] { read_file(fifo); }, {fifo, "nothing came through this pipe for 2 s"}); });
  expect_user_error([&] { read_file("/dev/zero"); }, {"/dev/zero: cannot be read: must be a file or a pipe"});
  expect_user_error([&] { read_file(folder.path()); }, {folder.path(), "is a folder"});
  expect_user_error([&] { read_file(folder.file("none")); }, {"none: cannot be opened: No such file"});
  write_file(large, "");
  ASSERT_EQ(truncate(large.c_str(), off_t{1} << 40), 0);
  expect_user_error([&] { read_file(large); }, {large + ": larger than 256 MiB"});
}

TEST(WholeFiles, APipeIsReadToItsEnd) {
  TemporaryFolder folder;
  const std::string fifo = folder.file("fifo"), text(1 << 20, 'x');
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  std::thread writer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    std::ofstream pipe(fifo);
    pipe << text.substr(1) << std::flush;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    pipe << 'x';
  });
  EXPECT_EQ(read_file(fifo), text);
  writer.join();
}

}  // namespace
}  // namespace reprise
