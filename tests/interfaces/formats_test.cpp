// Tests safetensors files and snapshot folders: round trips, every kind of damage, full disks, and
// kills at any moment. A damaged file can cost a user a whole training.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <stdexcept>

#include "tests/interfaces/expect_user_error.h"
#include "tests/interfaces/soak.h"
#include "tests/interfaces/stored_bytes.h"
#include "tools/files/formats/safetensors.h"
#include "tools/files/io/input_file.h"
#include "tools/files/io/output_file.h"
#include "tools/files/io/snapshot_directory.h"

namespace {
bool exchange_works = true;
std::set<ino_t>* flushed = nullptr;  // null, or collects the files that have been flushed so far
std::set<ino_t> flushed_before_exchange;
}  // namespace

// These two functions override libc's. With them a test simulates a file system that cannot
// exchange two names. A flush takes milliseconds and matters only if the power fails, so it is
// recorded but not performed.
extern "C" int renameat2(int old_folder, const char* old_path, int new_folder, const char* new_path,
                         unsigned flags) noexcept {
  if (flushed != nullptr) flushed_before_exchange = *flushed;
  if (!exchange_works) {
    errno = EINVAL;
    return -1;
  }
  return static_cast<int>(syscall(SYS_renameat2, old_folder, old_path, new_folder, new_path, flags));
}

extern "C" int fsync(int descriptor) {
  struct stat status;
  if (fstat(descriptor, &status) != 0) return -1;
  if (flushed != nullptr) flushed->insert(status.st_ino);
  return 0;
}

namespace reprise {
namespace {

namespace fs = std::filesystem;

// Returns a safetensors file with this header and `data_bytes` bytes of data: 0, 1, 2, ...
std::string raw_file(const std::string& header, size_t data_bytes) {
  const uint64_t header_bytes = header.size();
  std::string text(reinterpret_cast<const char*>(&header_bytes), sizeof header_bytes);
  text += header;
  for (size_t i = 0; i < data_bytes; ++i) text += static_cast<char>(i);
  return text;
}

TEST(Safetensors, RoundTripInPieces) {
  TemporaryFolder folder;
  const std::string path = folder.file("w.safetensors");
  const float weight[6] = {1, -2, 3.5f, 0, 1e-30f, 6};
  const int64_t step = 77;
  const auto write_all = [&] {
    SafetensorsWriter writer(path);
    writer.add_metadata("format", "pt");
    writer.declare("weight \"x\"", StoredType::kF32, {2, 3});
    writer.declare("empty", StoredType::kF32, {0, 5});
    writer.declare("step", StoredType::kI64, {});
    writer.write(weight, 5);  // pieces need not end where tensors or elements do
    writer.write(reinterpret_cast<const char*>(weight) + 5, sizeof weight - 5);
    writer.write(&step, sizeof step);
    writer.finish();
  };
  write_all();
  const std::string bytes = read_file(path);
  write_all();
  EXPECT_EQ(read_file(path), bytes) << "equal calls must give equal bytes";

  uint64_t header_bytes;
  std::memcpy(&header_bytes, bytes.data(), sizeof header_bytes);
  EXPECT_EQ((8 + header_bytes) % 8, 0u);
  const SafetensorsFile file(path);
  EXPECT_EQ(file.tensors().size(), 3u);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(std::memcmp(stored_bytes(file, file.find("weight \"x\"", StoredType::kF32, {2, 3})).data(), weight,
                        sizeof weight),
            0);
  EXPECT_EQ(std::memcmp(stored_bytes(file, file.find("step", StoredType::kI64, {})).data(), &step, sizeof step), 0);
  float third = 0;  // a part from the middle
  file.read(file.find("weight \"x\"", StoredType::kF32, {2, 3}), 2 * sizeof third, &third, sizeof third);
  EXPECT_EQ(third, 3.5f);
  EXPECT_EQ(file.find("empty", StoredType::kF32, {0, 5}).bytes, 0u);
  EXPECT_TRUE(file.contains("step"));
  EXPECT_FALSE(file.contains("stop"));
}

TEST(Safetensors, FindNamesWhatIsThereAndWhatWouldBeRight) {
  TemporaryFolder folder;
  const std::string path = folder.file("w.safetensors");
  write_file(path, raw_file(R"({"fc.weight":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]}})", 8));
  const SafetensorsFile file(path);
  expect_user_error(
      [&] {
        file.find("fc.weigt", StoredType::kF32, {1, 2});
      },
      {path, "fc.weigt", "missing", "F32 [1,2]", "there is \"fc.weight\""});
  expect_user_error(
      [&] {
        file.find("fc.weight", StoredType::kF32, {2, 1});
      },
      {path, "\"fc.weight\"", "is F32 [1,2]", "must be F32 [2,1]"});
  expect_user_error(
      [&] {
        file.find("fc.weight", StoredType::kBf16, {1, 2});
      },
      {path, "is F32 [1,2]", "must be BF16 [1,2]"});
}

struct BadFile {
  const char* id;
  const char* header;
  size_t data_bytes;
  std::initializer_list<std::string> fragments;
};

const BadFile kBadFiles[] = {
    {"not JSON", R"({"a":)", 0, {"header", "not JSON"}},
    {"no object", R"([1])", 0, {"must begin with '{'"}},
    {"empty header", "", 0, {"must begin with '{'"}},
    {"tensor no object", R"({"a":3})", 0, {"tensor \"a\"", "dtype, shape and data_offsets"}},
    {"no dtype", R"({"a":{"shape":[1],"data_offsets":[0,4]}})", 4, {"tensor \"a\"", "dtype"}},
    {"no shape", R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", 4, {"tensor \"a\"", "shape"}},
    {"no offsets", R"({"a":{"dtype":"F32","shape":[1]}})", 4, {"tensor \"a\"", "data_offsets"}},
    {"foreign key",
     R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}})",
     4,
     {"tensor \"a\"", "nothing else"}},
    {"dtype unknown", R"({"a":{"dtype":"F31","shape":[1],"data_offsets":[0,4]}})", 4, {"tensor \"a\"", "F31", "F32"}},
    {"dtype number", R"({"a":{"dtype":32,"shape":[1],"data_offsets":[0,4]}})", 4, {"tensor \"a\"", "dtype 32"}},
    {"negative shape",
     R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})",
     4,
     {"tensor \"a\"", "shape", "[-1]"}},
    {"shape no list", R"({"a":{"dtype":"F32","shape":1,"data_offsets":[0,4]}})", 4, {"tensor \"a\"", "shape"}},
    {"shape overflows",
     R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})",
     0,
     {"tensor \"a\"", "too large"}},
    {"offsets fall",
     R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})",
     4,
     {"tensor \"a\"", "rising", "[4,0]"}},
    {"three offsets",
     R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,4]}})",
     4,
     {"tensor \"a\"", "data_offsets"}},
    {"span",
     R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})",
     4,
     {"tensor \"a\"", "span 4", "F32 [2] needs 8"}},
    {"truncated",
     R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
     7,
     {"tensor \"a\"", "byte 8", "has 7", "truncated"}},
    {"too long", R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 9, {"cover 8", "9 bytes"}},
    {"gap",
     R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
     3,
     {"tensor \"b\"", "byte 2", "ends at 1"}},
    {"overlap",
     R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
     3,
     {"tensor \"b\"", "byte 1", "ends at 2"}},
    {"late start",
     R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
     2,
     {"tensor \"a\"", "byte 1", "ends at 0"}},
    {"twice",
     R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
     1,
     {"\"a\"", "twice"}},
    {"metadata", R"({"__metadata__":{"a":1}})", 0, {"__metadata__", "strings"}},
};

TEST(Safetensors, DamageIsRefusedInOneLine) {
  TemporaryFolder folder;
  const std::string path = folder.file("bad.safetensors");
  for (const BadFile& bad : kBadFiles) {
    SCOPED_TRACE(bad.id);
    write_file(path, raw_file(bad.header, bad.data_bytes));
    expect_user_error([&] { SafetensorsFile file(path); }, bad.fragments);
    expect_user_error([&] { SafetensorsFile file(path); }, {path});
  }
  const uint64_t huge = ~uint64_t{0};
  write_file(path, std::string(reinterpret_cast<const char*>(&huge), 8) + "{}");
  expect_user_error([&] { SafetensorsFile file(path); }, {path, "header", "truncated"});
  expect_user_error([&] { SafetensorsFile file(folder.file("none")); }, {folder.file("none"), "No such file"});
  expect_user_error([&] { SafetensorsFile file(folder.path()); }, {folder.path(), "regular file"});
}

// After any cut, or any change of one byte, a file must give a UserError, or tensors that are
// inside the file.
TEST(Safetensors, EveryCutAndEveryChangedByteIsHandled) {
  TemporaryFolder folder;
  const std::string path = folder.file("w.safetensors");
  const std::string good = raw_file(
      R"({"__metadata__":{"k":"v"},"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},"b":{"dtype":"I64","shape":[1],"data_offsets":[8,16]}})",
      16);
  write_file(path, good);
  SafetensorsFile whole(path);
  for (size_t length = 0; length < good.size(); ++length) {
    write_file(path, good.substr(0, length));
    expect_user_error([&] { SafetensorsFile file(path); }, {path});
  }
  for (size_t i = 0; i < good.size(); ++i) {
    for (const char c : {'\0', '9', '"', '}', '\xff'}) {
      std::string changed = good;
      changed[i] = c;
      write_file(path, changed);
      try {
        const SafetensorsFile file(path);
        unsigned sum = 0;
        for (const auto& [name, tensor] : file.tensors()) {
          for (const unsigned char byte : stored_bytes(file, tensor)) sum += byte;  // a read outside is refused
        }
        EXPECT_LT(sum, 16 * 256u);
      } catch (const UserError& error) {
        EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
      }
    }
  }
}

// InputFile must report bytes that are gone. If the file were mapped into memory, reading them
// would end the program with SIGBUS.
TEST(InputFile, WhatIsGoneIsRefusedInOneLine) {
  TemporaryFolder folder;
  const std::string path = folder.file("f");
  write_file(path, std::string(10000, 'x') + "tail");
  const InputFile file(path);
  EXPECT_EQ(file.bytes(), 10004u);
  char bytes[5] = "";
  file.read(10000, bytes, 4);
  EXPECT_STREQ(bytes, "tail");
  fs::resize_file(path, 10002);
  file.read(9000, bytes, 4);
  for (const uint64_t at : {uint64_t{10000}, uint64_t{10003}}) {  // half of the range is missing, or the whole range
    expect_user_error([&] { file.read(at, bytes, 1 + (10003 - at)); },
                      {path, "has become shorter while it was in use", "10004 bytes", "10002 now"});
  }
  write_file(path + ".new", "another");
  fs::rename(path + ".new", path);  // replaced by name: the open file does not change
  file.read(10000, bytes, 2);
  EXPECT_THROW(file.read(10000, bytes, 5), std::logic_error);
  EXPECT_THROW(file.read(~uint64_t{0}, bytes, 2), std::logic_error);
}

// Returns how many of the file's first `bytes` bytes the system's page cache contains.
uint64_t cached_bytes(const std::string& path, uint64_t bytes) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  void* const mapped = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, descriptor, 0);
  const uint64_t page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> pages(bytes / page);
  EXPECT_EQ(::mincore(mapped, bytes, pages.data()), 0);
  ::munmap(mapped, bytes);
  ::close(descriptor);
  return page * static_cast<uint64_t>(
                    std::count_if(pages.begin(), pages.end(), [](unsigned char flags) { return (flags & 1) != 0; }));
}

TEST(InputFile, ALargeModelLeavesNoSecondCopyInThePageCache) {
  TemporaryFolder folder;
  constexpr uint64_t kRead = 8 << 20;
  // Reads the file's first bytes in pieces until the cache contains at most `maximum` of them.
  // Repeats this, because a file system may keep newly written bytes in the cache for a moment.
  const auto cached_after_reading = [&](uint64_t file_bytes, uint64_t maximum) {
    const std::string path = folder.file("f");
    write_file(path, std::string(kRead, 'x'));
    fs::resize_file(path, file_bytes);
    ::sync();
    uint64_t cached = 0;
    for (int tries = 0; tries == 0 || (tries < 200 && cached > maximum); ++tries) {
      const InputFile file(path);
      std::vector<char> piece(60001);
      for (uint64_t at = 0; at < kRead; at += piece.size())
        file.read(at, piece.data(), std::min<uint64_t>(piece.size(), kRead - at));
      cached = cached_bytes(path, kRead);
      ::usleep(10000);
    }
    return cached;
  };
  if (cached_after_reading(kRead, kRead) < kRead) GTEST_SKIP() << "this file system keeps nothing in the page cache";
  const uint64_t memory =
      static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  EXPECT_LE(cached_after_reading(memory / 8, 2 << 20), uint64_t{2} << 20);
}

TEST(Safetensors, ATensorThatIsGoneIsRefusedInOneLine) {
  TemporaryFolder folder;
  const std::string path = folder.file("w.safetensors");
  write_file(
      path,
      raw_file(
          R"({"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},"b":{"dtype":"I64","shape":[1],"data_offsets":[8,16]}})",
          16));
  const SafetensorsFile file(path);
  fs::resize_file(path, fs::file_size(path) - 1);
  EXPECT_EQ(stored_bytes(file, file.tensors().at("a")), (std::vector<unsigned char>{0, 1, 2, 3, 4, 5, 6, 7}));
  expect_user_error([&] { stored_bytes(file, file.tensors().at("b")); },
                    {path, "has become shorter while it was in use"});
  char byte;
  EXPECT_THROW(file.read(file.tensors().at("a"), 8, &byte, 1), std::logic_error) << "a tensor's bytes are its own";
}

TEST(Safetensors, WriterHoldsItsCallerToTheDeclaration) {
  TemporaryFolder folder;
  const std::string path = folder.file("w.safetensors");
  {
    SafetensorsWriter writer(path);
    writer.declare("a", StoredType::kF32, {1});
    EXPECT_THROW(writer.declare("a", StoredType::kF32, {1}), std::logic_error);
    EXPECT_THROW(writer.finish(), std::logic_error);
    const double too_much = 1;
    EXPECT_THROW(writer.write(&too_much, sizeof too_much), std::logic_error);
    EXPECT_THROW(writer.declare("b", StoredType::kF32, {1}), std::logic_error);
    EXPECT_TRUE(fs::exists(path));
  }
  EXPECT_FALSE(fs::exists(path)) << "an unfinished file must not stay";
}

TEST(Safetensors, NoTensorsIsAFileToo) {
  TemporaryFolder folder;
  SafetensorsWriter(folder.file("w")).finish();
  EXPECT_TRUE(SafetensorsFile(folder.file("w")).tensors().empty());
}

TEST(OutputFile, FullDevice) {
  expect_user_error([] { write_file("/dev/full", "text"); }, {"/dev/full", "cannot be written", "No space left"});
  EXPECT_TRUE(fs::exists("/dev/full"));
  expect_user_error([] {
    SafetensorsWriter writer("/dev/full");
    writer.declare("a", StoredType::kU8, {3});
    writer.write("abc", 3);
    writer.finish();
  }, {"/dev/full", "No space left"});
  expect_user_error([] { write_file("/nowhere/x", ""); }, {"/nowhere/x", "cannot be created", "No such file"});
}

// Calls `body` in a new process whose files may not be larger than `file_bytes`. `body` must return
// true.
template <typename Body>
void expect_in_child_with_file_limit(rlim_t file_bytes, const Body& body) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {file_bytes, file_bytes};
    bool right = false;
    if (setrlimit(RLIMIT_FSIZE, &limit) == 0) right = body();
    _exit(right ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
}

const FolderKind kNames = {"snapshot", {"model", "state"}, [](const std::string& folder) {
                             return fs::exists(folder + "/state");
                           }};

void write_snapshot(const std::string& path, const std::string& weights, const std::string& state) {
  SnapshotDirectory snapshot(path, kNames);
  snapshot.begin();
  write_file(snapshot.file("model"), weights);
  write_file(snapshot.file("state"), state);
  snapshot.commit();
}

TEST(SnapshotDirectory, FullDiskLeavesTheLastGoodSnapshot) {
  TemporaryFolder folder;
  const std::string path = folder.file("out");
  write_snapshot(path, "good", "good");
  expect_in_child_with_file_limit(1000, [&] {
    try {
      write_snapshot(path, "new", std::string(5000, 'x'));
      return false;
    } catch (const UserError& error) {
      return std::string(error.what()).find("out.saving/new/state: cannot be written: File too large") !=
             std::string::npos;
    }
  });
  EXPECT_EQ(read_file(path + "/model"), "good");
  EXPECT_EQ(read_file(path + "/state"), "good");
  EXPECT_FALSE(fs::exists(path + ".saving"));
}

class SnapshotExchange : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override { exchange_works = GetParam(); }
  void TearDown() override { exchange_works = true; }
};

TEST_P(SnapshotExchange, ReplacesAndLeavesNothingElse) {
  TemporaryFolder folder;
  const std::string path = folder.file("deep/er/out");
  for (const char* generation : {"first", "second", "third"}) {
    write_snapshot(path + (generation[0] == 's' ? "/" : ""), generation, generation);
    EXPECT_EQ(read_file(path + "/model"), generation);
    EXPECT_EQ(std::distance(fs::directory_iterator(folder.file("deep/er")), fs::directory_iterator()), 1);
  }
}

ino_t inode(const std::string& path) {
  struct stat status;
  EXPECT_EQ(stat(path.c_str(), &status), 0) << path;
  return status.st_ino;
}

TEST(SnapshotDirectory, IsFlushedBeforeItTakesItsName) {
  TemporaryFolder folder;
  const std::string path = folder.file("out");
  write_snapshot(path, "first", "first");
  std::set<ino_t> all;
  flushed = &all;
  {
    SnapshotDirectory snapshot(path, kNames);
    snapshot.begin();
    for (const char* name : {"model", "state"}) std::ofstream(snapshot.file(name)) << "second";  // without fsync
    snapshot.commit();
  }
  flushed = nullptr;
  for (const std::string& part : {path, path + "/model", path + "/state"}) {
    EXPECT_EQ(flushed_before_exchange.count(inode(part)), 1u) << part;
  }
  EXPECT_EQ(all.count(inode(folder.path())), 1u) << "the exchange itself must reach the disk";
}

TEST_P(SnapshotExchange, WhatAKilledRunLeftIsTakenUp) {
  TemporaryFolder folder;
  const std::string path = folder.file("out");
  fs::create_directories(path + ".saving/new");
  write_file(path + ".saving/lock", "reprise 1\n");  // no process holds the lock
  write_file(path + ".saving/new/model", "half written");
  write_snapshot(path, "m", "s");
  EXPECT_FALSE(fs::exists(path + ".saving"));
  EXPECT_EQ(read_file(path + "/model"), "m");
  for (const char* content : {"", "reprise "}) {  // as if killed before or while the lock was written
    fs::create_directories(path + ".saving");
    write_file(path + ".saving/lock", content);
    write_snapshot(path, "again", "s");
    EXPECT_FALSE(fs::exists(path + ".saving"));
  }
}

TEST(SnapshotDirectory, RefusalNamesTheOptionThatGaveTheFolder) {
  TemporaryFolder folder;
  const std::string path = folder.file("adapter");
  FolderKind adapters = kNames;
  adapters.option = "--adapter";
  const SnapshotDirectory first(path, adapters);
  expect_user_error([&] { SnapshotDirectory second(path, adapters); },
                    {"another run saves there", "give --adapter another folder"});
  expect_user_error([&] { SnapshotDirectory second(path, kNames); }, {"give --save another folder"});
}

// A user's files must remain, whatever their names are.
TEST_P(SnapshotExchange, NothingOfSomebodyElsesIsRemoved) {
  TemporaryFolder folder;
  const std::string path = folder.file("out");
  const std::map<std::string, std::string> precious = {{path + ".tmp", "a file"},
                                                       {path + ".old/thesis", "years"},
                                                       {path + ".new/notes", "more years"}};
  for (const auto& [file, content] : precious) {
    fs::create_directories(fs::path(file).parent_path());
    write_file(file, content);
  }
  for (const char* generation : {"first", "second"}) write_snapshot(path, generation, generation);
  for (const auto& [file, content] : precious) EXPECT_EQ(read_file(file), content);

  fs::create_directories(path + ".saving");
  write_file(path + ".saving/thesis", "years");
  expect_user_error([&] { write_snapshot(path, "third", "third"); }, {"out.saving", "in the way"});
  write_file(path + ".saving/lock", "my own lock");
  expect_user_error([&] { write_snapshot(path, "third", "third"); }, {"out.saving/lock", "no lock of a run"});
  EXPECT_EQ(read_file(path + ".saving/lock"), "my own lock");
  write_file(path + ".saving/lock", "reprise 1\n");
  fs::create_directories(path + ".saving/new");
  write_file(path + ".saving/new/thesis", "years");
  expect_user_error([&] { write_snapshot(path, "third", "third"); }, {"out.saving/new", "not a snapshot's"});
  EXPECT_EQ(read_file(path + ".saving/new/thesis"), "years");
  EXPECT_EQ(read_file(path + ".saving/thesis"), "years");
  EXPECT_EQ(read_file(path + "/model"), "second");
  fs::remove_all(path + ".saving");
  write_file(path + ".saving", "a file");
  expect_user_error([&] { write_snapshot(path, "third", "third"); }, {"out.saving", "in the way"});
  EXPECT_EQ(read_file(path + ".saving"), "a file");
  fs::remove(path + ".saving");
  fs::create_symlink("nowhere", path + ".saving");
  expect_user_error([&] { write_snapshot(path, "third", "third"); }, {"out.saving", "in the way"});
  fs::remove(path + ".saving");
}

TEST(SnapshotDirectory, OneRunSavesAtATime) {
  TemporaryFolder folder;
  const std::string path = folder.file("out");
  write_snapshot(path, "good", "good");
  {
    const SnapshotDirectory first(path, kNames);
    expect_user_error([&] { SnapshotDirectory second(path, kNames); },
                      {path, "another run", std::to_string(getpid()), "another folder"});
    EXPECT_EQ(read_file(path + "/model"), "good");
  }
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    SnapshotDirectory held(path, kNames);
    held.begin();
    write_file(held.file("model"), "half");
    if (write(ready[1], "r", 1) == 1) pause();
    _exit(0);
  }
  char byte;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  expect_user_error([&] { write_snapshot(path, "mine", "mine"); }, {path, "another run", std::to_string(child)});
  kill(child, SIGKILL);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(read_file(path + "/model"), "good");
  write_snapshot(path, "mine", "mine");  // the lock of `path` is stale
  EXPECT_EQ(read_file(path + "/model"), "mine");
  EXPECT_FALSE(fs::exists(path + ".saving"));
  close(ready[0]), close(ready[1]);
}

// Two processes write snapshots to one folder. Both must succeed at times, and all files of a
// snapshot must be from one process.
TEST(SnapshotDirectory, TwoWritersNeverMix) {
  TemporaryFolder folder;
  const std::string path = folder.file("out");
  pid_t children[2];
  for (int c = 0; c < 2; ++c) {
    children[c] = fork();
    ASSERT_GE(children[c], 0);
    if (children[c] != 0) continue;
    for (int saved = 0; saved < soaked(50);) {
      const std::string content = std::to_string(c) + std::string(3000, 'x') + std::to_string(saved);
      try {
        write_snapshot(path, content, content);
        ++saved;
      } catch (const UserError& error) {
        if (std::string(error.what()).find("another run") != std::string::npos) continue;
        std::fprintf(stderr, "writer %d: %s\n", c, error.what());
        _exit(1);
      }
    }
    _exit(0);
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  EXPECT_EQ(read_file(path + "/model"), read_file(path + "/state"));
  EXPECT_FALSE(fs::exists(path + ".saving"));
}

// A child saves one generation after another until it is killed. At any moment the folder must
// contain one complete generation, not older than the last generation whose commit() returned in
// the child.
TEST_P(SnapshotExchange, KilledAtAnyMoment) {
  constexpr unsigned kSeed = 20240917;
  const int kills = soaked(60);
  TemporaryFolder folder;
  const std::string path = folder.file("out");
  std::mt19937 random(kSeed);
  void* shared = mmap(nullptr, sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  volatile uint64_t* committed = static_cast<uint64_t*>(shared);
  const auto content = [](uint64_t generation) {
    return std::string(20000, static_cast<char>('a' + generation % 26)) + std::to_string(generation);
  };
  for (int kill_number = 0; kill_number < kills; ++kill_number) {
    SCOPED_TRACE("seed " + std::to_string(kSeed) + " kill " + std::to_string(kill_number));
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (uint64_t generation = *committed + 1;; ++generation) {
        write_snapshot(path, content(generation), content(generation));
        *committed = generation;
      }
    }
    usleep(static_cast<useconds_t>(random() % 15000));
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "the child ended by itself";
    // The child was killed before its first save.
    if (*committed == 0 && !fs::exists(path) && !fs::exists(path + ".saving/old")) continue;
    recover_snapshot(path, kNames);
    const std::string model = read_file(path + "/model");
    ASSERT_GT(model.size(), 20000u);
    const uint64_t generation = std::stoull(model.substr(20000));
    EXPECT_EQ(model, content(generation));
    EXPECT_EQ(read_file(path + "/state"), content(generation));
    EXPECT_GE(generation, *committed);
    *committed = generation;
  }
  EXPECT_GT(*committed, 0u) << "no child lived long enough to save";
  munmap(shared, sizeof(uint64_t));
}

INSTANTIATE_TEST_SUITE_P(Exchange, SnapshotExchange, testing::Bool(),
                         [](const auto& info) { return info.param ? "Offered" : "Missing"; });

TEST(SnapshotDirectory, WithoutCommitNothingChanges) {
  TemporaryFolder folder;
  const std::string path = folder.file("out");
  write_snapshot(path, "good", "good");
  {
    SnapshotDirectory snapshot(path, kNames);
    snapshot.begin();
    write_file(snapshot.file("model"), "half");
  }
  EXPECT_EQ(read_file(path + "/model"), "good");
  EXPECT_FALSE(fs::exists(path + ".saving"));
}

TEST(SnapshotDirectory, NeverDestroysWhatIsNotASnapshot) {
  TemporaryFolder folder;
  const std::string path = folder.file("home");
  fs::create_directories(path);
  write_file(path + "/thesis.tex", "years");
  expect_user_error([&] { write_snapshot(path, "m", "s"); }, {path, "thesis.tex", "another folder"});
  EXPECT_EQ(read_file(path + "/thesis.tex"), "years");
  EXPECT_FALSE(fs::exists(path + ".saving"));
  expect_user_error([&] { SnapshotDirectory refused(path, kNames); }, {path, "thesis.tex"});
  write_file(folder.file("plain"), "file");
  expect_user_error([&] { write_snapshot(folder.file("plain"), "m", "s"); }, {folder.file("plain"), "no folder"});
  expect_user_error([&] { SnapshotDirectory refused(folder.file("plain"), kNames); },
                    {folder.file("plain"), "no folder"});
  EXPECT_EQ(read_file(folder.file("plain")), "file");
}

TEST(SnapshotDirectory, TargetIsCheckedBeforeTheRun) {
  TemporaryFolder folder;
  { const SnapshotDirectory taken(folder.file("new/out"), kNames); }
  write_snapshot(folder.file("out"), "m", "s");
  { const SnapshotDirectory taken(folder.file("out"), kNames); }
  EXPECT_EQ(read_file(folder.file("out/model")), "m");
  expect_user_error([] { SnapshotDirectory refused("/dev/null/out", kNames); }, {"/dev/null/out.saving"});
  expect_user_error([] { SnapshotDirectory refused("", kNames); }, {"path"});
  expect_user_error([] { SnapshotDirectory refused("/", kNames); }, {"/"});
  expect_user_error([&] { recover_snapshot(folder.file("nothing"), kNames); }, {folder.file("nothing"), "no folder"});
}

TEST(SnapshotDirectory, SymbolicLinkStaysALink) {
  TemporaryFolder folder;
  write_snapshot(folder.file("real"), "m", "s");
  fs::create_directory_symlink(folder.file("real"), folder.file("link"));
  write_snapshot(folder.file("link"), "m2", "s2");
  EXPECT_TRUE(fs::is_symlink(folder.file("link")));
  EXPECT_EQ(read_file(folder.file("real/model")), "m2");
}

}  // namespace
}  // namespace reprise
