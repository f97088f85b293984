// Judges the accesses of CUDA's kernels to global memory in the PTX that nvcc makes of them.
// Planted faults must be found, with a text that names file, line, thread and tensor. Loads and
// stores of the PTX may differ from those of the source, which cuda_access_test.cpp judges under
// the fibres. The correct kernels are judged in ptx_test.cpp and, with large tensors, in
// ptx_large_test.cpp.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/ports/cards/cuda_global_runs.h"
#include "tests/ports/ptx/ptx_cases.h"
#include "tests/ports/ptx/ptx_mutants.h"

namespace reprise::test {
namespace {

using fibre::Fault;
using fibre::Report;

// ---- faults in a source ----

constexpr uint64_t kSeeds = 8;

TEST_F(Ptx, RowsPastTheEdgeAreNamed) {
  const TileSums by_fibres(TileSumKind::kRight);
  const ptx::PtxLaunches switched(kernels(), machine_);
  EXPECT_EQ(TileSums(TileSumKind::kRight).report.text, "");
  EXPECT_EQ(TileSums(TileSumKind::kRight).sums, by_fibres.sums);
  EXPECT_EQ(TileSums(TileSumKind::kNarrowIndex).report.text, "");     // no fault in a small tensor
  EXPECT_EQ(TileSums(TileSumKind::kMisaligned, 72).report.text, "");  // no fault, because all packs are aligned
  const std::string past = "thread \\d+: \\d+ bytes are read \\d+ bytes past the end of x, which has 37008$";
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    machine_.set_order(seed);
    const auto expect = [&](TileSumKind kind, Fault fault, const std::string& opcode, const std::string& what,
                            uint32_t columns = kColumns) {
      const Report report = TileSums(kind, columns).report;
      EXPECT_EQ(report.fault, fault);
      EXPECT_TRUE(
          matches(report.text, "^cuda_global_kernels.ptx line \\d+: " + opcode + "[a-z0-9.]*: block [0-2],0 " + what))
          << report.text;
    };
    expect(TileSumKind::kOneRowTooMany, Fault::kOutOfBounds, "ld.global", past);
    expect(TileSumKind::kMaskedRow, Fault::kOutOfBounds, "ld.global", past);
    expect(TileSumKind::kMaskedCopy, Fault::kOutOfBounds, "cp.async", past);
    expect(TileSumKind::kInputWritten, Fault::kOutOfBounds, "st.global",
           "thread \\d+: 4 bytes are written at byte \\d+ of x, an input$");
    expect(TileSumKind::kMisaligned, Fault::kMisaligned, "ld.global.v4",
           "thread \\d+: byte \\d+ of x, the global address 0x[0-9a-f]+, for 16 bytes$", 70);
  }
}

TEST_F(Ptx, WhatBlocksDoNotHandOverIsARace) {
  const Total by_fibres(TotalKind::kRight);
  const ptx::PtxLaunches switched(kernels(), machine_);
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    machine_.set_order(seed);
    const Total right(TotalKind::kRight);
    EXPECT_EQ(right.report.text, "");
    EXPECT_EQ(right.total, by_fibres.total);
    EXPECT_EQ(right.count, 3u);
    const auto expect = [&](TotalKind kind, const std::string& what) {
      const Report report = Total(kind).report;
      EXPECT_EQ(report.fault, Fault::kRace);
      EXPECT_TRUE(
          matches(report.text,
                  "^cuda_global_kernels.ptx line \\d+: (ld|st).global.f32: block [0-2],0 thread \\d+: byte \\d+ of " +
                      what))
          << report.text;
    };
    const std::string of_another =
        "partials is read and was written by thread \\d+ of block [0-2],0,0, and nothing hands it over$";
    expect(TotalKind::kNoFence, of_another);
    expect(TotalKind::kFenceTooEarly, of_another);
    expect(TotalKind::kNoBarrier, of_another);
    expect(TotalKind::kNotAcquired, of_another);
    expect(TotalKind::kLostUpdate,
           "total is read and was written by thread \\d+ of block [0-2],0,0, and nothing hands it over$");
    expect(TotalKind::kReadAhead,
           "partials is (read|written) and was (written|read) by thread \\d+ of block [0-2],0,0, and nothing hands it "
           "over$");
  }
}

// ---- faults in the PTX of the library's kernels ----

// A mutant of a PTX file: every `from` in it becomes `to`. In every order of blocks and warps, the
// case `id` must stop with a fault that `says` describes, with the tensor's name.
struct EdgeMutant {
  const char *file, *id, *from, *to;
  const char* says;  // text after "FILE.ptx line 12: OPCODE: block 0,0 thread 3: "
};
// Replacing a comparison by its neighbour, for example >= by >, includes or excludes the limit
// itself. The kernel then accesses one row or element too many.
constexpr const char *kAtLeast = "setp.ge.u64", *kMore = "setp.gt.u64", *kBelow = "setp.lt.u64", *kUpTo = "setp.le.u64";
constexpr EdgeMutant kEdgeMutants[] = {
    {"layer_norm.ptx", "layer_norm_backward__m67_c33", kAtLeast, kMore,
     "4 bytes are read 0 bytes past the end of mean.*, which has 268"},
    {"linear.ptx", "linear_forward__m65_c130_k67", kAtLeast, kMore,
     "4 bytes are read \\d+ bytes past the end of [xw]\\["},
    {"linear.ptx", "linear_backward_weight__m65_c130_k67", kAtLeast, kMore,
     "4 bytes are read \\d+ bytes past the end of d?[xy]\\["},
    {"linear.ptx", "linear_forward__m200_c16_k40_bf16", kBelow, kUpTo,
     "16 bytes are read \\d+ bytes past the end of x"},
    {"linear.ptx", "linear_forward__m200_c16_k40_bf16", kUpTo, kBelow, "16 bytes are read 0 bytes past the end of b"},
    {"conv.ptx", "conv_forward__n2_5x7_c3_k5_r1s1_stride1_pad0", kAtLeast, kMore,
     "4 bytes are read \\d+ bytes past the end of [xw]\\["},
    {"attention.ptx", "attention_forward__b1_t33_h3_d8_p0", "setp.ge.u32", "setp.gt.u32",
     "(4 bytes are read \\d+ bytes past the end of qkv|byte \\d+ of (y|lse).* is written and was written by thread "
     "\\d+ of "
     "block)"},
    {"attention_forward_mma.ptx", "attention_forward__b2_t67_h2_d16_p0_bf16", "setp.ge.u32", "setp.gt.u32",
     "(4 bytes are written \\d+ bytes past the end of y|byte \\d+ of (y|lse).* is written and was written by thread "
     "\\d+ of "
     "block)"},
    {"batch_norm.ptx", "batch_norm_backward__n3_9x11_c17", kAtLeast, kMore,
     "4 bytes are read \\d+ bytes past the end of dy"},
    {"batch_norm.ptx", "batch_norm_backward__n3_9x11_c17", kBelow, kUpTo,
     "(byte \\d+ of dx.* is written and was written by thread \\d+ of block \\d,\\d,0, and nothing hands it over$|4 "
     "bytes are "
     "read \\d+ bytes past the end of d?[xy])"},
    {"batch_norm.ptx", "batch_norm_backward__n3_9x11_c17", "setp.ge.u32", "setp.gt.u32",
     "byte \\d+ of scratch is written and was written by thread \\d+"},
    {"embedding.ptx", "embedding_forward__b2_t5_c7_v11_l8", kAtLeast, kMore,
     "4 bytes are read 0 bytes past the end of tokens"},
    {"softmax.ptx", "softmax_forward__m3_c7", kAtLeast, kMore, "4 bytes are read 0 bytes past the end of x"},
    {"optimizer.ptx", "adamw_update__n67_decay_bf16_with_f32", kAtLeast, kMore,
     "2 bytes are read 0 bytes past the end of parameters"},
};

// Returns the report of a run of the case, with the PTX file `file` replaced by `text`.
Report report_of_case(const std::string& file, std::string text, const std::string& id, ptx::Machine& machine) {
  std::vector<ptx::PtxFile> changed = files();
  for (ptx::PtxFile& each : changed) {
    if (each.name == file) each.text = std::move(text);
  }
  ptx::Kernels wrong(std::move(changed));
  const KernelCase c = case_of(id);
  const ptx::PtxLaunches switched(wrong, machine);
  (void)run_here(c, make_data(c));
  return fibre::take_report();
}
bool says(const Report& report, const std::string& file, const std::string& what) {
  return matches(report.text, "^" + file + " line \\d+: [a-z0-9.]+: block \\d+,\\d+ thread \\d+: " + what);
}

TEST_F(Ptx, AnElementTooManyIsNamedWithItsTensor) {
  for (const EdgeMutant& each : kEdgeMutants) {
    std::string text = text_of(each.file);
    size_t changes = 0;
    for (size_t at = text.find(each.from); at != std::string::npos; at = text.find(each.from, at + 1), ++changes)
      text.replace(at, std::string(each.from).size(), each.to);
    EXPECT_GT(changes, 0u) << each.file << " has no " << each.from;
    for (uint64_t seed = 0; seed < 3; ++seed) {
      machine_.set_order(seed);
      const Report report = report_of_case(each.file, text, each.id, machine_);
      EXPECT_TRUE(says(report, each.file, each.says)) << each.file << ' ' << each.from << ": " << report.text;
    }
  }
}

TEST_F(Ptx, AMisalignedLoadIsNamedWithItsTensor) {
  const Mutation mutation = {"packs begin in the middle",
                             [](const std::string& line) {
                               return has(line, "ld.global.v4.f32") ? replaced(line, "];", "+8];") : std::nullopt;
                             },
                             false};
  const Report report =
      report_of_case("elementwise.ptx", mutated_file("elementwise.ptx", mutation), "add_forward__n1025", machine_);
  EXPECT_EQ(report.fault, Fault::kMisaligned);
  EXPECT_TRUE(says(report, "elementwise.ptx", "byte \\d+ of [ab]\\[.*, the global address 0x[0-9a-f]+, for 16 bytes$"))
      << report.text;
}

}  // namespace
}  // namespace reprise::test
