// Runs kernels, by the PTX that nvcc makes of them, on tensors of more than 2^32 elements. The
// tests find indices and offsets that are computed in 32 bits; a small tensor does not show this
// fault. No test machine has the memory for such a large tensor.
//
// One dimension of a case of the table is made longer. Addresses are reserved for the tensors, but
// pages that are not touched use no memory and read as zeros. The last positions along the
// dimension contain the small case's numbers. Only the blocks that compute these positions run, and
// a few others.
//
//   small   x [5,64]            the numbers of the case
//   large   x [67108869,64]     0 0 0 ... 0 0 0 | the same numbers   (above 2^32 elements)
//   large   y [67108869,64]     0 0 0 ... 0 0 0 | NaN, later the results of the small case
//
// An output without this dimension is a sum over it. Such an output is compared completely, because
// all other positions add zeros. Races are not checked.
//
// Kernels in which one block loops over all positions, or over a part that grows with their number,
// are not tested. They are the losses of classes and of pairs, DoRA's rows, a decoded row without a
// window, and weight gradients of many rows.
#include "tests/ports/fibres/cuda_fibre.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "cuda/grid.h"
#include "lib/trainer.h"
#include "tests/ops/case_plan.h"
#include "tests/ports/cards/cuda_global_kernels.h"
#include "tests/ports/ptx/ptx_cases.h"
#include "tests/ports/ptx/ptx_mutants.h"

namespace reprise::test {
namespace {

// ---- memory of which only touched pages exist ----

class Reserved {
 public:
  explicit Reserved(uint64_t bytes) : bytes_(bytes) {
    void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) throw std::bad_alloc();
    at_ = static_cast<unsigned char*>(at);
  }
  ~Reserved() { munmap(at_, bytes_); }
  Reserved(const Reserved&) = delete;
  Reserved& operator=(const Reserved&) = delete;
  unsigned char* at(uint64_t offset) const { return at_ + offset; }

 private:
  uint64_t bytes_;
  unsigned char* at_;
};

// ---- a case made longer ----

struct LargeCase {
  const char* id;  // id in the table
  // Size in the small case of the dimension that is made longer. Every argument that has a
  // dimension of this size is made longer. 0: arguments with one dimension are made longer and get
  // a second dimension.
  uint32_t places = 0;
  bool names = false;       // integers are indices of positions, and are changed so that they name the last positions
  bool positions = false;   // an integer -p <= 0 means position p; it is changed to one of the last positions
  bool ignored = false;     // the other positions get labels that are ignored
  bool improbable = false;  // other positions are classes with very low logits, which do not change a softmax
  uint32_t parts = 1;       // number of parts of a position that different blocks compute
  uint32_t tail = 0;        // in a grid of more than kTiles blocks, the number of last blocks that run
  bool strides = false;     // the grid is limited by a card's multiprocessors, so that blocks loop over elements
  uint32_t last_mib = 128;  // launches on chunks in the last so many MiB of a long tensor run
  // Name of an output that must be written, but whose numbers are not compared, because they depend
  // on the number of positions or on blocks that do not run. "" if there is none.
  const char* written = "";
};

struct Enlarged {
  KernelCase c;
  uint64_t places = 1, small_places = 1, parts = 1, tail = 0;
  bool strides = false;
  std::vector<uint64_t> of_a_place;  // elements of one position, for each argument that is made longer
};

constexpr uint64_t kPlaces = uint64_t{1} << 32;

// Returns the dimension of argument i of the small case that is made longer; the argument's rank if
// none is.
uint32_t long_axis(const KernelCase& small, uint32_t i, const LargeCase& wanted) {
  const Tensor& tensor = small.tensor(i);
  if (is_scalars(small, i)) return tensor.rank;
  if (wanted.places == 0) return tensor.rank == 1 ? 0 : tensor.rank;
  return static_cast<uint32_t>(std::find(tensor.shape, tensor.shape + tensor.rank, wanted.places) - tensor.shape);
}

Enlarged enlarge(const KernelCase& small, const LargeCase& wanted) {
  Enlarged large{.c = small,
                 .small_places = std::max(wanted.places, 1u),
                 .parts = wanted.parts,
                 .tail = wanted.tail,
                 .strides = wanted.strides,
                 .of_a_place = {}};
  for (uint32_t i = 0; i < small.arguments.size(); ++i) {
    if (small.has(i) && long_axis(small, i, wanted) < small.tensor(i).rank)
      large.of_a_place.push_back(small.tensor(i).elements() / large.small_places);
  }
  large.places = kPlaces / *std::max_element(large.of_a_place.begin(), large.of_a_place.end()) + 1 + large.small_places;
  for (uint32_t i = 0; i < small.arguments.size(); ++i) {
    if (!small.has(i)) continue;
    Tensor& tensor = *large.c.arguments[i];
    const uint32_t axis = long_axis(small, i, wanted);
    if (axis == tensor.rank) continue;
    if (wanted.places == 0) {
      tensor.shape[1] = tensor.shape[0];
      tensor.rank = 2;
    }
    tensor.shape[axis] = static_cast<uint32_t>(large.places);
    tensor.bytes = align_up(tensor.used_bytes());
  }
  if (auto* update = std::get_if<UpdateAttribute>(&large.c.attribute))
    update->group.elements = large.c.tensor(0).elements();
  return large;
}

// Calls f(there, here, bytes) for each contiguous range of argument i of the small case. `there` is
// the range's offset in the large argument, `here` its offset in the small one.
template <typename F>
void for_each_piece(const KernelCase& small, uint32_t i, const LargeCase& wanted, const Enlarged& large, const F& f) {
  const Tensor& tensor = small.tensor(i);
  const uint32_t axis = long_axis(small, i, wanted);
  if (axis == tensor.rank) return f(0, 0, tensor.used_bytes());
  uint64_t outer = 1;
  for (uint32_t d = 0; d < axis; ++d) outer *= tensor.shape[d];
  const uint64_t piece = tensor.used_bytes() / outer, place = piece / large.small_places;
  for (uint64_t o = 0; o < outer; ++o)
    f((o * large.places + large.places - large.small_places) * place, o * piece, piece);
}

// ---- which blocks run ----

// Returns the indices of the blocks that run, along one axis of a grid. A block may compute a
// position, a part of it, a group of positions or a pack of elements, or may loop over several of
// them in strides of the grid. If the grid is limited by a card's multiprocessors, each block
// computes much, so few blocks run.
std::vector<uint64_t> of_an_axis(uint64_t size, const Enlarged& large) {
  constexpr uint64_t kAll = 40, kTiles = 128, kCut = 2048;
  std::set<uint64_t> chosen = {size - 1};
  for (uint64_t i = 0; size > kTiles && i < std::min(size, large.tail); ++i) chosen.insert(size - 1 - i);
  if (size <= kAll) {
    for (uint64_t i = 0; i < size; ++i) chosen.insert(i);
  }
  if (size <= kCut && !large.strides) return {chosen.begin(), chosen.end()};
  if (size > kCut) chosen.insert({0, size / 2});
  const auto add = [&](uint64_t unit) {
    chosen.insert(unit % size);
    if (unit < size) chosen.insert(unit);
  };
  const uint64_t first = large.places - large.small_places;
  for (uint64_t place = first; place < large.places && !large.strides; ++place) {
    for (uint32_t group = 0; group <= 8; ++group) add(place >> group);
  }
  for (uint64_t part = first * large.parts; part < large.places * large.parts && !large.strides; ++part) add(part);
  for (const uint64_t elements : large.of_a_place) {
    for (const uint64_t width : {1, 4, 8}) {
      if (large.strides && width != 4) continue;
      const uint64_t of_a_block = width * kBlockThreads;
      for (uint64_t k = first * elements / of_a_block; k <= (large.places * elements - 1) / of_a_block; ++k) add(k);
    }
  }
  return {chosen.begin(), chosen.end()};
}

std::vector<uint64_t> blocks_of(const dim3& grid, const Enlarged& large) {
  std::vector<uint64_t> blocks;
  for (const uint64_t z : of_an_axis(grid.z, large)) {
    for (const uint64_t y : of_an_axis(grid.y, large)) {
      for (const uint64_t x : of_an_axis(grid.x, large)) blocks.push_back((z * grid.y + y) * grid.x + x);
    }
  }
  return blocks;
}

// Decides which launches run. A case in chunks has thousands of launches, each with pointers to its
// chunk. If a case has few launches, all run. Otherwise launches for the first and the last
// positions run. Among launches without a pointer to a long tensor, all run if they are few, and
// otherwise the first and the last.
class LaunchChoice {
 public:
  explicit LaunchChoice(uint64_t last_bytes) : last_bytes_(last_bytes) {}
  void add_long(uint64_t begin, uint64_t end) { long_.push_back({begin, end, false, ""}); }
  void count() { counts_ = true; }
  void run() { counts_ = false, met_ = 0; }

  bool take(const ptx::MachineLaunch& launch) {
    constexpr uint64_t kFew = 16, kFree = 64;
    const Reach reach = reach_of(launch);
    if (counts_) {
      ++launches_;
      free_ += reach == Reach::kNothing;
      return false;
    }
    if (launches_ <= kFew || reach == Reach::kEnds) return true;
    if (reach != Reach::kNothing) return false;
    ++met_;
    return free_ <= kFree || met_ <= 4 || met_ + 8 > free_;
  }

 private:
  enum class Reach : uint8_t { kNothing, kInside, kEnds };

  Reach reach_of(const ptx::MachineLaunch& launch) const {
    Reach reach = Reach::kNothing;
    for (const std::string& argument : launch.arguments) {
      for (size_t at = 0; at + 8 <= argument.size(); at += 8) {
        uint64_t word;
        std::memcpy(&word, argument.data() + at, 8);
        for (const MemoryRange& each : long_) {
          if (word >= each.begin && word < each.end)
            reach =
                std::max(reach, word == each.begin || each.end - word <= last_bytes_ ? Reach::kEnds : Reach::kInside);
        }
      }
    }
    return reach;
  }

  uint64_t last_bytes_;
  bool counts_ = true;
  uint64_t launches_ = 0, free_ = 0, met_ = 0;
  std::vector<MemoryRange> long_;
};

// ---- a run ----

constexpr int kFarBelow = 0xf0;  // -6e29 as f32, if each byte of the f32 has this value

// A large case: its arguments, each in memory of its own, and functions that run the case and check
// the results.
class LargeRun {
 public:
  LargeRun(const LargeCase& wanted, const KernelCase& small, const CaseData& data)
      : wanted_(wanted),
        small_(small),
        large_(enlarge(small, wanted)),
        plan_(kBackend, large_.c),
        scalars_(align_up(plan_.plan().arena_bytes) + CasePlan::kGuard),
        memory_(scalars_ + align_up(sizeof(StepScalars)) + 2 * CasePlan::kGuard) {
    base_ = memory_.at(align_up(reinterpret_cast<uint64_t>(memory_.at(0))) - reinterpret_cast<uint64_t>(memory_.at(0)));
    for (uint32_t i = 0; i < small.arguments.size(); ++i) {
      if (small.has(i)) put(i, data);
    }
    if (plan_.scratch_bytes() != 0) {
      const uint64_t offset = plan_.offset(static_cast<uint32_t>(small.arguments.size()));
      add_range(offset, plan_.scratch_bytes(), true, "scratch");
      if (wanted.improbable) std::memset(base_ + offset, kFarBelow, plan_.scratch_bytes());
    }
    add_range(scalars_, sizeof(StepScalars), true, "the scalars of faults");
  }

  const Enlarged& large() const { return large_; }

  // Runs the case and returns the first fault; "" if there is none.
  std::string run(LaunchChoice& choice) const {
    Trainer trainer;
    trainer.plan = &plan_.plan();
    trainer.backend = &kBackend;
    trainer.context.machine = kBackend.machine;
    trainer.arena = {{base_}, plan_.plan().arena_bytes};
    trainer.context.scalars = reinterpret_cast<StepScalars*>(base_ + scalars_);
    fibre::allow_memory(MemoryRanges(ranges_));
    for (uint32_t i = 0; i < small_.arguments.size(); ++i) {
      if (small_.has(i) && large_.c.tensor(i).bytes > kPlaces)
        choice.add_long(reinterpret_cast<uint64_t>(at(i)),
                        reinterpret_cast<uint64_t>(at(i)) + large_.c.tensor(i).used_bytes());
    }
    Status status;
    for (const bool counts : {true, false}) {
      counts ? choice.count() : choice.run();
      status = dispatch(trainer, plan_.program(), plan_.row(), false);
      (void)cudaDeviceSynchronize();
      (void)cudaGetLastError();
    }
    fibre::allow_memory({});
    return fibre::take_report().text + (status.ok() ? "" : std::string("refused: ") + status.message);
  }

  // Returns the bytes of the large argument i at the last positions, where the small case is.
  Bytes taken(uint32_t i) const {
    Bytes bytes(small_.tensor(i).used_bytes());
    for_each_piece(small_, i, wanted_, large_, [&](uint64_t there, uint64_t here, uint64_t count) {
      std::memcpy(bytes.data() + here, at(i) + there, count);
    });
    return bytes;
  }

 private:
  unsigned char* at(uint32_t i) const { return base_ + plan_.offset(i); }
  void add_range(uint64_t offset, uint64_t bytes, bool writable, const char* name) {
    const uint64_t begin = reinterpret_cast<uint64_t>(base_) + offset;
    ranges_.push_back({begin, begin + bytes, writable, name});
  }
  void put(uint32_t i, const CaseData& data) {
    const ArgumentInfo& argument = small_.info().arguments[i];
    add_range(plan_.offset(i), large_.c.tensor(i).used_bytes(), argument.role != Role::kInput, argument.name);
    Bytes held(small_.tensor(i).used_bytes(), 0xff);
    if (argument.role != Role::kOutput) write_argument(small_, data, i, held.data());
    const Element element = element_of(small_, i);
    if (wanted_.improbable && std::string(argument.name) == "b[V]")
      std::memset(at(i), kFarBelow, large_.c.tensor(i).used_bytes());
    if (wanted_.ignored && element == Element::kI32)
      std::fill_n(reinterpret_cast<int32_t*>(at(i)), large_.c.tensor(i).elements(), kIgnoredLabel);
    if (element == Element::kI32 && (wanted_.names || wanted_.positions)) {
      const auto before = static_cast<int32_t>(large_.places - large_.small_places);
      for (size_t k = 0; k < held.size() / 4; ++k) {
        int32_t name;
        std::memcpy(&name, held.data() + 4 * k, 4);
        if (wanted_.names && name >= 0) name += before;
        if (wanted_.positions && name <= 0) name -= before;
        std::memcpy(held.data() + 4 * k, &name, 4);
      }
    }
    for_each_piece(small_, i, wanted_, large_, [&](uint64_t there, uint64_t here, uint64_t count) {
      std::memcpy(at(i) + there, held.data() + here, count);
    });
  }

  const LargeCase& wanted_;
  const KernelCase& small_;
  Enlarged large_;
  CasePlan plan_;
  uint64_t scalars_;
  Reserved memory_;
  unsigned char* base_ = nullptr;
  std::vector<MemoryRange> ranges_;
};

// True if the numbers are close. Their last bits may differ, because another shape may use another
// tile. If an address is wrong, the number is quite different, or is the initial NaN.
bool is_near(double got, double want) {
  return got == want || std::abs(got - want) <= 0.01 * (1 + std::abs(want)) || (std::isnan(got) && std::isnan(want));
}

std::string difference(const std::string& name, const std::vector<double>& got, const std::vector<double>& want) {
  for (size_t k = 0; k < want.size(); ++k) {
    if (!is_near(got[k], want[k]))
      return name + ": of the last places element " + std::to_string(k) + " of " + std::to_string(want.size()) +
             " is " + std::to_string(got[k]) + ", not " + std::to_string(want[k]);
  }
  return "";
}

std::string judge_large(const LargeCase& wanted, ptx::Kernels& by, ptx::Machine& machine) {
  const KernelCase small = case_of(wanted.id);
  const CaseData data = make_data(small);
  const CaseRunResult by_fibres = run_here(small, data);
  const LargeRun run(wanted, small, data);
  LaunchChoice choice(uint64_t{wanted.last_mib} << 20);
  machine.set_watches_order(false);
  machine.set_blocks([&](const ptx::MachineLaunch& launch) {
    return choice.take(launch) ? blocks_of(launch.grid, run.large()) : std::vector<uint64_t>();
  });
  const ptx::PtxLaunches switched(by, machine);
  if (const std::string fault = run.run(choice); !fault.empty()) return fault;
  for (uint32_t i = 0; i < small.arguments.size(); ++i) {
    const ArgumentInfo& argument = small.info().arguments[i];
    const std::string name = argument.name;
    if (!small.has(i) || argument.role == Role::kInput || is_scalars(small, i)) continue;
    const Element element = element_of(small, i);
    const std::vector<double> got = read_values(element, run.taken(i));
    std::vector<double> want = read_values(element, by_fibres.outputs[i]);
    if (name.substr(0, name.find('[')) == wanted.written) {
      for (size_t k = 0; k < want.size(); ++k) want[k] = std::isnan(got[k]) ? want[k] : got[k];
    }
    if (const std::string wrong = difference(name, got, want); !wrong.empty()) return wrong;
  }
  return "";
}

constexpr LargeCase kLargeCases[] = {
    {.id = "relu_forward__n1025"},
    {.id = "relu_backward__n1025"},
    {.id = "gelu_forward__n1025_tanh"},
    {.id = "gelu_backward__n1025_erf"},
    {.id = "add_forward__n1025"},
    {.id = "add_forward__n1025_bf16"},
    {.id = "copy_forward__n1025"},
    {.id = "move_forward__n1025"},
    {.id = "cap_forward__n1025"},
    {.id = "unary_forward__at_least_n67"},
    {.id = "unary_backward__at_least_n67"},
    {.id = "swiglu_forward__m5_f64", .places = 5},
    {.id = "swiglu_backward__m5_f64", .places = 5},
    {.id = "geglu_forward__m5_f64", .places = 5},
    {.id = "geglu_backward__m5_f64", .places = 5},
    {.id = "layer_norm_forward__m5_c64", .places = 5},
    {.id = "layer_norm_forward__m3_c1030", .places = 3},
    {.id = "layer_norm_backward__m3_c1030", .places = 3},
    {.id = "rms_norm_forward__m5_c64", .places = 5},
    {.id = "rms_norm_backward__m3_c1030", .places = 3},
    {.id = "softmax_forward__m3_c7", .places = 3},
    {.id = "softmax_backward__m5_c2051", .places = 5},
    {.id = "batch_norm_forward__n2_3x5_c7", .places = 2},
    {.id = "batch_norm_backward__n2_3x5_c7", .places = 2, .written = "dx"},
    {.id = "batch_norm_inference__n2_3x5_c7", .places = 2},
    {.id = "batch_norm_backward_data__n2_3x5_c7", .places = 2},
    {.id = "norm_add_relu_forward__n2_3x5_c7", .places = 2},
    {.id = "norm_relu_backward__n2_3x5_c7", .places = 2, .written = "dx"},
    {.id = "group_norm_forward__n3_8x8_c64_g8", .places = 3},
    {.id = "group_norm_backward__n3_8x8_c64_g8", .places = 3},
    {.id = "embedding_forward__b1_t3_c1024_v4_l3", .places = 1},
    {.id = "embedding_forward__b2_t5_c7_v11_l8", .places = 11, .names = true},
    {.id = "embedding_backward__b2_t5_c7_v11_l8", .places = 11, .names = true},
    {.id = "linear_forward__m7_c13_k5", .places = 7},
    {.id = "linear_forward__m7_c13_k5", .places = 5},
    {.id = "linear_backward_data__m7_c13_k5", .places = 7},
    {.id = "linear_backward_data__m7_c13_k5", .places = 13},
    {.id = "linear_backward_weight__m7_c13_k5", .places = 13},
    {.id = "linear_backward_weight__m7_c13_k5", .places = 5},
    {.id = "linear_backward_bias__m7_k5_c13", .places = 5},
    {.id = "linear_forward__m200_c16_k40_bf16", .places = 200},
    {.id = "linear_forward__m200_c16_k40_bf16", .places = 40},
    {.id = "linear_backward_data__m200_c16_k40_bf16", .places = 200},
    {.id = "linear_backward_data__m200_c16_k40_bf16", .places = 16},
    {.id = "linear_backward_weight__m200_c16_k40_bf16", .places = 16},
    {.id = "loss_head_backward__m5_c512_v21",
     .places = 5,
     .ignored = true,
     .tail = 512,
     .last_mib = 8,
     .written = "db"},
    {.id = "loss_head_backward__m2_c4096_v5",
     .places = 5,
     .names = true,
     .improbable = true,
     .tail = 256,
     .written = "dx"},
    {.id = "conv_forward__n3_7x5_c19_k17_r1s1_stride2_pad0", .places = 3},
    {.id = "conv_backward_data__n3_7x5_c19_k17_r1s1_stride2_pad0", .places = 3},
    {.id = "conv_forward__n2_7x6_c3_k16_r3s3_stride1_pad1", .places = 2},
    {.id = "conv_backward_data__n2_7x6_c3_k16_r3s3_stride1_pad1", .places = 2},
    {.id = "attention_forward__b3_t64_h1_d16_p0", .places = 3},
    {.id = "attention_backward__b3_t64_h1_d16_p0", .places = 3, .parts = 8},
    {.id = "attention_forward__b3_t64_h1_d16_p0_bf16", .places = 3},
    {.id = "attention_backward__b3_t64_h1_d16_p0_bf16", .places = 3, .parts = 8},
    {.id = "adamw_update__n67_decay", .strides = true},
    {.id = "sgd_update__n67_momentum", .strides = true},
    {.id = "lion_update__n67_decay", .strides = true},
    {.id = "avg_pool_forward__n2_7x9_c35_r3s3_stride1_pad1", .places = 2},
    {.id = "max_pool_forward__n1_7x8_c3_r3s3_stride1_pad1", .places = 1},
    {.id = "global_pool_forward__n3_7x5_c19", .places = 3},
    {.id = "global_pool_backward__n3_7x5_c19", .places = 3},
    {.id = "resize_forward__kind0_n2_5x7_to_9x4_c3", .places = 2},
    {.id = "resize_backward__kind0_n2_5x7_to_9x4_c3", .places = 2},
    {.id = "columns_forward__x2_6_5_3_2_4_5_3_at2_0_0", .places = 2},
    {.id = "pad_forward__x2_6_5_3_2_4_5_3_at2_0_0", .places = 2},
    {.id = "broadcast_add_forward__2x3x4x5_by_1x3x1x5", .places = 2},
    {.id = "transpose_forward__by0132_2_3_5_7", .places = 2},
    {.id = "concat_forward__axis1_3_0_of5_2_9", .places = 3},
    {.id = "concat_forward__axis1_2_0_16_of1_4_bf16", .places = 2},
    {.id = "rope_forward__b2_t9_h4_kv2_d16_r16_halves", .places = 2},
    {.id = "rope_backward__b2_t9_h4_kv2_d16_r16_halves", .places = 2},
    {.id = "dropout_forward__n1025_p0"},
    {.id = "dropout_forward__n1025_p50", .written = "y"},
    {.id = "dropout_backward__n1025_p0"},
    {.id = "dropout_forward__n9_of_3_p0", .places = 9},
    {.id = "dora_forward__m7_k5_bias", .places = 5},
    {.id = "dora_backward__m7_k5", .places = 5},
    {.id = "dora_norms__c13_k7_r3", .places = 7},
    {.id = "target_loss_backward__mse_33_3_some_missing", .places = 33},
    {.id = "target_loss_backward__binary_29_5_weighted", .places = 29},
    {.id = "attention_decode__p9_l300_h4_kv2_d8_w7", .places = 300, .positions = true},
};

class PtxLarge : public Ptx, public ::testing::WithParamInterface<LargeCase> {};

TEST_P(PtxLarge, PlacesAreRight) { EXPECT_EQ(judge_large(GetParam(), kernels(), machine_), ""); }

INSTANTIATE_TEST_SUITE_P(Table, PtxLarge, ::testing::ValuesIn(kLargeCases), [](const auto& info) {
  return std::string(info.param.id) + "_" + std::to_string(info.param.places);
});

// ---- faults ----

// A mutant in which every 64-bit product and shift of the PTX file keeps only its lower 32 bits.
struct NarrowFile {
  const char* file;
  LargeCase c;
};
constexpr NarrowFile kNarrowFiles[] = {
    {"elementwise.ptx", {.id = "add_forward__n1025"}},
    {"layer_norm.ptx", {.id = "layer_norm_forward__m5_c64", .places = 5}},
    {"softmax.ptx", {.id = "softmax_forward__m3_c7", .places = 3}},
    {"embedding.ptx", {.id = "embedding_forward__b2_t5_c7_v11_l8", .places = 11, .names = true}},
    {"embedding.ptx", {.id = "embedding_backward__b2_t5_c7_v11_l8", .places = 11, .names = true}},
    {"linear.ptx", {.id = "linear_forward__m7_c13_k5", .places = 7}},
    {"linear.ptx", {.id = "linear_forward__m200_c16_k40_bf16", .places = 200}},
    {"conv.ptx", {.id = "conv_forward__n3_7x5_c19_k17_r1s1_stride2_pad0", .places = 3}},
    {"attention.ptx", {.id = "attention_forward__b3_t64_h1_d16_p0", .places = 3}},
    {"attention_forward_mma.ptx", {.id = "attention_forward__b3_t64_h1_d16_p0_bf16", .places = 3}},
    {"optimizer.ptx", {.id = "adamw_update__n67_decay", .strides = true}},
    {"attention_decode.ptx", {.id = "attention_decode__p9_l300_h4_kv2_d8_w7", .places = 300, .positions = true}},
    {"concat.ptx", {.id = "concat_forward__axis1_2_0_16_of1_4_bf16", .places = 2}},
    {"rope.ptx", {.id = "rope_forward__b2_t9_h4_kv2_d16_r16_halves", .places = 2}},
    {"dropout.ptx", {.id = "dropout_backward__n1025_p0"}},
    {"dora.ptx", {.id = "dora_forward__m7_k5_bias", .places = 5}},
    {"dora.ptx", {.id = "dora_norms__c13_k7_r3", .places = 7}},
    {"target_loss.ptx", {.id = "target_loss_backward__mse_33_3_some_missing", .places = 33}},
};

TEST_F(Ptx, PlacesOf32BitsAreFound) {
  const Mutation narrow = {"places have 32 bits",
                           [](const std::string& line) -> std::optional<std::string> {
                             if (line[0] == '@' ||
                                 !(has(line, "\tmul.lo.s64") || has(line, "\tshl.b64") || has(line, "\tmad.lo.s64")))
                               return std::nullopt;
                             const std::string result = operands_of(line).at(0);
                             return line + "\tand.b64 " + result + ", " + result + ", 4294967295;\n";
                           },
                           false};
  for (const NarrowFile& each : kNarrowFiles) {
    std::vector<ptx::PtxFile> changed = files();
    for (ptx::PtxFile& file : changed) {
      if (file.name == each.file) file.text = mutated_file(each.file, narrow);
    }
    ptx::Kernels wrong(std::move(changed));
    EXPECT_NE(judge_large(each.c, wrong, machine_), "") << each.file << ' ' << each.c.id;
  }
}

// A fault planted in the source, which computes an index in 32 bits, must be found in the last tile
// of rows. A small tensor does not show this fault (ptx_global_test.cpp).
TEST_F(Ptx, APlaceOf32BitsOfTheSourceIsFound) {
  constexpr uint32_t kColumns = 64;
  constexpr uint64_t kRows = kPlaces / kColumns + 129, kTiles = kRows / 128 + 1;
  const Reserved x(kRows * kColumns * sizeof(float)), sums(kTiles * kColumns * sizeof(float));
  float* const last_row = reinterpret_cast<float*>(x.at(0)) + (kRows - 1) * kColumns;
  for (uint32_t c = 0; c < kColumns; ++c) last_row[c] = static_cast<float>(c + 1);
  machine_.set_watches_order(false);
  machine_.set_blocks([](const ptx::MachineLaunch& launch) { return std::vector<uint64_t>{launch.grid.x - 1}; });
  const ptx::PtxLaunches switched(kernels(), machine_);
  for (const bool is_right : {true, false}) {
    const TileSumKind kind = is_right ? TileSumKind::kRight : TileSumKind::kNarrowIndex;
    ASSERT_TRUE(launch_tile_sums({reinterpret_cast<float*>(sums.at(0)), reinterpret_cast<const float*>(x.at(0)), kRows,
                                  kColumns},
                                 kind, nullptr)
                    .ok());
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    const float* const sum = reinterpret_cast<const float*>(sums.at(0)) + (kTiles - 1) * kColumns;
    for (uint32_t c = 0; c < kColumns; ++c) EXPECT_EQ(sum[c], is_right ? static_cast<float>(c + 1) : 0.0f) << c;
  }
}

}  // namespace
}  // namespace reprise::test
