// Runs every CUDA kernel twice on the same cases, on fibres and by the PTX that nvcc makes of it,
// and compares the bits. Fibres run neither inline assembly with its order of operands, nor the
// compiler's predication. For every instance of a kernel (an .entry of the PTX), a few cases run
// (chosen_cases.h). Without nvcc there is no PTX, and the tests are skipped.
#include "tests/ports/fibres/cuda_fibre.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "cuda/cuda_host_access.h"
#include "tests/ports/cards/cuda_warp_kernels.h"
#include "tests/ports/chosen_cases.h"
#include "tests/ports/ptx/ptx_cases.h"
#include "tests/ports/ptx/ptx_mutants.h"

namespace reprise::test {
namespace {

using fibre::Fault;
using fibre::Report;

TEST_F(Ptx, IsUnderstoodToTheLastInstruction) { EXPECT_EQ(kernels().check(), ""); }

constexpr uint32_t kTimes = 8;

// ---- the same bits ----

// Returns a text about the first element that differs; "" if none does. Two NaN count as equal,
// because x86 processors and cards give a NaN different bits.
template <typename T, typename F>
std::string first_difference(const Bytes& by_fibres, const Bytes& by_ptx, F is_nan) {
  for (size_t i = 0; i < by_fibres.size() / sizeof(T); ++i) {
    T a, b;
    std::memcpy(&a, by_fibres.data() + i * sizeof(T), sizeof(T));
    std::memcpy(&b, by_ptx.data() + i * sizeof(T), sizeof(T));
    if (a != b && !(is_nan(a) && is_nan(b))) {
      return "[" + std::to_string(i) + "] has the bits " + std::to_string(a) + " by fibres, " + std::to_string(b) +
             " by PTX; ";
    }
  }
  return "";
}

std::string difference_of(Element element, const Bytes& by_fibres, const Bytes& by_ptx) {
  if (by_fibres == by_ptx) return "";
  if (element == Element::kF32)
    return first_difference<uint32_t>(by_fibres, by_ptx,
                                      [](uint32_t bits) { return (bits & 0x7fffffffu) > 0x7f800000u; });
  if (element == Element::kBf16)
    return first_difference<uint16_t>(by_fibres, by_ptx, [](uint16_t bits) { return (bits & 0x7fffu) > 0x7f80u; });
  return first_difference<uint8_t>(by_fibres, by_ptx, [](uint8_t) { return false; });
}

bool is_same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }
std::string difference_of(const StepScalars& a, const StepScalars& b) {
  const bool same = a.seed == b.seed && a.step == b.step && a.micro_batch == b.micro_batch &&
                    a.step_labelled == b.step_labelled && a.skip == b.skip &&
                    is_same(a.learning_rate, b.learning_rate) && is_same(a.clip_factor, b.clip_factor) &&
                    is_same(a.gradient_norm, b.gradient_norm) && is_same(a.loss_sum, b.loss_sum) &&
                    is_same(a.weighted_loss, b.weighted_loss) && is_same(a.step_weight, b.step_weight) &&
                    a.labelled == b.labelled && a.correct == b.correct;
  return same ? "" : "the scalars are others; ";
}

std::string compare(ptx::Kernels& by, ptx::Machine& machine, const KernelCase& c, const Backend& backend = kBackend) {
  const CaseData data = make_data(c);
  const CaseRunResult by_fibres = run_here(c, data, backend);
  const ptx::PtxLaunches switched(by, machine);
  const CaseRunResult by_ptx = run_here(c, data, backend);
  const std::string report = fibre::take_report().text;
  if (!report.empty()) return report;
  std::string fault = by_ptx.fault + difference_of(by_fibres.scalars, by_ptx.scalars);
  if (by_fibres.status.code != by_ptx.status.code) fault += "the status is another; ";
  if (by_fibres.data_fault.code != by_ptx.data_fault.code ||
      by_fibres.data_fault.position != by_ptx.data_fault.position) {
    fault += "the noted fault is another; ";
  }
  for (uint32_t i = 0; i < by_fibres.outputs.size(); ++i) {
    if (element_of(c, i) == Element::kScalars) continue;
    const std::string difference = difference_of(element_of(c, i), by_fibres.outputs[i], by_ptx.outputs[i]);
    if (!difference.empty()) fault += c.info().arguments[i].name + difference;
  }
  return fault;
}

// Checks cuda_fill(), because no case of the table calls it.
void expect_the_same_fill(ptx::Machine& machine) {
  std::vector<uint32_t> by_fibres(1000), by_ptx(1000);
  const auto fill = [](std::vector<uint32_t>& to) {
    EXPECT_TRUE(
        cuda_fill({}, ArenaAddress{.for_kernels = reinterpret_cast<unsigned char*>(to.data())}, 0x12345678u, 999 * 4)
            .ok());
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  };
  fill(by_fibres);
  const ptx::PtxLaunches switched(kernels(), machine);
  fill(by_ptx);
  EXPECT_EQ(by_fibres, by_ptx);
}

TEST_F(Ptx, EveryKernelHasTheBitsThatItHasUnderFibres) {
  size_t of = 0;
  const std::vector<Judged> chosen = chosen_cases(kTimes, of);
  for (const Judged& each : chosen)
    EXPECT_EQ(compare(kernels(), machine_, each.c, *each.backend), "")
        << each.c.id << " by " << each.backend->rules->name;
  expect_the_same_fill(machine_);
  RecordProperty("cases", std::to_string(chosen.size()) + " of " + std::to_string(of));
  for (const std::string& name : kernels().all()) {
    const auto is_of = [&](const char* words) { return name.find(words) != std::string::npos; };
    const bool of_cuda = !is_of("_kernels.ptx") && !is_of("cuda_launch_mutants.ptx") && !is_of("architecture_probe");
    EXPECT_TRUE(!of_cuda || kernels().found().contains(name)) << "no case reaches " << name;
  }
}

// ---- the kernels that use every function of cuda/warp.h ----

constexpr uint32_t kM = 70, kN = 72, kK = 200;

// A run of the product of cuda_warp_kernels.h. Its memory is larger than whole tiles, so that a
// mutant's accesses beyond the edges touch mapped memory.
struct Product {
  std::vector<float> c = std::vector<float>(256 * 256, -1.0f);
  Report report;

  Product(ProductKind kind, uint32_t K) {
    std::vector<uint16_t> a(256 * 256), b(256 * 256);
    CaseRandom random("product");
    for (auto* matrix : {&a, &b}) {
      for (uint16_t& element : *matrix)
        element = static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(random.uniform(-1, 1))) >> 16);
    }
    EXPECT_TRUE(launch_product({c.data(), a.data(), b.data(), kM, kN, K}, kind, nullptr).ok());
    (void)cudaDeviceSynchronize();
    (void)cudaGetLastError();
    report = fibre::take_report();
  }
};

TEST_F(Ptx, APipelinedProductHasTheFibresBitsInEveryOrderAndModel) {
  for (const fibre::TensorCore model : fibre::kTensorCores) {
    fibre::set_tensor_core(model);
    machine_.set_tensor_core(model);
    for (const ProductKind kind : {ProductKind::kRight, ProductKind::kPlain}) {
      const Product by_fibres(kind, kK);
      for (uint64_t seed = 0; seed < 4; ++seed) {
        machine_.set_order(seed);
        const ptx::PtxLaunches switched(kernels(), machine_);
        const Product by_ptx(kind, kK);
        EXPECT_EQ(by_ptx.report.text, "");
        EXPECT_EQ(by_ptx.c, by_fibres.c);
      }
    }
  }
}

// Faults in the source must be found in the PTX that nvcc makes of it.
TEST_F(Ptx, PlantedFaultsOfTheSourceAreFound) {
  const Product right(ProductKind::kRight, kK);
  for (uint64_t seed = 0; seed < 4; ++seed) {
    machine_.set_order(seed);
    const ptx::PtxLaunches switched(kernels(), machine_);
    const auto fault = [](ProductKind kind) { return Product(kind, kK).report.fault; };
    const Fault behind_no_barrier = fault(ProductKind::kNoBarrier), too_early = fault(ProductKind::kReusedTooEarly);
    EXPECT_TRUE(behind_no_barrier == Fault::kRace || behind_no_barrier == Fault::kUnwritten ||
                behind_no_barrier == Fault::kInFlight);
    EXPECT_TRUE(too_early == Fault::kRace || too_early == Fault::kInFlight);
    EXPECT_EQ(fault(ProductKind::kReadBeforeWait), Fault::kInFlight);
    // These faults change only the result. In the first, the machine finds no bad access, because
    // the bytes after a tile belong to another tile.
    EXPECT_NE(Product(ProductKind::kPastTheTile, kK).c, right.c);
    EXPECT_NE(Product(ProductKind::kWrongFragment, kK).c, right.c);
  }
}

struct Maps {
  std::vector<float> c = std::vector<float>(16 * 8);
  std::vector<uint32_t> rows = std::vector<uint32_t>(64), columns = rows;

  explicit Maps(bool rounded) {
    std::vector<float> a(16 * 8), b(8 * 8);
    std::vector<uint16_t> matrices(2 * 8 * 8);
    CaseRandom random("maps");
    for (auto* matrix : {&a, &b}) {
      for (float& element : *matrix) element = static_cast<float>(random.uniform(-1, 1));
    }
    for (uint16_t& element : matrices) element = static_cast<uint16_t>(random.word());
    EXPECT_TRUE(
        launch_maps({c.data(), rows.data(), columns.data(), a.data(), b.data(), matrices.data(), rounded}, nullptr)
            .ok());
    (void)cudaDeviceSynchronize();
    (void)cudaGetLastError();
  }
  bool operator==(const Maps& other) const { return c == other.c && rows == other.rows && columns == other.columns; }
};

TEST_F(Ptx, MapsOfTf32AndOfTwoMatricesAreTheFibres) {
  for (const bool rounded : {false, true}) {
    const Maps by_fibres(rounded);
    const ptx::PtxLaunches switched(kernels(), machine_);
    EXPECT_TRUE(Maps(rounded) == by_fibres);
  }
  EXPECT_FALSE(Maps(true) == Maps(false));
}

// ---- mutants of the PTX ----

constexpr uint64_t kMutantSteps = 1u << 22;

// Returns the changed texts of a file. Only the kernel whose mangled name contains `kernel` is
// changed. There is one text for each changed line, or, depending on Mutation::each, one text with
// all changes.
std::vector<std::string> mutants(const std::string& text, const std::string& kernel, const Mutation& mutation) {
  const size_t begin = text.find('{', text.find(kernel, text.find(".entry"))), end = text.find("\n}\n", begin);
  std::vector<std::string> mutated;
  std::string all = text.substr(0, begin);
  size_t changes = 0;
  for (size_t at = begin; at < end;) {
    const size_t next = std::min(text.find('\n', at) + 1, end);
    const std::string line = text.substr(at, next - at);
    const std::optional<std::string> changed = mutation.change(line);
    all += changed.value_or(line);
    if (changed) {
      ++changes;
      if (mutation.each) mutated.push_back(text.substr(0, at) + *changed + text.substr(next));
    }
    at = next;
  }
  if (!mutation.each && changes > 0) mutated.push_back(all + text.substr(end));
  EXPECT_FALSE(mutated.empty()) << mutation.name << " changes nothing in " << kernel;
  return mutated;
}

constexpr Mutation kProductMutations[] = {
    {"two registers of a are exchanged", [](const std::string& line) { return swapped(line, "mma.sync", 5, 6); }, true},
    {"the first and the last register of a are exchanged",
     [](const std::string& line) { return swapped(line, "mma.sync", 4, 7); }, true},
    {"b's registers are exchanged", [](const std::string& line) { return swapped(line, "mma.sync", 8, 9); }, true},
    {"two sums are exchanged", [](const std::string& line) { return swapped(line, "mma.sync", 0, 1); }, true},
    {"a and b are exchanged", [](const std::string& line) { return swapped(line, "mma.sync", 4, 8); }, true},
    {"matrices of b are not transposed", [](const std::string& line) { return replaced(line, ".trans", ""); }, true},
    {"matrices of a are transposed",
     [](const std::string& line) { return has(line, ".trans") ? std::nullopt : replaced(line, ".x4.", ".x4.trans."); },
     true},
    {"matrices come in another order", [](const std::string& line) { return swapped(line, "ldmatrix", 1, 2); }, true},
    {"a barrier is missing",
     [](const std::string& line) { return has(line, "bar.sync") ? std::optional<std::string>("") : std::nullopt; },
     true},
    {"a wait is missing",
     [](const std::string& line) { return has(line, "wait_group") ? std::optional<std::string>("") : std::nullopt; },
     true},
    {"a wait leaves one group more",
     [](const std::string& line) { return replaced(line, "wait_group 1", "wait_group 2"); }, true},
    {"no group is committed", [](const std::string& line) { return replaced(line, "cp.async.commit_group;", ""); },
     false},
    {"the zero fill is missing",
     [](const std::string& line) {
       return has(line, "cp.async.cg") ? replaced(line, line.substr(line.rfind(',')), ", 16;\n") : std::nullopt;
     },
     false},
    {"half a word is copied",
     [](const std::string& line) {
       return has(line, "cp.async.cg") ? replaced(line, line.substr(line.rfind(',')), ", 8;\n") : std::nullopt;
     },
     false},
    {"source and target are exchanged", [](const std::string& line) { return swapped(line, "cp.async.cg", 0, 1); },
     true},
    {"a result's guard is negated",
     [](const std::string& line) { return has(line, "bra") ? replaced(line, "@%p", "@!%p") : std::nullopt; }, false},
    {"a limit is let in", [](const std::string& line) { return replaced(line, "setp.lt.u32", "setp.le.u32"); }, false},
};

TEST_F(Ptx, MutantsOfAProductAreFound) {
  const std::string file = "cuda_warp_kernels.ptx", kernel = "product_pipelinedILNS0_11ProductKindE0E";
  machine_.set_most_steps(kMutantSteps);
  const Product right(ProductKind::kRight, kK);
  uint32_t count = 0;
  for (const Mutation& mutation : kProductMutations) {
    uint32_t index = 0;
    for (const std::string& text : mutants(text_of(file), kernel, mutation)) {
      ++count;
      ptx::Kernels wrong({{file, text}});
      machine_.set_order(1);
      const ptx::PtxLaunches switched(wrong, machine_);
      const Product product(ProductKind::kRight, kK);
      EXPECT_TRUE(product.report.fault != Fault::kNone || product.c != right.c)
          << mutation.name << ", change " << index;
      ++index;
    }
  }
  RecordProperty("mutants", static_cast<int>(count));
}

TEST_F(Ptx, WhatIsNotKnownIsNamedWithItsLine) {
  const std::string file = "cuda_warp_kernels.ptx";
  const auto report_of = [&](const Mutation& mutation) {
    ptx::Kernels wrong({{file, mutants(text_of(file), "product_pipelinedILNS0_11ProductKindE0E", mutation)[0]}});
    const ptx::PtxLaunches switched(wrong, machine_);
    return Product(ProductKind::kRight, kK).report.text;
  };
  const std::string report = report_of(
      {"",
       [](const std::string& line) { return replaced(line, "mma.sync.aligned.m16n8k16", "mma.sync.aligned.m16n8k32"); },
       true});
  EXPECT_EQ(report.find("cuda_warp_kernels.ptx line "), 0u) << report;
  EXPECT_NE(report.find("the instruction 'mma.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32' is not known"),
            std::string::npos)
      << report;
  ptx::Kernels none({{"layer_norm.ptx", text_of("layer_norm.ptx")}});
  const ptx::PtxLaunches switched(none, machine_);
  EXPECT_NE(Product(ProductKind::kRight, kK).report.text.find("there is no kernel"), std::string::npos);
}

// A mutation of a complete file. With it, the result of the case with this id must differ from the
// bits of the fibres.
struct FileMutation {
  const char* file;
  const char* id;
  Mutation mutation;
};
constexpr FileMutation kFileMutations[] = {
    {"layer_norm.ptx",
     "layer_norm_forward__m67_c33",
     {"a difference the other way", [](const std::string& line) { return swapped(line, "sub.rn.f32", 1, 2); }, false}},
    {"layer_norm.ptx",
     "layer_norm_forward__m67_c33",
     {"lanes shuffle with others", [](const std::string& line) { return swapped(line, "shfl.sync.bfly", 2, 3); },
      false}},
    {"layer_norm.ptx",
     "layer_norm_forward__m67_c33",
     {"a root too few", [](const std::string& line) { return replaced(line, "sqrt.rn.f32", "mov.f32"); }, false}},
    {"linear.ptx",
     "linear_forward__m32_c16_k32",
     {"what is not fused",
      [](const std::string& line) -> std::optional<std::string> {
        if (!has(line, "fma.rn.f32")) return std::nullopt;
        const std::vector<std::string> o = operands_of(line);
        if (o[0] == o[3]) return std::nullopt;
        return "\tmul.rn.f32 " + o[0] + ", " + o[1] + ", " + o[2] + ";\n\tadd.rn.f32 " + o[0] + ", " + o[0] + ", " +
               o[3] + ";\n";
      },
      false}},
    {"linear.ptx",
     "linear_forward__m32_c16_k32",
     {"a barrier too few", [](const std::string& line) { return replaced(line, "bar.sync \t0;", ""); }, false}},
    {"linear.ptx",
     "linear_forward__m32_c16_k32_bf16",
     {"b's registers exchanged", [](const std::string& line) { return swapped(line, "mma.sync", 8, 9); }, false}},
    {"elementwise.ptx",
     "add_forward__n1025",
     {"sums are differences", [](const std::string& line) { return replaced(line, "add.rn.f32", "sub.rn.f32"); },
      false}},
};

TEST_F(Ptx, MutantsOfKernelsAreFound) {
  machine_.set_most_steps(kMutantSteps);
  for (const auto& [file, id, mutation] : kFileMutations) {
    ptx::Kernels wrong({{file, mutated_file(file, mutation)}});
    EXPECT_NE(compare(wrong, machine_, case_of(id)), "") << mutation.name << " in " << file;
  }
}

}  // namespace
}  // namespace reprise::test
