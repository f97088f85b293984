// Chooses a few cases for each instance of a CUDA kernel, from the kernel table and from a few
// wider cases. Tests that run kernels by PTX, or that judge every access, would take too long for
// the complete table. A dry run, which records launches without executing them, shows which case
// launches which kernel.
#pragma once

#include "tests/ports/fibres/cuda_fibre.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cuda/gemm/pack.h"
#include "lib/trainer.h"
#include "tests/ops/case_plan.h"
#include "tests/ops/judged_kernel.h"
#include "tests/ports/ptx/ptx_cases.h"

namespace reprise::test {

// Returns cases for kernels that no case of the table launches, because the table was made for the
// CPU: wide rows of norms, packs of pooled channels, large tiles.
inline std::vector<KernelCase> wider_cases() {
  CaseTable table(CaseUse::kTest);
  for (const uint32_t C : {256u, 512u, 768u, 1024u, 1280u}) {
    const auto x = shaped({3, C}), m = shaped({3}), c = shaped({C});
    const NormAttribute norm{1e-5f, 0.1f, C};
    const std::string tag = "m3_c" + std::to_string(C);
    using Forward = LayerNormForward;
    using Backward = LayerNormBackward;
    using RmsForward = RmsNormForward;
    using RmsBackward = RmsNormBackward;
    table.add<Forward>(tag,
                       {{Forward::kY, x},
                        {Forward::kMean, m},
                        {Forward::kRstd, m},
                        {Forward::kX, x},
                        {Forward::kGamma, c},
                        {Forward::kBeta, c}},
                       norm);
    table.add<Backward>(tag,
                        {{Backward::kDx, x},
                         {Backward::kDgamma, c},
                         {Backward::kDbeta, c},
                         {Backward::kX, x},
                         {Backward::kMean, m},
                         {Backward::kRstd, m},
                         {Backward::kGamma, c},
                         {Backward::kDy, x}},
                        norm);
    table.add<RmsForward>(tag,
                          {{RmsForward::kY, x}, {RmsForward::kRstd, m}, {RmsForward::kX, x}, {RmsForward::kGamma, c}},
                          NormAttribute{1e-5f, 0, 0});
    table.add<RmsBackward>(tag,
                           {{RmsBackward::kDx, x},
                            {RmsBackward::kDgamma, c},
                            {RmsBackward::kX, x},
                            {RmsBackward::kRstd, m},
                            {RmsBackward::kGamma, c},
                            {RmsBackward::kDy, x}},
                           NormAttribute{1e-5f, 0, 0});
  }
  const auto pixels = shaped({2, 3, 5, 16}), means = shaped({2, 16});
  table.add<GlobalPoolForward>("n2_3x5_c16", {{GlobalPoolForward::kY, means}, {GlobalPoolForward::kX, pixels}});
  table.add<GlobalPoolBackward>("n2_3x5_c16", {{GlobalPoolBackward::kDx, pixels}, {GlobalPoolBackward::kDy, means}});
  const WindowAttribute window{1, 1, 1, 0, 1e-5f};
  const auto few = shaped({1, 32, 31, 4}), many = shaped({1, 32, 31, 72}), k = shaped({72});
  using Conv = ConvForward;
  using ConvData = ConvBackwardData;
  table.add<Conv>(
      "n1_32x31_c4_k72_statistics",
      {{Conv::kY, many}, {Conv::kMeanOfY, k}, {Conv::kRstdOfY, k}, {Conv::kX, few}, {Conv::kW, shaped({72, 1, 1, 4})}},
      window);
  table.add<ConvData>("n1_32x31_c72_k4",
                      {{ConvData::kDx, many}, {ConvData::kDy, few}, {ConvData::kW, shaped({4, 1, 1, 72})}}, window);
  const auto odd = shaped({1, 32, 31, 5});  // the channels are not whole chunks
  table.add<Conv>(
      "n1_32x31_c5_k72_statistics",
      {{Conv::kY, many}, {Conv::kMeanOfY, k}, {Conv::kRstdOfY, k}, {Conv::kX, odd}, {Conv::kW, shaped({72, 1, 1, 5})}},
      window);
  table.add<ConvData>("n1_32x31_c72_k5",
                      {{ConvData::kDx, many}, {ConvData::kDy, odd}, {ConvData::kW, shaped({5, 1, 1, 72})}}, window);
  using NormConv = NormConvForward;
  const auto four = shaped({4});
  table.add<NormConv>("n1_32x31_c4_k72_statistics",
                      {{NormConv::kY, many},
                       {NormConv::kMeanOfY, k},
                       {NormConv::kRstdOfY, k},
                       {NormConv::kX, few},
                       {NormConv::kW, shaped({72, 1, 1, 4})},
                       {NormConv::kMean, four},
                       {NormConv::kRstd, four},
                       {NormConv::kGamma, four},
                       {NormConv::kBeta, four}},
                      window);
  using Weight = ConvBackwardWeight;
  using NormWeight = NormConvBackwardWeight;
  const auto deep = shaped({1, 2, 2, 1024}), wide = shaped({1, 2, 2, 72}), channels = shaped({1024}),
             dw = shaped({72, 1, 1, 1024});
  table.add<Weight>("n1_2x2_c1024_k72", {{Weight::kDw, dw}, {Weight::kX, deep}, {Weight::kDy, wide}}, window);
  table.add<NormWeight>("n1_2x2_c1024_k72",
                        {{NormWeight::kDw, dw},
                         {NormWeight::kX, deep},
                         {NormWeight::kDy, wide},
                         {NormWeight::kMean, channels},
                         {NormWeight::kRstd, channels},
                         {NormWeight::kGamma, channels},
                         {NormWeight::kBeta, channels}},
                        window);
  using Head = LossHeadForward;
  table.add<Head>("m67_c8_v1000",
                  {{Head::kLosses, shaped({67}, DType::kF64)},
                   {Head::kX, shaped({67, 8})},
                   {Head::kW, shaped({1000, 8})},
                   {Head::kLabels, shaped({67}, DType::kI32)}},
                  CapAttribute{0});
  return table.cases();
}

// Returns the machine of small cards for a math other than f32.
inline CudaMachine machine_of(ProductMath math) {
  CudaMachine machine;
  choose_cuda_machine(machine, CardSize::kSmall, math);
  return machine;
}
inline const CudaMachine kTf32Machine = machine_of(ProductMath::kTf32),
                         kBf16x3Machine = machine_of(ProductMath::kBf16x3);
inline const Backend kTf32Backend = cuda_backend(kTf32Machine), kBf16x3Backend = cuda_backend(kBf16x3Machine);

// Returns all cases on the f32 backend. Cases whose f32 operands tensor cores can multiply are
// returned again on the tf32 and bf16x3 backends.
inline std::vector<Judged> all_cases() {
  std::vector<Judged> cases;
  const auto add = [&](const KernelCase& c) {
    if (kBackend.kernels[kernel_index(c.op, c.pass)][stores_bf16(c) ? 1 : 0] != nullptr)
      cases.push_back({&kBackend, c});
    if (stores_bf16(c) || !has_tensor_operands(c)) return;
    for (const Backend* backend : {&kTf32Backend, &kBf16x3Backend}) cases.push_back({backend, c});
  };
  std::vector<KernelCase> table = kernel_cases();
  const std::vector<KernelCase> wider = wider_cases();
  table.insert(table.end(), wider.begin(), wider.end());
  for (const KernelCase& c : table) {
    add(c);
    if (const std::optional<KernelCase> stored = stored_as_bf16(c)) add(*stored);
  }
  return cases;
}

// Makes the launches of a case. The memory is not initialised, because a dry run computes no
// numbers.
inline void dispatch_dry(const Judged& judged) {
  const KernelCase& c = judged.c;
  const Backend& backend = *judged.backend;
  static const TestWorkers one(1);
  static std::vector<Words<uint32_t, 4>> memory;
  const CasePlan plan(backend, c);
  const uint64_t bytes = plan.plan().arena_bytes + 2 * kAlignment + sizeof(StepScalars);
  if (memory.size() * 16 < bytes) memory.resize(bytes / 16 + 1);
  auto* const begin = reinterpret_cast<unsigned char*>(memory.data());
  Trainer trainer;
  trainer.plan = &plan.plan();
  trainer.backend = &backend;
  trainer.context.workers = &one.workers();
  trainer.context.machine = backend.machine;
  trainer.arena = {{begin + (kAlignment - reinterpret_cast<uintptr_t>(begin) % kAlignment)}, plan.plan().arena_bytes};
  trainer.context.scalars = reinterpret_cast<StepScalars*>((trainer.arena.base + plan.plan().arena_bytes).for_kernels);
  EXPECT_TRUE(dispatch(trainer, plan.program(), plan.row(), false).ok()) << c.id;
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess) << c.id;
}

// The launches of one case: the names of the kernels, and the sum of the launches' threads.
struct Launches {
  std::set<std::string> kernels;
  uint64_t threads = 0;
};
inline Launches dry_run(const Judged& judged) {
  static std::map<const void*, std::string> names;
  Launches launches;
  fibre::Device::instance().set_runner([&](const fibre::Launch& launch) -> fibre::Report {
    std::string& name = names[launch.function];
    if (name.empty()) {
      for (const ptx::FunctionName& each : ptx::names_of(launch.function)) name = each.source + " " + each.name;
    }
    launches.kernels.insert(name);
    launches.threads +=
        uint64_t{launch.grid.x} * launch.grid.y * launch.grid.z * launch.block.x * launch.block.y * launch.block.z;
    return {};
  });
  dispatch_dry(judged);
  fibre::Device::instance().set_runner(nullptr);
  return launches;
}

constexpr uint64_t kMaxThreads = 1u << 13;  // a case whose launches have more threads counts as large

// True if a tensor of more than 32 rows has one row more or one row fewer than a multiple of 64.
// The sides of a product's tiles are 64, 128 or 256, so such a tensor ends next to the edge of a
// tile.
inline bool is_at_an_edge(const KernelCase& c) {
  return std::any_of(c.arguments.begin(), c.arguments.end(), [](const std::optional<Tensor>& tensor) {
    const uint64_t beyond = tensor ? tensor->leading_elements() % 64 : 0;
    return tensor && tensor->leading_elements() > 32 && (beyond == 1 || beyond == 63);
  });
}

// Returns the cases to run, and sets `of` to the number of all cases. A case is chosen if it
// launches a kernel that fewer than `times` earlier chosen cases launch. For large cases and for
// math other than f32, 1 replaces `times`. Small cases come before large ones, then cases at a
// tile's edge before others; the rest of the order is drawn from the ids.
inline std::vector<Judged> chosen_cases(uint32_t times, size_t& of) {
  struct Known {
    const Judged* judged;
    bool at_edge;
    uint64_t order;
    Launches launches;
  };
  const std::vector<Judged> cases = all_cases();
  of = cases.size();
  std::vector<Known> known;
  for (const Judged& each : cases)
    known.push_back({&each, is_at_an_edge(each.c), CaseRandom(each.c.id).word(), dry_run(each)});
  std::sort(known.begin(), known.end(), [](const Known& a, const Known& b) {
    const bool large_a = a.launches.threads > kMaxThreads, large_b = b.launches.threads > kMaxThreads;
    if (large_a != large_b) return large_b;
    return a.at_edge != b.at_edge ? a.at_edge : a.order < b.order;
  });
  std::map<std::string, uint32_t> met;
  std::vector<Judged> chosen;
  for (const Known& each : known) {
    // Kernels on tensor cores also count as large: they compute whole tiles of 128 x 128, which
    // takes long on the CPU.
    const bool is_large = each.launches.threads > kMaxThreads || each.judged->backend != &kBackend;
    const uint32_t wanted = is_large ? 1 : times;
    const auto misses = [&](const std::string& kernel) { return met[kernel] < wanted; };
    if (std::none_of(each.launches.kernels.begin(), each.launches.kernels.end(), misses)) continue;
    for (const std::string& kernel : each.launches.kernels) ++met[kernel];
    chosen.push_back(*each.judged);
  }
  return chosen;
}

}  // namespace reprise::test
