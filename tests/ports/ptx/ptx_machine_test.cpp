// Tests the PTX machine on hand-written kernels: results of instructions, divergence of lanes, and
// the faults that the machine must find. ptx_test.cpp relies on the machine. This test needs no
// nvcc. Each fault is planted by a change to a correct kernel.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "tests/ports/ptx/ptx_machine.h"

namespace reprise::test {
namespace {

using fibre::Fault;
using fibre::Report;
using ptx::PtxError;
using Words = std::vector<uint32_t>;

constexpr uint64_t kSeeds = 8;

template <typename T>
std::string bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

// Returns the text of a kernel with the instructions `body` and registers of every kind. Its only
// parameter, %rd0, is the address of an array of words. %r0 is the index of the thread.
std::string kernel(const std::string& body, const std::string& variables = "") {
  return ".version 9.0\n.target sm_87\n.address_size 64\n"
         ".extern .shared .align 128 .b8 dynamic[];\n"
         ".visible .entry kernel(\n\t.param .u64 kernel_param_0\n)\n.maxntid 64, 1, 1\n{\n"
         "\t.reg .pred %p<9>;\n\t.reg .b16 %rs<9>;\n\t.reg .f32 %f<9>;\n\t.reg .b32 %r<40>;\n\t.reg .f64 "
         "%fd<9>;\n\t.reg .b64 "
         "%rd<9>;\n" +
         variables + "\tld.param.u64 %rd0, [kernel_param_0];\n\tmov.u32 %r0, %tid.x;\n" + body + "\tret;\n}\n";
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

struct Launched {
  uint32_t threads = 32, dynamic_bytes = 0;
  uint64_t seed = 1;
  uint32_t blocks = 1;
  // Number of words that the input x and the output y each have. y begins 16 words after the end of
  // x. The kernel may touch no other memory; 0: any memory.
  uint32_t allowed_words = 0;
};
Report run(const std::string& text, Words& words, const Launched& how = {}) {
  static ptx::Machine machine;
  const ptx::ModuleText module("hand.ptx", text);
  const ptx::Program program = ptx::decode(module, module.kernels().at(0));
  machine.set_order(how.seed);
  const auto x = reinterpret_cast<uint64_t>(words.data()), bytes = uint64_t{4} * how.allowed_words;
  MemoryRanges ranges;
  if (bytes != 0) ranges = MemoryRanges({{x + bytes + 64, x + 2 * bytes + 64, true, "y"}, {x, x + bytes, false, "x"}});
  return machine.run(program,
                     {dim3(how.blocks), dim3(how.threads), how.dynamic_bytes, {bytes_of(words.data())}, ranges});
}
// Runs the kernel on words 0, 1, 2, ..., and requires that it has no fault. Returns the words after
// the run. A thread that executes kStore has overwritten the word of its index.
Words results(const std::string& text, const Launched& how = {}) {
  Words words(256);
  for (uint32_t i = 0; i < 256; ++i) words[i] = i;
  EXPECT_EQ(run(text, words, how).text, "");
  return words;
}
Fault fault_of(const std::string& text, const Launched& how = {}) {
  Words words(256);
  return run(text, words, how).fault;
}
std::string error_of(const std::string& text) {
  Words words(256);
  try {
    (void)run(text, words);
  } catch (const PtxError& error) {
    return error.what();
  }
  return "";
}

// Instructions that store %r1 in the thread's word.
const std::string kStore = "\tmul.wide.u32 %rd1, %r0, 4;\n\tadd.s64 %rd2, %rd0, %rd1;\n\tst.global.u32 [%rd2], %r1;\n";

// ---- supported text ----

TEST(PtxText, AnUnknownInstructionIsNamedWithItsFileAndLine) {
  EXPECT_EQ(error_of(kernel("\tsad.u32 %r1, %r0, %r0, %r0;\n")),
            "hand.ptx line 18: the instruction 'sad.u32' is not known");
  EXPECT_EQ(error_of(kernel("\tld.const.u32 %r1, [%rd0];\n")),
            "hand.ptx line 18: the instruction 'ld.const.u32' is not known");
  EXPECT_EQ(error_of(kernel("\tmma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r1};\n")),
            "hand.ptx line 18: the instruction 'mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32' is not known");
}

TEST(PtxText, WhatIsNotWellFormedIsNamedWithItsLine) {
  EXPECT_EQ(error_of(kernel("\tadd.s32 %r1, %r0;\n")), "hand.ptx line 18: add.s32 takes 3 operands, not 2");
  EXPECT_EQ(error_of(kernel("\tadd.s32 %r1, %rd0, 1;\n")),
            "hand.ptx line 18: the register %rd0 has not the width that add.s32 takes");
  EXPECT_EQ(error_of(kernel("\tadd.s32 %r1, %r77, 1;\n")), "hand.ptx line 18: the name '%r77' is not known");
  EXPECT_EQ(error_of(kernel("\tbra $nowhere;\n")), "hand.ptx line 18: there is no label '$nowhere'");
  EXPECT_EQ(error_of(kernel("\tadd.s32 %r1 %r0;\n")), "hand.ptx line 18: ',' or ';' must stand where '%r0' is");
  EXPECT_EQ(error_of(kernel("", "\t.sreg .b32 x;\n")), "hand.ptx line 16: the directive .sreg is not known");
  EXPECT_EQ(error_of(kernel("\tbar.sync 1;\n")), "hand.ptx line 18: the barrier must be number 0");
}

TEST(PtxText, ArgumentsMustHaveTheirParametersBytes) {
  ptx::Machine machine;
  const ptx::ModuleText module("hand.ptx", kernel(""));
  const ptx::Program program = ptx::decode(module, module.kernels().at(0));
  EXPECT_EQ(machine.run(program, {dim3(1), dim3(32), 0, {bytes_of(uint32_t{0})}}).fault, Fault::kLaunch);
  EXPECT_EQ(machine.run(program, {dim3(1), dim3(32), 0, {}}).fault, Fault::kLaunch);
}

// ---- registers ----

// Returns the value of %r1 in thread 0 after the instructions `body`.
uint32_t computed(const std::string& body) { return results(kernel(body + kStore))[0]; }
uint32_t computed_f32(const std::string& opcode, const std::vector<float>& values) {
  std::string operands = "\t" + opcode + " %f0";
  for (const float value : values) {
    char bits[16];
    std::snprintf(bits, sizeof bits, ", 0f%08X", std::bit_cast<uint32_t>(value));
    operands += bits;
  }
  return computed(operands + ";\n\tmov.b32 %r1, %f0;\n");
}
uint32_t bits(float value) { return std::bit_cast<uint32_t>(value); }

TEST(PtxArithmetic, IntegersWrapShiftAndDivide) {
  EXPECT_EQ(computed("\tadd.s32 %r1, 2147483647, 2;\n"), 0x80000001u);
  EXPECT_EQ(computed("\tsub.s32 %r1, 1, 2;\n"), 0xffffffffu);
  EXPECT_EQ(computed("\tshl.b32 %r1, 3, 31;\n"), 0x80000000u);
  EXPECT_EQ(computed("\tshl.b32 %r1, 3, 32;\n"), 0u);
  EXPECT_EQ(computed("\tshr.s32 %r1, -8, 40;\n"), 0xffffffffu);
  EXPECT_EQ(computed("\tshr.u32 %r1, -8, 28;\n"), 15u);
  EXPECT_EQ(computed("\tdiv.s32 %r1, -7, 2;\n"), static_cast<uint32_t>(-3));
  EXPECT_EQ(computed("\trem.u32 %r1, 17, 5;\n"), 2u);
  EXPECT_EQ(computed("\tmad.lo.s32 %r1, -3, 5, 7;\n"), static_cast<uint32_t>(-8));
  EXPECT_EQ(computed("\tmul.hi.u32 %r1, 0x80000000, 6;\n"), 3u);
  EXPECT_EQ(computed("\tmin.s32 %r1, -1, 2;\n"), 0xffffffffu);
  EXPECT_EQ(computed("\tmin.u32 %r1, -1, 2;\n"), 2u);
  EXPECT_EQ(computed("\tbfi.b32 %r1, 5, 0xffffffff, 4, 3;\n"), 0xffffffdfu);
  EXPECT_EQ(computed("\tmov.b64 %rd3, 1;\n\tbfi.b64 %rd3, %rd3, %rd3, 33, 4;\n\tshr.u64 %rd3, %rd3, 32;\n\tcvt.u32.u64 "
                     "%r1, %rd3;\n"),
            2u);
  EXPECT_EQ(computed("\tprmt.b32 %r1, 0x33221100, 0x77665544, 0x7531;\n"), 0x77553311u);
  EXPECT_EQ(computed("\tshf.l.wrap.b32 %r1, 0x80000001, 0x2, 1;\n"), 5u);
  EXPECT_EQ(computed("\tmul.wide.s32 %rd3, -2, 3;\n\tshr.s64 %rd3, %rd3, 1;\n\tcvt.u32.u64 %r1, %rd3;\n"),
            static_cast<uint32_t>(-3));
  EXPECT_EQ(computed("\tcvt.u16.u32 %rs1, 0x12345;\n\tsub.s16 %rs2, %rs1, 0x2346;\n\tcvt.s32.s16 %r1, %rs2;\n"),
            0xffffffffu);
  EXPECT_EQ(computed("\tmov.b64 %rd3, {3, 4};\n\tmov.b64 {%r2, %r3}, %rd3;\n\tsub.s32 %r1, %r3, %r2;\n"), 1u);
}

TEST(PtxArithmetic, FloatsAreRoundedOnceAndFuseOnlyWhereToldTo) {
  const float a = 1 + std::ldexp(1.0f, -13), b = 1 - std::ldexp(1.0f, -13);
  EXPECT_EQ(computed_f32("mul.rn.f32", {a, b}), bits(1.0f));
  EXPECT_EQ(computed_f32("fma.rn.f32", {a, b, -1.0f}), bits(-std::ldexp(1.0f, -26)));
  EXPECT_EQ(computed_f32("fma.rn.sat.f32", {a, b, -0.5f}), bits(std::fma(a, b, -0.5f)));
  EXPECT_EQ(computed_f32("fma.rn.sat.f32", {a, b, 3}), bits(1.0f));
  EXPECT_EQ(computed_f32("fma.rn.sat.f32", {-INFINITY, b, 3}), bits(0.0f));
  EXPECT_EQ(computed_f32("fma.rn.sat.f32", {NAN, b, 3}), bits(0.0f));
  EXPECT_EQ(computed_f32("div.rn.f32", {1, 3}), bits(1.0f / 3.0f));
  EXPECT_EQ(computed_f32("rcp.rn.f32", {7}), bits(1.0f / 7.0f));
  EXPECT_EQ(computed_f32("sqrt.rn.f32", {2}), bits(std::sqrt(2.0f)));
  EXPECT_EQ(computed_f32("add.rn.f32", {1e-45f, 1e-45f}), 2u);  // subnormal numbers are kept
  EXPECT_EQ(computed_f32("sub.rn.f32", {INFINITY, INFINITY}), 0x7fffffffu);
  EXPECT_EQ(computed_f32("min.f32", {NAN, 3}), bits(3.0f));
  EXPECT_EQ(computed_f32("max.f32", {-0.0f, 0.0f}), bits(0.0f));
  EXPECT_EQ(computed("\tcvt.rzi.s32.f32 %r1, 0fC0200000;\n"), static_cast<uint32_t>(-2));
  EXPECT_EQ(computed("\tcvt.rzi.u32.f32 %r1, 0fC0200000;\n"), 0u);
  EXPECT_EQ(computed("\tcvt.rn.f32.u32 %f0, 16777217;\n\tmov.b32 %r1, %f0;\n"), bits(16777216.0f));
  EXPECT_EQ(computed("\tcvt.rn.f32.f64 %f0, 0d3FF0000010000001;\n\tmov.b32 %r1, %f0;\n"), bits(1.0f) + 1);
  EXPECT_EQ(computed("\tcvt.rna.tf32.f32 %r1, 0f3F801000;\n"), 0x3f802000u);
  const auto holds = [&](const std::string& compare) {
    return computed("\t" + compare + ";\n\tselp.b32 %r1, 1, 0, %p1;\n") == 1;
  };
  EXPECT_TRUE(holds("setp.neu.f32 %p1, 0f7FFFFFFF, 0f7FFFFFFF"));
  EXPECT_FALSE(holds("setp.ne.f32 %p1, 0f7FFFFFFF, 0f3F800000"));
  EXPECT_TRUE(holds("setp.leu.f32 %p1, 0f7FFFFFFF, 0f3F800000"));
  EXPECT_FALSE(holds("setp.ge.f32 %p1, 0f7FFFFFFF, 0f3F800000"));
  EXPECT_TRUE(holds("setp.lt.s32 %p1, -1, 1"));
  EXPECT_FALSE(holds("setp.lt.u32 %p1, -1, 1"));
}

// ---- lanes that diverge and meet ----

// A loop that lane n runs n times. After it, lanes below 5 add 100. The other lanes, by a negated
// guard, add 200.
const std::string kLoop =
    "\tmov.u32 %r1, 0;\n\tmov.u32 %r2, 0;\n$again:\n\tsetp.ge.u32 %p1, %r2, %r0;\n\t@%p1 bra $done;\n"
    "\tadd.s32 %r1, %r1, 3;\n\tadd.s32 %r2, %r2, 1;\n\tbra.uni $again;\n$done:\n"
    "\tsetp.lt.u32 %p2, %r0, 5;\n\t@%p2 add.s32 %r1, %r1, 100;\n\t@!%p2 add.s32 %r1, %r1, 200;\n";

TEST(PtxLanes, LoopAsOftenAsEachMustAndMeetAgain) {
  const Words words =
      results(kernel(kLoop + "\tactivemask.b32 %r5;\n\tsetp.ne.s32 %p3, %r5, -1;\n\t@%p3 mov.u32 %r1, 0;\n" + kStore));
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(words[i], 3 * i + (i < 5 ? 100 : 200)) << i;
  EXPECT_EQ(words[32], 32u);
  // Without the negation the result must differ, which shows that it has an effect.
  EXPECT_NE(results(kernel(replaced(kLoop, "@!%p2", "@%p2") + kStore)), words);
}

TEST(PtxLanes, ThatEndDoNotComeToACollective) {
  const std::string body =
      "\tsetp.lt.u32 %p1, %r0, 8;\n\t@%p1 ret;\n\tshfl.sync.idx.b32 %r1|%p2, %r0, 9, 31, 0xffffff00;\n";
  EXPECT_EQ(results(kernel(body + kStore))[20], 9u);
  EXPECT_EQ(fault_of(kernel(replaced(body, "0xffffff00", "-1"))), Fault::kDivergence);
  EXPECT_EQ(fault_of(kernel(replaced(body, "0xffffff00", "0xfffffe00"))), Fault::kShuffle);
}

TEST(PtxLanes, OfBothSidesOfABranchShuffleApart) {
  const std::string body =
      "\tsetp.lt.u32 %p1, %r0, 16;\n\t@%p1 bra $low;\n\tshfl.sync.bfly.b32 %r1|%p2, %r0, 1, 31, 0xffff0000;\n\tbra.uni "
      "$join;\n"
      "$low:\n\tshfl.sync.bfly.b32 %r1|%p2, %r0, 2, 31, 0x0000ffff;\n$join:\n\tbar.warp.sync -1;\n";
  const Words words = results(kernel(body + kStore));
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(words[i], i ^ (i < 16 ? 2 : 1)) << i;
  EXPECT_EQ(fault_of(kernel(replaced(body, "0x0000ffff", "-1"))), Fault::kDivergence);
}

TEST(PtxLanes, ShufflesReachAcrossSegments) {
  const auto shuffled = [](const std::string& how, uint32_t lane) {
    return results(kernel("\tshfl.sync." + how + ", -1;\n" + kStore))[lane];
  };
  EXPECT_EQ(shuffled("up.b32 %r1|%p1, %r0, 3, 0", 5), 2u);
  EXPECT_EQ(shuffled("up.b32 %r1|%p1, %r0, 3, 0", 2), 2u);
  EXPECT_EQ(shuffled("down.b32 %r1|%p1, %r0, 3, 31", 28), 31u);
  EXPECT_EQ(shuffled("down.b32 %r1|%p1, %r0, 3, 31", 29), 29u);
  EXPECT_EQ(shuffled("down.b32 %r1|%p1, %r0, 3, 0x181f", 6), 6u);  // segments of 8
  EXPECT_EQ(shuffled("idx.b32 %r1|%p1, %r0, 2, 0x181f", 29), 26u);
  EXPECT_EQ(shuffled("bfly.b32 %r1|%p1, %r0, 16, 31", 3), 19u);
}

TEST(PtxLanes, Vote) {
  const std::string odd = "\tand.b32 %r2, %r0, 1;\n\tsetp.eq.s32 %p1, %r2, 1;\n";
  EXPECT_EQ(results(kernel(odd + "\tvote.sync.ballot.b32 %r1, %p1, -1;\n" + kStore))[7], 0xaaaaaaaau);
  EXPECT_EQ(results(kernel(odd + "\tvote.sync.any.pred %p2, %p1, -1;\n\tselp.b32 %r1, 7, 8, %p2;\n" + kStore))[0], 7u);
  EXPECT_EQ(results(kernel(odd + "\tvote.sync.all.pred %p2, %p1, -1;\n\tselp.b32 %r1, 7, 8, %p2;\n" + kStore))[0], 8u);
}

// ---- shared memory and barriers ----

// Instructions by which thread t stores 2 t in its word of a shared array and then reads the word
// of thread 63 - t.
const std::string kArray = "\t.shared .align 4 .b8 array[256];\n\t.local .align 16 .b8 depot[16];\n";
const std::string kReverse =
    "\tshl.b32 %r2, %r0, 2;\n\tmov.u32 %r3, array;\n\tadd.s32 %r4, %r3, %r2;\n\tshl.b32 %r5, %r0, 1;\n\tst.shared.u32 "
    "[%r4], "
    "%r5;\n"
    "\tbar.sync 0;\n\tsub.s32 %r6, 252, %r2;\n\tadd.s32 %r7, %r3, %r6;\n\tld.shared.u32 %r1, [%r7];\n";

TEST(PtxShared, BarriersOrderAccesses) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    EXPECT_EQ(results(kernel(kReverse + kStore, kArray), {.threads = 64, .seed = seed})[3], 120u);
    const Fault fault =
        fault_of(kernel(replaced(kReverse, "\tbar.sync 0;\n", "") + kStore, kArray), {.threads = 64, .seed = seed});
    EXPECT_TRUE(fault == Fault::kRace || fault == Fault::kUnwritten) << seed;
    EXPECT_EQ(fault_of(kernel("\tsetp.lt.u32 %p1, %r0, 40;\n\t@%p1 bar.sync 0;\n"), {.threads = 64, .seed = seed}),
              Fault::kDivergence);
  }
}

TEST(PtxShared, AccessesLieWithinAnArrayAndAreAligned) {
  EXPECT_EQ(fault_of(kernel(replaced(kReverse, "[%r4]", "[%r4+4]"), kArray), {.threads = 64}), Fault::kOutOfBounds);
  EXPECT_EQ(fault_of(kernel(replaced(kReverse, "[%r4]", "[%r4+2]"), kArray), {.threads = 32}), Fault::kMisaligned);
  EXPECT_EQ(fault_of(kernel(replaced(kReverse, "mov.u32 %r3, array", "mov.u32 %r3, dynamic"), kArray), {.threads = 64}),
            Fault::kOutOfBounds);
  EXPECT_EQ(results(kernel(replaced(kReverse, "mov.u32 %r3, array", "mov.u32 %r3, dynamic") + kStore, kArray),
                    {.threads = 64, .dynamic_bytes = 256})[0],
            126u);
  EXPECT_EQ(fault_of(kernel(""), {.dynamic_bytes = 99 * 1024 + 1}), Fault::kLaunch);
}

TEST(PtxShared, AVoteAtABarrierIsTheBlocks) {
  const std::string body =
      "\tsetp.eq.s32 %p1, %r0, 40;\n\tbarrier.cta.red.or.pred %p2, 0, %p1;\n\tselp.b32 %r1, 7, 8, %p2;\n";
  EXPECT_EQ(results(kernel(body + kStore), {.threads = 64})[3], 7u);
  EXPECT_EQ(results(kernel(body + kStore), {.threads = 32})[3], 8u);
}

// ---- asynchronous copies ----

// Instructions by which each thread copies 16 bytes, and then reads the first word that its
// neighbour has copied.
const std::string kCopy =
    "\tshl.b32 %r2, %r0, 4;\n\tmov.u32 %r3, dynamic;\n\tadd.s32 %r4, %r3, %r2;\n\tcvt.u64.u32 %rd3, %r2;\n\tadd.s64 "
    "%rd4, %rd0, "
    "%rd3;\n"
    "\tmov.u32 %r5, 16;\n\tcp.async.cg.shared.global [%r4], [%rd4], 16, "
    "%r5;\n\tcp.async.commit_group;\n\tcp.async.wait_group "
    "0;\n"
    "\tbar.warp.sync -1;\n\txor.b32 %r6, %r2, 16;\n\tadd.s32 %r7, %r3, %r6;\n\tld.shared.v4.u32 {%r8, %r9, %r10, "
    "%r11}, "
    "[%r7];\n\tadd.s32 %r1, %r8, %r11;\n";

TEST(PtxCopies, AreThereAfterTheWaitAndABarrier) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const Launched how = {.dynamic_bytes = 512, .seed = seed};
    EXPECT_EQ(results(kernel(kCopy + kStore), how)[0], 4u + 7u);
    EXPECT_EQ(results(kernel(replaced(kCopy, "%r5, 16", "%r5, 4") + kStore), how)[0], 4u);  // 4 bytes, then zeros
    EXPECT_EQ(fault_of(kernel(replaced(kCopy, "wait_group 0", "wait_group 1")), how), Fault::kInFlight) << seed;
    EXPECT_EQ(fault_of(kernel(replaced(kCopy, "\tcp.async.wait_group 0;\n", "")), how), Fault::kInFlight) << seed;
    EXPECT_EQ(fault_of(kernel(replaced(kCopy, "\tcp.async.commit_group;\n", "")), how), Fault::kInFlight) << seed;
    EXPECT_EQ(fault_of(kernel(replaced(kCopy, "\tbar.warp.sync -1;\n", "")), how), Fault::kRace) << seed;
    EXPECT_EQ(fault_of(kernel(replaced(kCopy, "%r5, 16", "%r5, 20")), how), Fault::kOutOfBounds) << seed;
    EXPECT_EQ(fault_of(kernel(replaced(kCopy, "[%rd4]", "[%rd4+4]")), how), Fault::kMisaligned) << seed;
  }
}

// ---- matrices ----

// Element (row, column) of matrix m is 64 m + 8 row + column. Each thread outputs its register of
// matrix 2, which contains two elements.
TEST(PtxMatrices, AreLoadedAsTheyLieOrTransposed) {
  const std::string body =
      "\tshl.b32 %r2, %r0, 4;\n\tmov.u32 %r3, dynamic;\n\tadd.s32 %r4, %r3, %r2;\n\tshl.b32 %r5, %r0, 3;\n\tadd.s32 "
      "%r6, %r5, "
      "0x10000;\n"
      "\tshl.b32 %r7, %r5, 16;\n\tadd.s32 %r6, %r6, %r7;\n\tadd.s32 %r8, %r6, 0x20002;\n\tadd.s32 %r9, %r6, "
      "0x40004;\n\tadd.s32 "
      "%r10, %r6, 0x60006;\n"
      "\tst.shared.v4.u32 [%r4], {%r6, %r8, %r9, %r10};\n\tbar.warp.sync -1;\n"
      "\tldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r11, %r12, %r13, %r14}, [%r4];\n\tmov.u32 %r1, %r13;\n";
  const Words words = results(kernel(body + kStore), {.dynamic_bytes = 512});
  const Words transposed =
      results(kernel(replaced(body, "x4.shared", "x4.trans.shared") + kStore), {.dynamic_bytes = 512});
  for (uint32_t lane = 0; lane < 32; ++lane) {
    const uint32_t row = lane / 4, column = lane % 4 * 2;
    EXPECT_EQ(words[lane], (128 + row * 8 + column) | (128 + row * 8 + column + 1) << 16) << lane;
    EXPECT_EQ(transposed[lane], (128 + column * 8 + row) | (128 + (column + 1) * 8 + row) << 16) << lane;
  }
  EXPECT_EQ(fault_of(kernel(replaced(body, "\tbar.warp.sync -1;\n", "")), {.dynamic_bytes = 512}), Fault::kRace);
  EXPECT_EQ(fault_of(kernel(replaced(body, "[%r4];\n\tmov", "[%r4+16];\n\tmov")), {.dynamic_bytes = 512}),
            Fault::kOutOfBounds);
  EXPECT_EQ(fault_of(kernel(replaced(body, "\tldmatrix", "\tsetp.lt.u32 %p1, %r0, 9;\n\t@%p1 ldmatrix")),
                     {.dynamic_bytes = 512}),
            Fault::kDivergence);
}

// Tests the layouts of a product's operands. One element of a is 1 and the others are 0, so that
// the product is a row of b.
TEST(PtxMatrices, ProductsHaveTheManualsMaps) {
  for (uint32_t row = 0; row < 16; ++row) {
    for (uint32_t k = 0; k < 16; ++k) {
      // Lane and register that contain element (row, k) of a. By the manual's figure for m16n8k16,
      // the four registers contain a0,a1 | a2,a3 | a4,a5 | a6,a7.
      const uint32_t a_lane = row % 8 * 4 + k % 8 / 2, a_register = row / 8 + k / 8 * 2, one = 0x3f80u << (k % 2 * 16);
      // b[k][n] is k + 16 n, which a bf16 represents exactly: its bits are the upper half of the
      // f32.
      Words words(32 * 8);
      words[a_lane * 8 + a_register] = one;
      for (uint32_t lane = 0; lane < 32; ++lane) {
        for (uint32_t r = 0; r < 2; ++r) {
          const uint32_t first = lane % 4 * 2 + 8 * r, n = lane / 4;
          words[lane * 8 + 4 + r] = bits(static_cast<float>(first + 16 * n)) >> 16 |
                                    (bits(static_cast<float>(first + 1 + 16 * n)) & 0xffff0000u);
        }
      }
      const std::string text = kernel(
          "\tshl.b32 %r2, %r0, 5;\n\tcvt.u64.u32 %rd3, %r2;\n\tadd.s64 %rd4, %rd0, %rd3;\n\tld.global.v4.u32 {%r10, "
          "%r11, %r12, "
          "%r13}, [%rd4];\n"
          "\tld.global.v2.u32 {%r14, %r15}, [%rd4+16];\n\tmov.f32 %f1, 0f40000000;\n\tmov.f32 %f2, %f1;\n\tmov.f32 "
          "%f3, "
          "%f1;\n\tmov.f32 %f4, %f1;\n"
          "\tmma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1, %f2, %f3, %f4}, {%r10, %r11, %r12, %r13}, "
          "{%r14, %r15}, "
          "{%f1, %f2, %f3, %f4};\n"
          "\tst.global.v4.f32 [%rd4], {%f1, %f2, %f3, %f4};\n");
      ASSERT_EQ(run(text, words).text, "");
      for (uint32_t lane = 0; lane < 32; ++lane) {
        for (uint32_t i = 0; i < 4; ++i) {
          const uint32_t m = lane / 4 + i / 2 * 8, n = lane % 4 * 2 + i % 2;
          ASSERT_EQ(words[lane * 8 + i], bits(m == row ? static_cast<float>(2 + k + 16 * n) : 2.0f))
              << row << ' ' << k << ' ' << lane << ' ' << i;
        }
      }
    }
  }
}

// ---- memory ----

TEST(PtxMemory, GlobalAddressesAreMappedAndAligned) {
  EXPECT_EQ(fault_of(kernel("\tld.global.u32 %r1, [%rd0+2];\n")), Fault::kMisaligned);
  EXPECT_EQ(fault_of(kernel("\tmov.u64 %rd1, 64;\n\tld.global.u32 %r1, [%rd1];\n")), Fault::kOutOfBounds);
  EXPECT_EQ(fault_of(kernel("\tmov.u64 %rd1, 0x7000000000000000;\n\tst.global.u32 [%rd1], %r0;\n")),
            Fault::kOutOfBounds);
  Words words(256);
  EXPECT_EQ(run(kernel("\tadd.s32 %r1, %r0, 1;\n\tld.global.u32 %r2, [16];\n"), words).text,
            "hand.ptx line 19: ld.global.u32: block 0,0 thread 0: there is no memory at the global address 0x10");
}

// Instructions by which thread t copies word t of x to word t of y. x has 32 words, and y begins 48
// words after the start of x.
const std::string kCopyWord =
    "\tmul.wide.u32 %rd1, %r0, 4;\n\tadd.s64 %rd2, %rd0, %rd1;\n\tld.global.u32 %r1, [%rd2];\n\tst.global.u32 "
    "[%rd2+192], %r1;\n";

TEST(PtxMemory, AccessesLieInATensor) {
  const Launched how = {.allowed_words = 32};
  const auto text_of = [&](const std::string& body) {
    Words words(256);
    return run(kernel(body), words, how).text;
  };
  const auto load = [&](const std::string& to) { return text_of(replaced(kCopyWord, "[%rd2];", to)); };
  EXPECT_EQ(text_of(kCopyWord), "");
  EXPECT_EQ(load("[%rd2+4];"),
            "hand.ptx line 20: ld.global.u32: block 0,0 thread 31: 4 bytes are read 0 bytes past the end of x, which "
            "has 128");
  EXPECT_EQ(load("[%rd2+16];"),
            "hand.ptx line 20: ld.global.u32: block 0,0 thread 28: 4 bytes are read 0 bytes past the end of x, which "
            "has 128");
  EXPECT_EQ(load("[%rd2+-8];"),
            "hand.ptx line 20: ld.global.u32: block 0,0 thread 0: 4 bytes are read 8 bytes before x");
  EXPECT_EQ(load("[%rd2+192];"), "");  // an output may be read
  EXPECT_EQ(text_of(replaced(kCopyWord, "[%rd2+192]", "[%rd2+4]")),
            "hand.ptx line 21: st.global.u32: block 0,0 thread 0: 4 bytes are written at byte 4 of x, an input");
  EXPECT_EQ(text_of(replaced(kCopyWord, "[%rd2+192]", "[%rd2+184]")),
            "hand.ptx line 21: st.global.u32: block 0,0 thread 0: 4 bytes are written 56 bytes past the end of x, "
            "which has 128");
  EXPECT_EQ(text_of("\tld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%rd0+112];\n"), "");
  EXPECT_EQ(text_of("\tld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%rd0+120];\n")
                .find("hand.ptx line 18: ld.global.v4.u32: block 0,0 thread 0: byte 120 of x, "),
            0u);
  EXPECT_EQ(text_of("\tld.global.u16 %rs1, [%rd0+127];\n")
                .find("hand.ptx line 18: ld.global.u16: block 0,0 thread 0: byte 127 of x, "),
            0u);
}

TEST(PtxMemory, ACopysValidBytesLieInATensor) {
  const Launched how = {.dynamic_bytes = 512, .allowed_words = 128};
  EXPECT_EQ(fault_of(kernel(kCopy), how), Fault::kNone);
  EXPECT_EQ(fault_of(kernel(replaced(kCopy, "[%rd4]", "[%rd4+16]")), how), Fault::kOutOfBounds);
  EXPECT_EQ(fault_of(kernel(replaced(replaced(kCopy, "[%rd4]", "[%rd4+16]"), "%r5, 16", "%r5, 0")), how), Fault::kNone);
}

// ---- the order of accesses to global memory ----

// Instructions by which thread 0 writes word 0 of global memory, and thread 40, in another warp,
// reads it after a barrier.
const std::string kTwoWarps =
    "\tsetp.eq.s32 %p1, %r0, 0;\n\tsetp.eq.s32 %p2, %r0, 40;\n\tsetp.eq.s32 %p3, %r0, 5;\n"
    "\t@%p1 st.global.u32 [%rd0], %r0;\n\tbar.sync 0;\n\t@%p2 ld.global.u32 %r1, [%rd0];\n";

TEST(PtxOrder, BarriersOrderThreadsOfABlock) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const Launched how = {.threads = 64, .seed = seed};
    const auto changed = [&](const std::string& body, const std::string& from, const std::string& to) {
      return fault_of(kernel(replaced(body, from, to)), how);
    };
    EXPECT_EQ(fault_of(kernel(kTwoWarps), how), Fault::kNone);
    EXPECT_EQ(changed(kTwoWarps, "bar.sync 0", "bar.warp.sync -1"), Fault::kRace);  // does not order thread 40
    EXPECT_EQ(changed(kTwoWarps, "\tbar.sync 0;\n", ""), Fault::kRace);
    EXPECT_EQ(changed(kTwoWarps, "\tbar.sync 0;\n", "\tmembar.gl;\n"), Fault::kRace);
    const std::string both_read = replaced(kTwoWarps, "st.global.u32 [%rd0], %r0", "ld.global.u32 %r1, [%rd0]");
    EXPECT_EQ(changed(both_read, "\tbar.sync 0;\n", ""), Fault::kNone);
    const std::string one_warp = replaced(kTwoWarps, "@%p2 ld", "@%p3 ld");
    EXPECT_EQ(changed(one_warp, "bar.sync 0", "bar.warp.sync -1"), Fault::kNone);
    EXPECT_EQ(changed(one_warp, "\tbar.sync 0;\n", ""), Fault::kRace);
    const std::string later_write =
        replaced(both_read, "@%p2 ld.global.u32 %r1, [%rd0]", "@%p2 st.global.u32 [%rd0], %r0");
    EXPECT_EQ(fault_of(kernel(later_write), how), Fault::kNone);
    EXPECT_EQ(changed(later_write, "\tbar.sync 0;\n", ""), Fault::kRace);
    // Other bytes of the word are independent.
    const std::string bytes = replaced(replaced(kTwoWarps, "st.global.u32", "st.global.u8"),
                                       "ld.global.u32 %r1, [%rd0]", "ld.global.u8 %r1, [%rd0+1]");
    EXPECT_EQ(changed(bytes, "\tbar.sync 0;\n", ""), Fault::kNone);
  }
  Words words(256);
  EXPECT_EQ(
      run(kernel(replaced(
              kTwoWarps, "\tbar.sync 0;\n\t@%p2 ld.global.u32 %r1, [%rd0]",
              "\tbar.warp.sync -1;\n\t@%p3 st.global.u32 [%rd0+192], %r0;\n\t@%p1 ld.global.u32 %r1, [%rd0+192]")),
          words, {.threads = 32, .allowed_words = 32})
          .text,
      "hand.ptx line 21: st.global.u32: block 0,0 thread 0: 4 bytes are written at byte 0 of x, an input");
}

// A copy reads its source until its thread has waited for the copy. Another thread must not write
// to the source before that, even after a barrier.
TEST(PtxOrder, ACopyReadsItsSourceUntilItIsWaitedFor) {
  const std::string written =
      "\txor.b32 %r12, %r2, 16;\n\tcvt.u64.u32 %rd5, %r12;\n\tadd.s64 %rd6, %rd0, %rd5;\n\tst.global.u32 [%rd6], "
      "%r0;\n";
  const auto fault = [&](const std::string& at, const std::string& barrier) {
    return fault_of(kernel(replaced(kCopy, at, barrier + written + at)), {.dynamic_bytes = 512});
  };
  EXPECT_EQ(fault("\tcp.async.wait_group 0;\n", ""), Fault::kRace);
  EXPECT_EQ(fault("\tcp.async.wait_group 0;\n", "\tbar.warp.sync -1;\n"), Fault::kRace);
  EXPECT_EQ(fault("\txor.b32 %r6", ""), Fault::kNone);
}

// Every block writes word 64 + block, and then increments the counter in word 32. The block that
// increments it last adds the words of all blocks, and writes the sum to word 0.
const std::string kLastBlock =
    "\tmov.u32 %r2, %ctaid.x;\n\tmov.u32 %r3, %nctaid.x;\n\tmul.wide.u32 %rd1, %r2, 4;\n\tadd.s64 %rd2, %rd0, %rd1;\n"
    "\tsetp.eq.s32 %p1, %r0, 0;\n\tsetp.eq.s32 %p2, %r0, 33;\n\tadd.s32 %r4, %r2, 1;\n"
    "\t@%p2 st.global.u32 [%rd2+256], %r4;\n\tbar.sync 0;\n\t@!%p1 bra $counted;\n\tmembar.gl;\n"
    "\tatom.global.add.u32 %r5, [%rd0+128], 1;\n\tmembar.cta;\n\tmembar.gl;\n\tst.shared.u32 [dynamic], "
    "%r5;\n$counted:\n\tbar.sync 0;\n"
    "\tld.shared.u32 %r6, [dynamic];\n\tadd.s32 %r7, %r6, 1;\n\tsetp.ne.s32 %p3, %r7, %r3;\n\t@%p3 ret;\n\t@!%p2 ret;\n"
    "\tmov.u32 %r8, 0;\n\tmov.u32 %r9, 0;\n\tadd.s64 %rd3, %rd0, 256;\n$next:\n\tld.global.u32 %r10, [%rd3];\n"
    "\tadd.s32 %r9, %r9, %r10;\n\tadd.s64 %rd3, %rd3, 4;\n\tadd.s32 %r8, %r8, 1;\n\tsetp.lt.u32 %p4, %r8, %r3;\n\t@%p4 "
    "bra "
    "$next;\n"
    "\tst.global.u32 [%rd0], %r9;\n";

TEST(PtxOrder, AFenceAnAtomicAndAFenceHandOverToTheLastBlock) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const Launched how = {.threads = 64, .dynamic_bytes = 4, .seed = seed, .blocks = 5};
    Words words(256);
    EXPECT_EQ(run(kernel(kLastBlock), words, how).text, "");
    EXPECT_EQ(words[0], 15u);
    EXPECT_EQ(words[32], 5u);
    const auto without = [&](const std::string& from, const std::string& to) {
      return fault_of(kernel(replaced(kLastBlock, from, to)), how);
    };
    EXPECT_EQ(without("bra $counted;\n\tmembar.gl;\n", "bra $counted;\n"), Fault::kRace);  // no fence before the count
    EXPECT_EQ(without("\tmembar.cta;\n\tmembar.gl;\n", "\tmembar.cta;\n"), Fault::kRace);  // no fence after the count
    // Without the barrier, the thread with the fence has not waited for the thread that writes the
    // word.
    EXPECT_EQ(without("\tbar.sync 0;\n\t@!%p1", "\t@!%p1"), Fault::kRace);
    // This fence orders accesses only for the block.
    EXPECT_EQ(without("bra $counted;\n\tmembar.gl;\n", "bra $counted;\n\tmembar.cta;\n"), Fault::kRace);
    EXPECT_EQ(without("atom.global.add.u32 %r5, [%rd0+128], 1",
                      "atom.global.add.u32 %r5, [%rd0+128], 1;\n\tatom.global.add.u32 %r11, [%rd0+132], 1"),
              Fault::kNone);
    EXPECT_EQ(without("\tatom.global.add.u32 %r5, [%rd0+128], 1;\n",
                      "\tred.global.add.u32 [%rd0+128], 1;\n\tld.global.u32 %r5, [%rd0+128];\n"),
              Fault::kRace);
    // This fence is before the write of the word.
    EXPECT_EQ(without("\t@%p2 st.global.u32 [%rd2+256], %r4;\n\tbar.sync 0;\n\t@!%p1 bra $counted;\n\tmembar.gl;\n",
                      "\tbar.sync 0;\n\t@!%p1 bra $counted;\n\tmembar.gl;\n\tst.global.u32 [%rd2+256], %r4;\n"),
              Fault::kRace);
  }
  Words words(256);
  const std::string text = run(kernel(replaced(kLastBlock, "bra $counted;\n\tmembar.gl;\n", "bra $counted;\n")), words,
                               {.threads = 64, .dynamic_bytes = 4, .seed = 1, .blocks = 2})
                               .text;
  EXPECT_EQ(text.find("hand.ptx line 43: ld.global.u32: block "), 0u) << text;
  EXPECT_NE(text.find(" is read and was written by thread 33 of block "), std::string::npos) << text;
}

TEST(PtxOrder, BlocksThatHandNothingOverRace) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const Launched how = {.seed = seed, .blocks = 3};
    const auto fault = [&](const std::string& body) {
      return fault_of(kernel("\tsetp.eq.s32 %p1, %r0, 0;\n\t@!%p1 ret;\n" + body), how);
    };
    EXPECT_EQ(fault("\tld.global.u32 %r1, [%rd0];\n\tadd.s32 %r1, %r1, 1;\n\tst.global.u32 [%rd0], %r1;\n"),
              Fault::kRace);  // updates can be lost
    EXPECT_EQ(fault("\tst.global.u32 [%rd0], %r0;\n"), Fault::kRace);
    EXPECT_EQ(fault("\tld.global.u32 %r1, [%rd0];\n"), Fault::kNone);
    EXPECT_EQ(fault("\tred.global.add.u32 [%rd0], 1;\n"), Fault::kNone);
    EXPECT_EQ(fault("\tred.global.add.u32 [%rd0], 1;\n\tld.global.u32 %r1, [%rd0];\n"), Fault::kRace);
  }
}

TEST(PtxAtomics, ChangeAWordAndGiveBackWhatItWas) {
  const auto changed = [](const std::string& atomic, uint32_t was) {
    Words words(256);
    words[1] = was;
    EXPECT_EQ(run(kernel("\tsetp.eq.s32 %p1, %r0, 0;\n\t@!%p1 ret;\n\t" + atomic +
                         ";\n\tst.global.u32 [%rd0+8], %r1;\n"),
                  words)
                  .text,
              "");
    return std::pair(words[1], words[2]);
  };
  using Two = std::pair<uint32_t, uint32_t>;
  EXPECT_EQ(changed("atom.global.add.u32 %r1, [%rd0+4], 5", 7), Two(12, 7));
  EXPECT_EQ(changed("atom.relaxed.gpu.global.add.s32 %r1, [%rd0+4], -5", 7), Two(2, 7));
  EXPECT_EQ(changed("atom.min.u32 %r1, [%rd0+4], 5", 7), Two(5, 7));
  EXPECT_EQ(changed("atom.global.max.s32 %r1, [%rd0+4], -1", 7), Two(7, 7));
  EXPECT_EQ(changed("atom.global.max.u32 %r1, [%rd0+4], -1", 7), Two(0xffffffff, 7));
  EXPECT_EQ(changed("atom.global.inc.u32 %r1, [%rd0+4], 7", 7), Two(0, 7));
  EXPECT_EQ(changed("atom.global.exch.b32 %r1, [%rd0+4], 9", 7), Two(9, 7));
  EXPECT_EQ(changed("atom.global.cas.b32 %r1, [%rd0+4], 7, 8", 7), Two(8, 7));
  EXPECT_EQ(changed("atom.global.cas.b32 %r1, [%rd0+4], 6, 8", 7), Two(7, 7));
  EXPECT_EQ(changed("atom.global.add.f32 %f1, [%rd0+4], 0f3F800000;\n\tmov.b32 %r1, %f1", bits(0.5f)),
            Two(bits(1.5f), bits(0.5f)));
  EXPECT_EQ(changed("red.global.or.b32 [%rd0+4], 8", 7).first, 15u);
  EXPECT_EQ(changed("mov.u64 %rd1, 0x100000000;\n\tatom.global.add.u64 %rd2, [%rd0], %rd1;\n\tcvt.u32.u64 %r1, %rd2",
                    7),
            Two(8, 0));
  EXPECT_EQ(error_of(kernel("\tatom.global.sub.u32 %r1, [%rd0], 1;\n")),
            "hand.ptx line 18: the instruction 'atom.global.sub.u32' is not known");
  EXPECT_EQ(fault_of(kernel("\tred.global.add.u32 [%rd0+2], 1;\n")), Fault::kMisaligned);
  // An atomic must not write to an input.
  EXPECT_EQ(fault_of(kernel("\tred.global.add.u32 [%rd0], 1;\n"), {.allowed_words = 32}), Fault::kOutOfBounds);
}

TEST(PtxMemory, NarrowElementsExtendBySign) {
  Words words = {0x80ff7f01u};
  words.resize(256);
  EXPECT_EQ(run(kernel(
                    "\tsetp.ne.s32 %p1, %r0, 0;\n\t@%p1 ret;\n\tld.global.s8 %r2, [%rd0+2];\n\tld.global.u16 %r3, "
                    "[%rd0+2];\n\tadd.s32 %r1, %r2, %r3;\n\tst.global.u8 "
                    "[%rd0+8], %r1;\n"
                    "\tst.global.v2.u16 [%rd0+12], {%rs1, %rs1};\n\tmov.u32 %r4, 7;\n\tst.global.u32 [%rd0+4], %r1;\n"),
                words)
                .text,
            "");
  EXPECT_EQ(words[1], 0x80fe);
  EXPECT_EQ(words[2], 0xfeu);
}

TEST(PtxMemory, LocalMemoryIsAThreadsOwn) {
  const std::string body =
      "\tmov.u64 %rd3, depot;\n\tst.local.u32 [%rd3+8], %r0;\n\tbar.warp.sync -1;\n\tld.local.u32 %r1, [%rd3+8];\n";
  EXPECT_EQ(results(kernel(body + kStore, kArray))[9], 9u);
  EXPECT_EQ(fault_of(kernel(replaced(body, "st.local.u32 [%rd3+8]", "st.local.u32 [%rd3+16]"), kArray)),
            Fault::kOutOfBounds);
}

}  // namespace
}  // namespace reprise::test
