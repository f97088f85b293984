// The one table of kernel cases: kernel, shapes, attributes, and what is peculiar about the data.
// Here so that reference comparison, finite differences, worker counts, CPU against CUDA and benchmarks see the same cases.
// It must not know how a kernel or a reference computes, nor hold data: kernel_data.h draws that from the case's id.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lib/op.h"

namespace reprise::test {

// What is peculiar about a case's data; kPlain is uniform in [-1, 1).
enum class DataKind : uint8_t {
  kPlain,
  kOffset,      // x lies around 100 with a spread of 1: a variance from E[x^2] - E[x]^2 in f32 fails
  kConstant,    // every x is 3.25: the variance is zero
  kTies,        // small integers: equal values in one window
  kNegative,    // all below -1: a padding of zero would win
  kLarge,       // values eight times as large: exponentials overflow unless shifted
  kEqual,       // the head's weights are zero: every logit is the same
  kAllLabelled,
  kAllIgnored,
  kBadLow,      // one label or token is below the range
  kBadHigh,     // one label or token is the first above the range
  kNonFinite,   // an input holds an infinity
  kNaN,         // an input holds a NaN
  kTiny,        // values a thousand times as small
  kSkip,        // scalars.skip is set before the call
};

enum class CaseUse : uint8_t { kTest, kBench };

struct KernelCase {
  std::string id;  // letters, digits, underscores: a part of the GoogleTest name, so it replays by --gtest_filter
  CaseUse use = CaseUse::kTest;
  Op op{};
  Pass pass{};
  std::vector<std::optional<Tensor>> arguments;  // in kOps order, scratch left out; absent optional arguments are empty
  uint32_t accumulate = 0;                       // bit n: output n is added to, as in Row
  WindowAttribute window{};
  NormAttribute norm{};
  bool input_major = false;
  bool tanh_form = false;
  AttentionAttribute attention{};
  DropoutAttribute dropout{};
  UpdateAttribute update{};
  float max_norm = 0;
  uint32_t micro_batches = 1;
  std::vector<Tensor> group;  // grad_norm.reduce: the tensors, offsets from the first one's start
  DataKind data = DataKind::kPlain;
  uint64_t multiply_adds = 0;  // what a benchmark divides by; 0 where bytes matter instead

  const KernelInfo& info() const { return kOps[kernel_index(op, pass)]; }
  const Tensor& tensor(uint32_t i) const { return *arguments[i]; }
  bool has(uint32_t i) const { return i < arguments.size() && arguments[i].has_value(); }
  bool expects_bad_index() const { return data == DataKind::kBadLow || data == DataKind::kBadHigh; }
  bool is_non_finite() const { return data == DataKind::kNonFinite || data == DataKind::kNaN; }
};

inline std::optional<Tensor> shaped(std::initializer_list<uint32_t> shape, DType dtype = DType::kF32) {
  Tensor tensor;
  tensor.dtype = dtype;
  for (const uint32_t dimension : shape) tensor.shape[tensor.rank++] = dimension;
  tensor.bytes = align_up(tensor.elements() * dtype_bytes(dtype));
  return tensor;
}
inline std::optional<Tensor> scalars_tensor() { return shaped({uint32_t{sizeof(StepScalars)}}, DType::kU8); }

// Builds the table; one function per op family turns a line of shapes into the cases of all its passes.
class KernelCaseTable {
 public:
  KernelCaseTable() {
    add_test_shapes();
    add_bench_shapes();
  }
  const std::vector<KernelCase>& cases() const { return cases_; }

 private:
  using Arguments = std::vector<std::optional<Tensor>>;

  KernelCase& add(Op op, Pass pass, const std::string& tag, Arguments arguments) {
    KernelCase c;
    c.op = op;
    c.pass = pass;
    c.use = use_;
    c.arguments = std::move(arguments);
    c.id = kOps[kernel_index(op, pass)].name;
    for (char& letter : c.id) {
      if (letter == '.') letter = '_';
    }
    c.id += "__" + tag;
    if (use_ == CaseUse::kBench) c.id += "_bench";
    cases_.push_back(std::move(c));
    return cases_.back();
  }
  // The same case again, with the given outputs accumulated.
  void again_accumulating(uint32_t mask, const char* suffix = "_accumulate") {
    if (use_ == CaseUse::kBench) return;
    KernelCase c = cases_.back();
    c.accumulate = mask;
    c.id += suffix;
    cases_.push_back(std::move(c));
  }

  void add_conv(uint32_t N, uint32_t H, uint32_t W, uint32_t C, uint32_t K, WindowAttribute window) {
    const uint32_t R = window.kernel_h, S = window.kernel_w;
    const uint32_t P = (H + 2u * window.pad - R) / window.stride + 1, Q = (W + 2u * window.pad - S) / window.stride + 1;
    const auto x = shaped({N, H, W, C}), y = shaped({N, P, Q, K}), w = shaped({K, R, S, C});
    const std::string tag = "n" + str(N) + "_" + str(H) + "x" + str(W) + "_c" + str(C) + "_k" + str(K) + "_r" + str(R) + "s" +
                            str(S) + "_stride" + str(window.stride) + "_pad" + str(window.pad);
    const uint64_t work = uint64_t{N} * P * Q * K * R * S * C;
    window.epsilon = 1e-5f;
    const auto set = [&](KernelCase& c) { c.window = window, c.multiply_adds = work; };
    const auto k = shaped({K});
    set(add(Op::kConv, Pass::kForward, tag, {y, {}, {}, x, w}));
    set(add(Op::kConv, Pass::kBackwardData, tag, {x, y, w}));
    again_accumulating(1);
    set(add(Op::kConv, Pass::kBackwardWeight, tag, {w, x, y}));
    again_accumulating(1);
    if (use_ == CaseUse::kBench) return;
    const auto c = shaped({C});
    set(add(Op::kConv, Pass::kForward, tag + "_statistics", {y, k, k, x, w}));
    set(add(Op::kNormConv, Pass::kForward, tag, {y, {}, {}, x, w, c, c, c, c}));
    set(add(Op::kNormConv, Pass::kForward, tag + "_statistics", {y, k, k, x, w, c, c, c, c}));
    set(add(Op::kNormConv, Pass::kBackwardWeight, tag, {w, x, y, c, c, c, c}));
    again_accumulating(1);
  }

  void add_batch_norm(uint32_t N, uint32_t H, uint32_t W, uint32_t C, DataKind data = DataKind::kPlain, const char* name = "") {
    const auto x = shaped({N, H, W, C}), c = shaped({C});
    const std::string tag = "n" + str(N) + "_" + str(H) + "x" + str(W) + "_c" + str(C) + name;
    const uint64_t M = uint64_t{N} * H * W;
    const auto set = [&](KernelCase& k) { k.norm = {1e-5f, 0.1f, M}, k.data = data; };
    set(add(Op::kBatchNorm, Pass::kStatistics, tag, {c, c, x}));
    if (M > 1) set(add(Op::kBatchNorm, Pass::kRunning, tag, {c, c, shaped({}, DType::kI64), c, c}));
    set(add(Op::kBatchNorm, Pass::kForward, tag, {x, x, c, c, c, c}));
    set(add(Op::kBatchNorm, Pass::kInference, tag, {x, x, c, c, c, c}));
    set(add(Op::kBatchNorm, Pass::kBackward, tag, {x, c, c, x, c, c, c, x}));
    again_accumulating(0b110);
    again_accumulating(0b010, "_dgamma_only");
    set(add(Op::kBatchNorm, Pass::kBackward, tag + "_frozen", {x, {}, {}, x, c, c, c, x}));
    set(add(Op::kNormAddRelu, Pass::kForward, tag, {x, x, x, c, c, c, c}));
    // A gradient jumps at relu's kink, and from there offset data in bf16 has too few values to keep away, constant data too large an rstd.
    if (data != DataKind::kPlain) return;
    set(add(Op::kNormRelu, Pass::kBackward, tag, {x, c, c, x, c, c, c, c, x}));
    again_accumulating(0b110);
    again_accumulating(0b010, "_dgamma_only");
    set(add(Op::kNormRelu, Pass::kBackward, tag + "_frozen", {x, {}, {}, x, c, c, c, c, x}));
  }

  void add_elementwise(uint32_t n) {
    const auto x = shaped({n});
    const std::string tag = "n" + str(n);
    add(Op::kRelu, Pass::kForward, tag, {x, x});
    add(Op::kRelu, Pass::kBackward, tag, {x, x, x});
    add(Op::kAdd, Pass::kForward, tag, {x, x, x});
    add(Op::kCopy, Pass::kForward, tag, {x, x});
    again_accumulating(1);
    add(Op::kMove, Pass::kForward, tag, {x, x});
    for (const bool tanh_form : {false, true}) {
      const std::string form = tag + (tanh_form ? "_tanh" : "_erf");
      add(Op::kGelu, Pass::kForward, form, {x, x}).tanh_form = tanh_form;
      add(Op::kGelu, Pass::kBackward, form, {x, x, x}).tanh_form = tanh_form;
    }
    for (const float p : {0.0f, 0.1f, 0.5f}) {
      const std::string name = tag + "_p" + str(static_cast<uint64_t>(100 * p + 0.5f));
      add(Op::kDropout, Pass::kForward, name, {x, x, scalars_tensor()}).dropout = {p, 5};
      add(Op::kDropout, Pass::kBackward, name, {x, x, scalars_tensor()}).dropout = {p, 5};
    }
  }

  void add_max_pool(uint32_t N, uint32_t H, uint32_t W, uint32_t C, WindowAttribute window, DataKind data = DataKind::kPlain,
                    const char* name = "") {
    const uint32_t P = (H + 2u * window.pad - window.kernel_h) / window.stride + 1;
    const uint32_t Q = (W + 2u * window.pad - window.kernel_w) / window.stride + 1;
    const auto x = shaped({N, H, W, C}), y = shaped({N, P, Q, C}), index = shaped({N, P, Q, C}, DType::kU8);
    const std::string tag = "n" + str(N) + "_" + str(H) + "x" + str(W) + "_c" + str(C) + "_r" + str(window.kernel_h) + "s" +
                            str(window.kernel_w) + "_stride" + str(window.stride) + "_pad" + str(window.pad) + name;
    const auto set = [&](KernelCase& c) { c.window = window, c.data = data; };
    set(add(Op::kMaxPool, Pass::kForward, tag, {y, index, x}));
    set(add(Op::kMaxPool, Pass::kBackward, tag, {x, index, y}));
    again_accumulating(1);
  }

  void add_global_pool(uint32_t N, uint32_t H, uint32_t W, uint32_t C) {
    const auto x = shaped({N, H, W, C}), y = shaped({N, C});
    const std::string tag = "n" + str(N) + "_" + str(H) + "x" + str(W) + "_c" + str(C);
    add(Op::kGlobalPool, Pass::kForward, tag, {y, x});
    add(Op::kGlobalPool, Pass::kBackward, tag, {x, y});
    again_accumulating(1);
  }

  void add_linear(uint32_t M, uint32_t C, uint32_t K) {
    const auto x = shaped({M, C}), y = shaped({M, K}), b = shaped({K});
    const uint64_t work = uint64_t{M} * C * K;
    for (const bool input_major : {false, true}) {
      const auto w = input_major ? shaped({C, K}) : shaped({K, C});
      const std::string tag = "m" + str(M) + "_c" + str(C) + "_k" + str(K) + (input_major ? "_input_major" : "");
      const auto set = [&](KernelCase& c) { c.input_major = input_major, c.multiply_adds = work; };
      set(add(Op::kLinear, Pass::kForward, tag, {y, x, w, b}));
      if (use_ == CaseUse::kTest) set(add(Op::kLinear, Pass::kForward, tag + "_no_bias", {y, x, w, {}}));
      set(add(Op::kLinear, Pass::kBackwardData, tag, {x, y, w}));
      again_accumulating(1);
      set(add(Op::kLinear, Pass::kBackwardWeight, tag, {w, x, y}));
      again_accumulating(1);
    }
    add(Op::kLinear, Pass::kBackwardBias, "m" + str(M) + "_k" + str(K) + "_c" + str(C), {b, y});
    again_accumulating(1);
  }

  void add_layer_norm(uint32_t M, uint32_t C, DataKind data = DataKind::kPlain, const char* name = "") {
    const auto x = shaped({M, C}), m = shaped({M}), c = shaped({C});
    const std::string tag = "m" + str(M) + "_c" + str(C) + name;
    const auto set = [&](KernelCase& k) { k.norm = {1e-5f, 0.1f, C}, k.data = data; };
    set(add(Op::kLayerNorm, Pass::kForward, tag, {x, m, m, x, c, c}));
    set(add(Op::kLayerNorm, Pass::kBackward, tag, {x, c, c, x, m, m, c, x}));
    again_accumulating(0b111);
    again_accumulating(0b001, "_dx_only");
    set(add(Op::kLayerNorm, Pass::kBackward, tag + "_frozen", {x, {}, {}, x, m, m, c, x}));
  }

  void add_embedding(uint32_t B, uint32_t T, uint32_t C, uint32_t V, uint32_t L) {
    const auto y = shaped({B, T, C}), tokens = shaped({B, T}, DType::kI32), table = shaped({V, C}), positions = shaped({L, C});
    const std::string tag = "b" + str(B) + "_t" + str(T) + "_c" + str(C) + "_v" + str(V) + "_l" + str(L);
    add(Op::kEmbedding, Pass::kForward, tag, {y, tokens, table, positions});
    add(Op::kEmbedding, Pass::kForward, tag + "_no_positions", {y, tokens, table, {}});
    add(Op::kEmbedding, Pass::kForward, tag + "_bad_low", {y, tokens, table, positions}).data = DataKind::kBadLow;
    add(Op::kEmbedding, Pass::kForward, tag + "_bad_high", {y, tokens, table, {}}).data = DataKind::kBadHigh;
    add(Op::kEmbedding, Pass::kBackward, tag, {table, positions, tokens, y});
    again_accumulating(0b11);
    again_accumulating(0b01, "_dtable_only");
    add(Op::kEmbedding, Pass::kBackward, tag + "_no_positions", {table, {}, tokens, y});
    again_accumulating(0b01);
    add(Op::kEmbedding, Pass::kBackward, tag + "_frozen_table", {{}, positions, tokens, y});
    again_accumulating(0b10);
  }

  void add_attention(uint32_t B, uint32_t T, uint32_t heads, uint32_t D, float dropout, DataKind data = DataKind::kPlain,
                     const char* name = "") {
    const uint32_t C = heads * D;
    const auto qkv = shaped({B, T, 3 * C}), y = shaped({B, T, C}), lse = shaped({B, heads, T});
    const std::string tag = "b" + str(B) + "_t" + str(T) + "_h" + str(heads) + "_d" + str(D) + "_p" +
                            str(static_cast<uint64_t>(100 * dropout + 0.5f)) + name;
    const uint64_t work = uint64_t{B} * heads * T * (T + 1) / 2 * D * 2;
    const auto set = [&](KernelCase& c) { c.attention = {heads, dropout, 9}, c.data = data; };
    set(add(Op::kAttention, Pass::kForward, tag, {y, lse, qkv, scalars_tensor()}));
    cases_.back().multiply_adds = work;
    set(add(Op::kAttention, Pass::kBackward, tag, {qkv, qkv, y, lse, y, scalars_tensor()}));
    cases_.back().multiply_adds = work * 5 / 2;
  }

  void add_loss_head(uint32_t M, uint32_t C, uint32_t V, DataKind data, const char* name, uint32_t micro_batches = 1) {
    const auto x = shaped({M, C}), w = shaped({V, C}), b = shaped({V}), labels = shaped({M}, DType::kI32), s = scalars_tensor();
    const std::string tag = "m" + str(M) + "_c" + str(C) + "_v" + str(V) + name;
    const auto set = [&](KernelCase& c) {
      c.data = data, c.micro_batches = micro_batches, c.multiply_adds = 3ull * M * C * V;
    };
    set(add(Op::kLossHead, Pass::kBackward, tag, {x, w, b, s, x, w, b, labels}));
    again_accumulating(0b110);
    set(add(Op::kLossHead, Pass::kEvaluate, tag, {s, x, w, b, labels}));
    cases_.back().multiply_adds /= 3;
    if (use_ == CaseUse::kBench) return;
    set(add(Op::kLossHead, Pass::kBackward, tag + "_no_bias", {x, w, {}, s, x, w, {}, labels}));
    again_accumulating(0b010);
    set(add(Op::kLossHead, Pass::kBackward, tag + "_frozen", {x, {}, {}, s, x, w, b, labels}));
    set(add(Op::kLossHead, Pass::kEvaluate, tag + "_no_bias", {s, x, w, {}, labels}));
  }

  void add_grad_norm(const std::vector<uint32_t>& sizes, const char* name) {
    std::vector<Tensor> group;
    uint64_t offset = 0;
    for (const uint32_t size : sizes) {
      group.push_back(*shaped({size}));
      group.back().offset = offset;
      offset += group.back().bytes;
    }
    const auto count = static_cast<uint32_t>(group.size());
    const auto norms = shaped({count}, DType::kI64);  // eight bytes each: doubles, which DType has no name for
    add(Op::kGradNorm, Pass::kReduce, name, {norms, shaped({static_cast<uint32_t>(offset / 4)})}).group = group;
  }
  void add_grad_norm_finish(uint32_t count, float max_norm, const char* name, DataKind data = DataKind::kPlain) {
    KernelCase& c = add(Op::kGradNorm, Pass::kFinish, name, {scalars_tensor(), shaped({count}, DType::kI64)});
    c.max_norm = max_norm;
    c.data = data;
  }

  void add_sgd(uint32_t n, float weight_decay, float momentum, bool nesterov, const char* name, DataKind data = DataKind::kPlain) {
    const auto p = shaped({n});
    const auto m = momentum != 0 ? p : std::nullopt;
    KernelCase& c = add(Op::kSgd, Pass::kUpdate, "n" + str(n) + name, {p, m, p, scalars_tensor()});
    c.update.weight_decay = weight_decay;
    c.update.momentum = momentum;
    c.update.nesterov = nesterov;
    c.data = data;
  }
  void add_adamw(uint32_t n, float weight_decay, const char* name, DataKind data = DataKind::kPlain) {
    const auto p = shaped({n});
    KernelCase& c = add(Op::kAdamW, Pass::kUpdate, "n" + str(n) + name, {p, p, p, p, scalars_tensor()});
    c.update.weight_decay = weight_decay;
    c.update.beta1 = 0.9f;
    c.update.beta2 = 0.999f;
    c.update.epsilon = 1e-8f;
    c.data = data;
  }

  void add_test_shapes() {
    use_ = CaseUse::kTest;
    add_conv(1, 1, 1, 1, 1, {1, 1, 1, 0});
    add_conv(2, 5, 7, 3, 5, {1, 1, 1, 0});
    add_conv(3, 7, 5, 19, 17, {1, 1, 2, 0});    // rows that no window reads
    add_conv(2, 7, 6, 3, 16, {3, 3, 1, 1});
    add_conv(1, 9, 8, 16, 33, {3, 3, 2, 1});
    add_conv(2, 8, 8, 4, 6, {3, 3, 2, 0});      // the last row and column are in no window
    add_conv(1, 1, 1, 5, 3, {3, 3, 1, 1});      // the input is smaller than the window
    add_conv(1, 2, 3, 2, 3, {5, 5, 1, 2});
    add_conv(2, 6, 5, 3, 4, {3, 3, 1, 2});      // the output is larger than the input
    add_conv(1, 8, 9, 2, 3, {2, 2, 3, 0});      // gaps between the windows
    add_conv(2, 9, 7, 3, 4, {5, 3, 2, 1});
    add_conv(1, 6, 11, 2, 3, {1, 4, 1, 0});
    add_conv(1, 17, 19, 3, 10, {7, 7, 2, 3});
    add_conv(1, 4, 5, 131, 37, {3, 3, 1, 1});   // a long reduction: 1179 terms
    add_conv(1, 3, 3, 70, 129, {1, 1, 1, 0});
    add_conv(1, 5, 4, 600, 9, {1, 1, 1, 0});    // longer than a usual K panel
    add_conv(2, 33, 31, 3, 8, {3, 3, 1, 1});    // many rows: 2046, and few channels
    add_conv(5, 32, 32, 2, 3, {3, 3, 1, 1});    // 5120 terms in a weight's gradient
    add_conv(2, 6, 5, 15, 31, {3, 3, 1, 1});    // around the widths of registers
    add_conv(1, 6, 7, 32, 32, {3, 3, 1, 1});
    add_conv(3, 5, 6, 64, 47, {1, 1, 1, 0});
    add_conv(1, 12, 10, 17, 96, {3, 3, 2, 1});
    add_conv(1, 3, 40, 7, 9, {1, 7, 1, 3});
    add_conv(1, 40, 3, 7, 9, {7, 1, 1, 3});     // padding beyond the window's width
    add_conv(2, 4, 4, 8, 520, {1, 1, 1, 0});
    add_conv(1, 8, 8, 30, 300, {3, 3, 1, 1});   // many outputs in a weight's gradient: 81000
    add_conv(1, 16, 15, 64, 64, {3, 3, 1, 1});  // enough channels and tiles for a transform

    add_batch_norm(1, 1, 1, 3);
    add_batch_norm(2, 1, 1, 1);
    add_batch_norm(2, 3, 5, 7);
    add_batch_norm(3, 9, 11, 17);
    add_batch_norm(5, 16, 17, 33);
    add_batch_norm(2, 33, 65, 4);
    add_batch_norm(1, 4, 3, 130);
    add_batch_norm(2, 3, 2, 1027);
    add_batch_norm(1, 1, 2, 600);
    add_batch_norm(3, 9, 11, 18, DataKind::kOffset, "_offset");
    add_batch_norm(2, 4, 4, 5, DataKind::kConstant, "_constant");

    for (const uint32_t n : {1u, 3u, 8u, 67u, 1025u, 20001u, 70003u}) add_elementwise(n);

    add_max_pool(1, 1, 1, 1, {1, 1, 1, 0});
    add_max_pool(2, 8, 8, 5, {2, 2, 2, 0});
    add_max_pool(2, 9, 7, 17, {3, 3, 2, 1});
    add_max_pool(1, 7, 8, 3, {3, 3, 1, 1});
    add_max_pool(1, 9, 9, 4, {2, 3, 4, 1});     // gaps between the windows
    add_max_pool(1, 8, 7, 35, {3, 3, 2, 1}, DataKind::kTies, "_ties");
    add_max_pool(2, 5, 5, 6, {3, 3, 2, 1}, DataKind::kNegative, "_negative");
    add_max_pool(2, 6, 7, 130, {3, 3, 2, 1});
    add_max_pool(1, 5, 9, 64, {1, 3, 1, 0});
    add_max_pool(1, 40, 36, 3, {15, 17, 8, 7}); // index up to 254

    add_global_pool(1, 1, 1, 1);
    add_global_pool(3, 7, 5, 19);
    add_global_pool(2, 31, 33, 6);
    add_global_pool(1, 2, 2, 130);

    add_linear(1, 1, 1);
    add_linear(1, 9, 10);
    add_linear(7, 13, 5);
    add_linear(65, 130, 67);
    add_linear(33, 300, 10);
    add_linear(257, 9, 3);
    add_linear(5, 2049, 9);
    add_linear(6, 16, 513);
    add_linear(3000, 3, 5);
    add_linear(130, 1, 129);
    add_linear(16, 8, 16);                      // around the sizes of registers and panels
    add_linear(31, 5, 33);
    add_linear(32, 16, 32);
    add_linear(33, 257, 31);
    add_linear(48, 256, 48);
    add_linear(12, 255, 64);
    add_linear(64, 64, 65);
    add_linear(8, 4, 97);
    add_linear(40, 300, 530);
    add_linear(520, 40, 260);                   // 10400 .. 135200 outputs
    add_linear(1100, 33, 70);

    add_layer_norm(1, 1);
    add_layer_norm(1, 7);
    add_layer_norm(5, 64);
    add_layer_norm(67, 33);
    add_layer_norm(700, 12);
    add_layer_norm(3, 1030);
    add_layer_norm(130, 129);
    add_layer_norm(2, 15);
    add_layer_norm(3, 16);
    add_layer_norm(3, 17);
    add_layer_norm(9, 48, DataKind::kOffset, "_offset");
    add_layer_norm(4, 10, DataKind::kConstant, "_constant");

    add_embedding(1, 1, 1, 1, 1);
    add_embedding(2, 5, 7, 11, 8);
    add_embedding(3, 33, 17, 5, 33);            // tokens repeat often
    add_embedding(2, 9, 64, 300, 16);           // most rows are named by no token
    add_embedding(4, 21, 131, 40, 21);

    add_attention(1, 1, 1, 1, 0.0f);
    add_attention(2, 5, 2, 3, 0.0f);
    add_attention(1, 33, 3, 8, 0.0f);
    add_attention(2, 67, 2, 16, 0.0f);
    add_attention(1, 130, 3, 5, 0.0f);
    add_attention(1, 200, 1, 64, 0.0f);
    add_attention(1, 40, 2, 80, 0.0f);
    add_attention(1, 50, 2, 8, 0.0f, DataKind::kLarge, "_large");
    add_attention(1, 63, 1, 32, 0.0f);          // around the sizes of tiles
    add_attention(3, 64, 1, 16, 0.0f);
    add_attention(1, 65, 2, 24, 0.0f);
    add_attention(1, 128, 1, 7, 0.0f);
    add_attention(1, 20, 1, 130, 0.0f);
    add_attention(1, 70, 1, 256, 0.0f);
    add_attention(1, 1, 2, 4, 0.5f);
    add_attention(2, 35, 3, 6, 0.1f);
    add_attention(1, 129, 2, 16, 0.5f);
    add_attention(1, 64, 1, 1, 0.25f);

    add_loss_head(1, 1, 1, DataKind::kAllLabelled, "");
    add_loss_head(5, 7, 3, DataKind::kAllLabelled, "");
    add_loss_head(33, 17, 10, DataKind::kPlain, "_some_ignored");
    add_loss_head(67, 12, 131, DataKind::kPlain, "_micro4", 4);
    add_loss_head(9, 40, 1003, DataKind::kPlain, "");
    add_loss_head(300, 8, 19, DataKind::kAllLabelled, "", 3);
    add_loss_head(7, 5, 2500, DataKind::kPlain, "", 2);
    add_loss_head(1500, 6, 70, DataKind::kPlain, "");
    add_loss_head(4, 300, 16, DataKind::kAllLabelled, "");
    add_loss_head(40, 5, 1, DataKind::kPlain, "");  // one class: the loss is zero
    add_loss_head(12, 24, 33, DataKind::kLarge, "_large");
    add_loss_head(6, 4, 5, DataKind::kAllIgnored, "_all_ignored");
    add_loss_head(13, 4, 5, DataKind::kEqual, "_equal_logits");
    add_loss_head(11, 6, 7, DataKind::kBadLow, "_bad_low");
    add_loss_head(150, 6, 7, DataKind::kBadHigh, "_bad_high");
    add_loss_head(11, 6, 7, DataKind::kNonFinite, "_non_finite");
    add_loss_head(11, 6, 7, DataKind::kNaN, "_nan");

    add_grad_norm({1}, "one");
    add_grad_norm({1, 65, 3, 1000, 64, 5}, "padded");
    add_grad_norm({100003, 7}, "long");
    add_grad_norm(std::vector<uint32_t>(300, 70), "many");
    add_grad_norm({32768, 32769, 32767}, "whole_blocks");
    add_grad_norm_finish(1, 0.0f, "one_unclipped");
    add_grad_norm_finish(7, 0.0f, "unclipped");
    add_grad_norm_finish(7, 1.0f, "clipped");
    add_grad_norm_finish(7, 1000.0f, "below_the_limit");
    add_grad_norm_finish(7, 0.001f, "clipped_small", DataKind::kTiny);
    add_grad_norm_finish(300, 1.0f, "clipped_many");
    add_grad_norm_finish(7, 1.0f, "non_finite", DataKind::kNonFinite);
    add_grad_norm_finish(7, 0.0f, "nan_unclipped", DataKind::kNaN);
    add_grad_norm_finish(7, 1.0f, "already_skipped", DataKind::kSkip);

    for (const uint32_t n : {1u, 67u, 10007u}) {
      add_sgd(n, 0.0f, 0.0f, false, "_plain");
      add_sgd(n, 0.01f, 0.0f, false, "_decay");
      add_sgd(n, 0.0f, 0.9f, false, "_momentum");
      add_sgd(n, 0.01f, 0.9f, true, "_nesterov_decay");
      add_sgd(n, 0.01f, 0.9f, true, "_skip", DataKind::kSkip);
      add_adamw(n, 0.0f, "");
      add_adamw(n, 0.01f, "_decay");
      add_adamw(n, 0.01f, "_skip", DataKind::kSkip);
    }
  }

  void add_bench_shapes() {
    use_ = CaseUse::kBench;
    add_conv(32, 32, 32, 16, 16, {3, 3, 1, 1});   // ResNet-20's three stages
    add_conv(32, 16, 16, 32, 32, {3, 3, 1, 1});
    add_conv(32, 8, 8, 64, 64, {3, 3, 1, 1});
    add_conv(4, 56, 56, 64, 64, {3, 3, 1, 1});    // ResNet-50
    add_conv(4, 56, 56, 64, 256, {1, 1, 1, 0});
    add_conv(4, 224, 224, 3, 64, {7, 7, 2, 3});
    add_batch_norm(32, 32, 32, 16);
    add_max_pool(4, 112, 112, 64, {3, 3, 2, 1});
    add_linear(1024, 768, 768);
    add_linear(1024, 768, 3072);
    add_layer_norm(1024, 768);
    add_attention(4, 256, 12, 64, 0.0f);
    add_loss_head(512, 768, 8192, DataKind::kAllLabelled, "");
    add_adamw(1000000, 0.01f, "");
  }

  static std::string str(uint64_t n) { return std::to_string(n); }

  CaseUse use_ = CaseUse::kTest;
  std::vector<KernelCase> cases_;
};

inline std::vector<KernelCase> kernel_cases(CaseUse use = CaseUse::kTest) {
  const KernelCaseTable table;
  std::vector<KernelCase> chosen;
  for (const KernelCase& c : table.cases()) {
    if (c.use == use) chosen.push_back(c);
  }
  return chosen;
}

// Whether the case's activations are bf16.
inline bool stores_bf16(const KernelCase& c) {
  const uint32_t i = first_activation(c.info());
  return i < c.arguments.size() && c.has(i) && c.tensor(i).dtype == DType::kBf16;
}

// The same case with its activations stored as bf16; nothing for a kernel without any.
inline std::optional<KernelCase> stored_as_bf16(KernelCase c) {
  const KernelInfo& info = c.info();
  if (first_activation(info) == kMaxArguments) return std::nullopt;
  for (uint32_t i = 0; i < c.arguments.size(); ++i) {
    if (!info.arguments[i].activation || !c.has(i)) continue;
    c.arguments[i]->dtype = DType::kBf16;
    c.arguments[i]->bytes = align_up(c.arguments[i]->elements() * dtype_bytes(DType::kBf16));
  }
  c.id += "_bf16";
  return c;
}

}  // namespace reprise::test
