// Tests saves to the two banks of a simulated NOR flash. The power is cut at every operation. After
// a cut, a load must find the complete older or the complete newer State, and the next save must
// work. A bank with a changed bit must be invalid. A bank of another plan must be refused with a
// message that states the reason.
#include "ports/cortex_m/flash_banks.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "lib/cpu/cpu_host_access.h"

namespace reprise {
namespace {

// How much of an operation on a word or sector a power cut completes.
enum class Tear : uint32_t { kBefore, kHalf, kRandom, kAfter };
constexpr Tear kTears[] = {Tear::kBefore, Tear::kHalf, Tear::kRandom, Tear::kAfter};

class NorFlash {
 public:
  static constexpr uint32_t kSector = 256, kWord = 4;
  static constexpr uint64_t kNever = ~uint64_t{0};

  explicit NorFlash(uint32_t sectors = 10) : words_(uint64_t{sectors} * kSector / 8, 0xcccccccccccccccc) {}

  Flash flash() {
    return {.state = this,
            .erase = [](void* self, uint32_t at) { return static_cast<NorFlash*>(self)->erase(at); },
            .program = [](void* self, uint32_t at, const void* words,
                          uint32_t bytes) { return static_cast<NorFlash*>(self)->program(at, words, bytes); },
            .base = memory(),
            .sector_bytes = kSector,
            .bytes = bytes()};
  }
  unsigned char* memory() { return reinterpret_cast<unsigned char*>(words_.data()); }
  uint32_t bytes() const { return static_cast<uint32_t>(words_.size() * 8); }
  unsigned char* bank(uint32_t number) { return memory() + number * bytes() / 2; }

  // Lets the next `operation` operations complete, and cuts the power in the one after them. Then
  // all operations fail until turn_on() is called.
  void cut_at(uint64_t operation, Tear tear, uint32_t seed = 0) { left_ = operation, tear_ = tear, draws_.seed(seed); }
  void turn_on() { left_ = kNever, off_ = false; }
  bool is_off() const { return off_; }
  uint64_t operations = 0;   // number of operations since the start
  uint64_t stuck_at = kNever;  // offset of a byte that cannot be programmed

 private:
  static constexpr Status kNoPower = {Code::kBackend, "no power", 0};

  // Counts an operation. Returns true if it completes, false if the power is cut during it.
  bool goes_on() {
    ++operations;
    if (left_ == kNever) return true;
    off_ = left_ == 0;
    return left_-- > 0;
  }
  Status erase(uint32_t at) {
    EXPECT_EQ(at % kSector, 0u);
    EXPECT_LE(at + kSector, bytes());
    if (off_) return kNoPower;
    const bool whole = goes_on();
    for (uint32_t i = 0; i < kSector; ++i) {
      unsigned char& byte = memory()[at + i];
      const bool done = whole || tear_ == Tear::kAfter || (tear_ == Tear::kHalf && i < kSector / 2);
      if (done) byte = 0xff;
      if (!done && tear_ == Tear::kRandom) byte = static_cast<unsigned char>(byte | draws_());
    }
    return whole ? ok_status() : kNoPower;
  }
  Status program(uint32_t at, const void* from, uint32_t count) {
    EXPECT_EQ(at % kBankUnit, 0u);
    EXPECT_EQ(count % kBankUnit, 0u);
    EXPECT_LE(count, 160u);
    EXPECT_LE(at + count, bytes());
    for (uint32_t i = 0; i < count && !off_; ++i) EXPECT_EQ(memory()[at + i], 0xff) << "programmed without an erase";
    for (uint32_t word = 0; word < count; word += kWord) {
      if (off_) return kNoPower;
      const bool whole = goes_on();
      for (uint32_t i = 0; i < kWord; ++i) {
        const uint32_t place = at + word + i;
        const unsigned char wanted = static_cast<const unsigned char*>(from)[word + i];
        unsigned char& byte = memory()[place];
        if (place == stuck_at) continue;
        const bool done = whole || tear_ == Tear::kAfter || (tear_ == Tear::kHalf && i < kWord / 2);
        if (done) byte = static_cast<unsigned char>(byte & wanted);
        if (!done && tear_ == Tear::kRandom) byte = static_cast<unsigned char>(byte & (wanted | draws_()));
      }
      if (!whole) return kNoPower;
    }
    return ok_status();
  }

  std::vector<uint64_t> words_;
  uint64_t left_ = kNever;
  bool off_ = false;
  Tear tear_ = Tear::kBefore;
  std::mt19937 draws_;
};

constexpr Tensor tensor(uint64_t offset, DType dtype, std::initializer_list<uint32_t> shape) {
  Tensor made = {.offset = offset, .bytes = 0, .dtype = dtype, .rank = static_cast<uint8_t>(shape.size())};
  uint32_t d = 0;
  for (const uint32_t side : shape) made.shape[d++] = side;
  made.bytes = align_up(made.used_bytes());
  return made;
}

// A plan with a State and a single row, an update without arguments, and a trainer of this plan.
struct Training {
  std::vector<StateTensor> state = {
      {.tensor = tensor(0, DType::kU8, {static_cast<uint32_t>(sizeof(StepScalars))}),
       .kind = StateKind::kScalars,
       .name = "scalars"},
      {.tensor = tensor(256, DType::kF64, {2}), .kind = StateKind::kNorms, .name = "norms"},
      {.tensor = tensor(512, DType::kF32, {3, 5}), .kind = StateKind::kParameter, .name = "fc.weight"},
      {.tensor = tensor(768, DType::kF32, {100}), .kind = StateKind::kParameter, .name = "fc.bias"},
      {.tensor = tensor(1280, DType::kF32, {4}), .kind = StateKind::kTable, .name = "table"},
      {.tensor = tensor(1536, DType::kF32, {1}), .kind = StateKind::kBuffer, .name = "bn.running_mean"},
      {.tensor = tensor(1792, DType::kBf16, {7}), .kind = StateKind::kOptimizer, .name = "momentum.fc.weight"}};
  std::vector<Row> rows = {{.op = Op::kSgd, .pass = Pass::kUpdate, .first_argument = 0}};
  std::vector<float> numbers = {1, 2, 3, 4};
  Plan plan;
  Backend backend = {.kernel_set = "cpu-small/portable/baseline", .host = kCpuHostAccess};
  alignas(kAlignment) unsigned char arena[2048];
  Trainer trainer;

  explicit Training(uint64_t version = 0) {
    plan.seed = 7;
    settle();
    trainer.backend = &backend;
    trainer.arena = {{arena}, sizeof arena};
    fill(version);
  }
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;
  void settle() {
    plan.state = {state.data(), static_cast<uint32_t>(state.size())};
    plan.numbers = {numbers.data(), static_cast<uint32_t>(numbers.size())};
    plan.programs[static_cast<uint32_t>(ProgramId::kUpdate)].rows = {rows.data(), static_cast<uint32_t>(rows.size())};
    trainer.plan = &plan;
  }
  // Sets the trainer's step to `version`, and fills the State with bytes that depend on `version`.
  void fill(uint64_t version) {
    trainer.step = version;
    for (uint32_t i = 0; i < sizeof arena; ++i) arena[i] = static_cast<unsigned char>(version * 101 + i * 7);
  }
  // Returns the step and the contents of all tensors that a bank stores.
  std::string banked() const {
    std::string all = std::to_string(trainer.step);
    for (const StateTensor& s : state) {
      const bool lasts =
          s.kind == StateKind::kParameter || s.kind == StateKind::kBuffer || s.kind == StateKind::kOptimizer;
      if (lasts) all.append(reinterpret_cast<const char*>(arena) + s.tensor.offset, s.tensor.used_bytes());
    }
    return all;
  }
  std::string everything() const {
    return std::to_string(trainer.step).append(reinterpret_cast<const char*>(arena), sizeof arena);
  }
};

std::string banked_of(uint64_t version) { return Training(version).banked(); }

Status save(NorFlash& nor, uint64_t version) {
  const Training training(version);
  return save_to_flash(training.trainer, nor.flash());
}

// Returns the version of the State that a restarted board loads from the flash; 0 if it finds none.
// Requires that the loaded State is complete.
uint64_t version_in(NorFlash& nor) {
  Training training(99);
  const std::string before = training.everything();
  bool found = true;
  EXPECT_TRUE(load_from_flash(training.trainer, nor.flash(), found).ok());
  if (!found) {
    EXPECT_TRUE(training.everything() == before) << "nothing was found, and State has changed";
    return 0;
  }
  EXPECT_TRUE(training.banked() == banked_of(training.trainer.step)) << "a mixture of States";
  return training.trainer.step;
}

TEST(FlashBanks, CountThePayloadAndItsChecksumAsZlibDoes) {
  EXPECT_EQ(crc32(0, "123456789", 9), 0xcbf43926u);
  EXPECT_EQ(crc32(crc32(0, "1234", 4), "56789", 5), 0xcbf43926u);
  EXPECT_EQ(payload_bytes(Training().plan), 64u + 416u + 32u + 32u);
}

TEST(FlashBanks, TakeTurnsAndGiveTheNewest) {
  NorFlash nor;
  EXPECT_EQ(version_in(nor), 0u);
  for (uint64_t version = 1; version <= 5; ++version) {
    ASSERT_TRUE(save(nor, version).ok());
    EXPECT_EQ(version_in(nor), version);
    EXPECT_NE(whole_bank(nor.bank((version - 1) % 2), nor.bytes() / 2), nullptr);
  }
  EXPECT_NE(whole_bank(nor.bank(1), nor.bytes() / 2), nullptr) << "the older one stays";
}

// Cuts the power at every operation of a first, a second and a third save, with every kind of Tear.
TEST(FlashBanks, HoldTheOlderOrTheNewerStateWhereverThePowerIsCut) {
  uint64_t cuts = 0;
  for (uint64_t saved = 0; saved <= 2; ++saved) {
    NorFlash prepared;
    for (uint64_t version = 1; version <= saved; ++version) ASSERT_TRUE(save(prepared, version).ok());
    NorFlash whole = prepared;
    const uint64_t before = whole.operations;
    ASSERT_TRUE(save(whole, saved + 1).ok());
    const uint64_t operations = whole.operations - before;
    ASSERT_GT(operations, 150u);
    for (uint64_t operation = 0; operation < operations; ++operation) {
      for (const Tear tear : kTears) {
        NorFlash nor = prepared;
        nor.cut_at(operation, tear, static_cast<uint32_t>(operation));
        EXPECT_FALSE(save(nor, saved + 1).ok());
        ASSERT_TRUE(nor.is_off());
        nor.turn_on();
        const uint64_t found = version_in(nor);
        ASSERT_TRUE(found == saved || found == saved + 1) << saved << " saved, cut at operation " << operation
                                                          << ", tear " << static_cast<int>(tear) << ": " << found;
        ASSERT_TRUE(save(nor, saved + 2).ok());
        ASSERT_EQ(version_in(nor), saved + 2);
        ++cuts;
      }
    }
  }
  std::printf("%llu cuts\n", static_cast<unsigned long long>(cuts));
}

// Makes many saves, one after another. The power is cut in most of them.
TEST(FlashBanks, SurviveManyCutsInARow) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    std::mt19937 draws(static_cast<uint32_t>(seed));
    NorFlash nor;
    uint64_t kept = 0;
    for (uint64_t version = 1; version <= 30; ++version) {
      if (draws() % 4 != 0) nor.cut_at(draws() % 200, kTears[draws() % 4], draws());
      const bool saved = save(nor, version).ok();
      nor.turn_on();
      const uint64_t found = version_in(nor);
      ASSERT_TRUE(found == version || (!saved && found == kept))
          << "seed " << seed << ", version " << version << ": " << found << ", kept " << kept;
      kept = found;
    }
  }
}

TEST(FlashBanks, RefuseABankWithAnyBitOfItsHeaderOrPayloadFlipped) {
  NorFlash nor;
  ASSERT_TRUE(save(nor, 1).ok());
  const uint64_t bytes = sizeof(BankHeader) + payload_bytes(Training().plan);
  for (uint64_t byte = 0; byte < bytes; ++byte) {
    for (uint32_t bit = 0; bit < 8; ++bit) {
      nor.bank(0)[byte] ^= 1u << bit;
      ASSERT_EQ(version_in(nor), 0u) << "byte " << byte << ", bit " << bit;
      nor.bank(0)[byte] ^= 1u << bit;
    }
  }
  ASSERT_TRUE(save(nor, 2).ok());
  nor.bank(1)[40] ^= 1;
  EXPECT_EQ(version_in(nor), 1u) << "the older one";
  ASSERT_TRUE(save(nor, 3).ok());
  EXPECT_NE(whole_bank(nor.bank(0), nor.bytes() / 2), nullptr) << "the damaged bank is written, not the other";
  EXPECT_EQ(version_in(nor), 3u);
}

// Applies a change to the bank's header and updates its checksum.
void change_header(NorFlash& nor, void (*change)(BankHeader& header)) {
  BankHeader& header = *reinterpret_cast<BankHeader*>(nor.bank(0));
  change(header);
  header.checksum = crc32(0, &header, sizeof header - sizeof header.checksum);
}

TEST(FlashBanks, ReadNothingBeyondABank) {
  NorFlash nor;
  ASSERT_TRUE(save(nor, 1).ok());
  change_header(nor, [](BankHeader& header) { header.payload_bytes = ~uint64_t{0}; });
  EXPECT_EQ(version_in(nor), 0u);
}

// Saves a State, lets `change` alter the bank or the training, and returns the message with which a
// load is then refused; "" if the load succeeds. A refused load must change nothing.
template <typename Change>
std::string refusal(const Change& change) {
  NorFlash nor;
  EXPECT_TRUE(save(nor, 1).ok());
  Training other(50);
  change(nor, other);
  other.settle();
  const std::string before = other.everything();
  bool found = true;
  const Status status = load_from_flash(other.trainer, nor.flash(), found);
  EXPECT_EQ(found, status.ok());
  EXPECT_TRUE(status.ok() || (status.code == Code::kUnsupported && other.everything() == before));
  return status.message;
}

TEST(FlashBanks, RefuseAnotherPlanSeedKernelSetOrFormatByName) {
  const std::string another = "the bank holds another plan's State";
  EXPECT_EQ(refusal([](NorFlash&, Training& other) { other.state[2].name = "fd.weight"; }), another);
  EXPECT_EQ(refusal([](NorFlash&, Training& other) {
              std::swap(other.state[2].tensor.shape[0], other.state[2].tensor.shape[1]);
            }),
            another);
  EXPECT_EQ(refusal([](NorFlash&, Training& other) { other.state[6].tensor.dtype = DType::kF16; }), another);
  EXPECT_EQ(refusal([](NorFlash&, Training& other) { other.state[5].kind = StateKind::kOptimizer; }), another);
  EXPECT_EQ(refusal([](NorFlash&, Training& other) { other.state.pop_back(); }), another);
  EXPECT_EQ(refusal([](NorFlash&, Training& other) { other.numbers[3] = 5; }), another);
  EXPECT_EQ(refusal([](NorFlash&, Training& other) { other.rows[0].op = Op::kLion; }), another);
  EXPECT_EQ(refusal([](NorFlash&, Training& other) { ++other.plan.format; }), another);
  EXPECT_EQ(refusal([](NorFlash&, Training& other) { other.plan.seed = 8; }),
            "the bank's State is of a training with another seed");
  EXPECT_EQ(refusal([](NorFlash&, Training& other) { other.backend.kernel_set = "cpu/portable/baseline"; }),
            "the bank's State was trained by other kernels, whose bits are others: take the kernel set that it names");
  EXPECT_EQ(refusal(
                [](NorFlash& nor, Training&) { change_header(nor, [](BankHeader& header) { header.format = 2; }); }),
            "the bank was written in another format than this library's");
  EXPECT_EQ(refusal([](NorFlash&, Training& other) { other.plan.learning_rate.base = 0.5; }), "")
      << "the rate is the plan's own";
}

TEST(FlashBanks, SayWhatIsWrongWithAFlash) {
  const Training training(3);
  NorFlash small(4);
  const Status full = save_to_flash(training.trainer, small.flash());
  EXPECT_EQ(full.code, Code::kArenaTooSmall);
  EXPECT_EQ(full.detail, sizeof(BankHeader) + payload_bytes(training.plan));
  NorFlash nor;
  Flash odd = nor.flash();
  odd.bytes -= NorFlash::kSector;
  EXPECT_EQ(save_to_flash(training.trainer, odd).code, Code::kUnsupported);
  ASSERT_TRUE(save(nor, 1).ok());
  Flash broken = nor.flash();
  broken.erase = [](void*, uint32_t at) -> Status { return {Code::kBackend, "the flash is locked", at}; };
  const Status locked = save_to_flash(training.trainer, broken);
  EXPECT_STREQ(locked.message, "the flash is locked");
  EXPECT_EQ(locked.detail, nor.bytes() / 2) << "the other bank";
  for (const uint32_t worn : {nor.bytes() / 2 + 12, nor.bytes() / 2 + 400}) {
    nor.stuck_at = worn;
    EXPECT_EQ(save(nor, 2).code, Code::kInputOutput);
    EXPECT_EQ(version_in(nor), 1u);
  }
}

}  // namespace
}  // namespace reprise
