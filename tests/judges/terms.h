// Terms: hash-consed symbolic values; two computations are the same exactly when their terms are the same number.
// Here because graph (expected_terms) and plan (replay) must speak of values in one language to be compared.
#pragma once

#include <array>
#include <cstring>
#include <iterator>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lib/op.h"

namespace reprise::testing {

using Term = uint32_t;
constexpr Term kNoTerm = 0;  // an absent argument, or garbage

// How a value lies in memory: part of the term, so that no reader takes it for something of another shape.
struct Form {
  DType dtype = DType::kF32;
  std::array<uint32_t, kMaxRank> shape = {1, 1, 1, 1};
  bool operator==(const Form&) const = default;
};
inline Form form_of(const Tensor& t) { return {t.dtype, {t.shape[0], t.shape[1], t.shape[2], t.shape[3]}}; }

// The fields of StepScalars, in groups that kernels read or write together (plan.h).
enum class Scalar : uint8_t { kSeedAndStep, kMicroBatch, kStepLabelled, kLearningRate, kLoss, kSkip, kClip, kNorm };
constexpr uint32_t kScalarCount = 8;
struct Scalars {
  std::array<Term, kScalarCount> terms = {};
  Term& operator[](Scalar s) { return terms[static_cast<size_t>(s)]; }
  Term operator[](Scalar s) const { return terms[static_cast<size_t>(s)]; }
};

// One kernel call as a function: everything that its results depend on, except what an output is added to.
struct Application {
  Op op;
  Pass pass;
  std::vector<uint32_t> attribute;  // attribute_words()
  std::vector<Term> inputs;         // the kernel's inputs in the order of kOps without scalars, then scalars_read()
};

class TermTable {
 public:
  Term leaf(const std::string& text, const Form& form);
  // Argument `argument` of the call. `previous`: what it is added to, or what it updates; kNoTerm where it overwrites.
  Term output(const Application& call, uint32_t argument, const Form& form, Term previous = kNoTerm);
  // What stands where x is added by a copy.
  Term sum(Term previous, Term x);
  // What stands in y after `copy` or `move` of x: x itself, unless it is read in another form.
  Term copy(Term x, const Form& form);

  const Form& form(Term t) const { return nodes_[t].form; }
  // Where two terms that ought to be one part ways, from the outside in.
  std::string difference(Term expected, Term found) const;

 private:
  struct TermNode {
    std::vector<uint32_t> key;
    Form form;
    std::string text;  // of a leaf
    Op op = Op::kCopy;
    Pass pass = Pass::kForward;
    uint32_t argument = 0;
    std::vector<Term> children;  // previous first
  };
  struct Hash {
    size_t operator()(const std::vector<uint32_t>& key) const;
  };
  Term intern(TermNode node);
  std::string name(Term t) const;

  std::vector<TermNode> nodes_ = std::vector<TermNode>(1);
  std::unordered_map<std::vector<uint32_t>, Term, Hash> known_;
};

// Scalars as they stand when the host starts a step, and which of them a kernel reads and writes: all, of a kernel that nobody has
// thought about.
Scalars host_scalars(TermTable& terms, uint64_t seed, const std::string& step);
Term micro_batch_leaf(TermTable& terms, uint32_t micro_batch);
// Of several ranks: with what one begins a micro-batch in a step that has come so far, and what the host makes of the step when it has ended.
Scalars scalars_of_rank(TermTable& terms, const Scalars& step);
void add_rank(TermTable& terms, const Scalars& rank, Scalars& step);
std::vector<Term> scalars_read(Op op, Pass pass, const Scalars& scalars);
void update_scalars(TermTable& terms, const Application& call, Scalars& scalars);

// Each entry of the norms is a value of its own.
constexpr Form kNormForm = {DType::kF64, {1, 1, 1, 1}};

// A field of a kernel's attribute on which its result does not depend. Every other field of every kernel's attribute is part of its term:
// a new kernel is judged by all of its attribute before anybody has thought about it.
struct IgnoredField {
  uint32_t kernel;
  const char* field;
};
inline constexpr IgnoredField kIgnoredFields[] = {
    // Statistics of what a convolution writes are judged as batch_norm.statistics, with its epsilon; the rest of the row never reads it.
    {kKernelIndex<ConvForward>, "epsilon"},
    {kKernelIndex<ConvBackwardData>, "epsilon"},
    {kKernelIndex<ConvBackwardWeight>, "epsilon"},
    {kKernelIndex<ConvTransposeForward>, "epsilon"},
    {kKernelIndex<NormConvForward>, "epsilon"},
    {kKernelIndex<NormConvBackwardWeight>, "epsilon"},
    {kKernelIndex<BatchNormStatistics>, "momentum"},
    {kKernelIndex<BatchNormForward>, "epsilon"},
    {kKernelIndex<BatchNormForward>, "momentum"},
    {kKernelIndex<BatchNormInference>, "momentum"},
    {kKernelIndex<BatchNormBackwardData>, "momentum"},
    {kKernelIndex<BatchNormBackward>, "epsilon"},
    {kKernelIndex<BatchNormBackward>, "momentum"},
    {kKernelIndex<NormReluBackward>, "epsilon"},
    {kKernelIndex<NormReluBackward>, "momentum"},
    {kKernelIndex<NormAddReluForward>, "epsilon"},
    {kKernelIndex<NormAddReluForward>, "momentum"},
    {kKernelIndex<LayerNormForward>, "momentum"},
    {kKernelIndex<LayerNormForward>, "count"},
    {kKernelIndex<LayerNormBackward>, "epsilon"},
    {kKernelIndex<LayerNormBackward>, "momentum"},
    {kKernelIndex<LayerNormBackward>, "count"},
    {kKernelIndex<SgdUpdate>, "beta1"},
    {kKernelIndex<SgdUpdate>, "beta2"},
    {kKernelIndex<SgdUpdate>, "epsilon"},
    {kKernelIndex<AdamWUpdate>, "momentum"},
    {kKernelIndex<AdamWUpdate>, "nesterov"},
    {kKernelIndex<MuonUpdate>, "beta1"},
    {kKernelIndex<MuonUpdate>, "beta2"},
};
constexpr bool is_ignored(uint32_t kernel, std::string_view field) {
  for (const IgnoredField& ignored : kIgnoredFields) {
    if (ignored.kernel == kernel && field == ignored.field) return true;
  }
  return false;
}

// A group says where its tensors lie, not what is computed of each.
inline std::vector<uint32_t> attribute_words(uint32_t, const GroupAttribute&) { return {}; }

// The bits of the fields that the kernel's result depends on, one after another.
template <typename Attribute>
std::vector<uint32_t> attribute_words(uint32_t kernel, const Attribute& attribute) {
  std::vector<uint32_t> words;
  attribute.fields([&](const char* field, const auto& value) {
    if (is_ignored(kernel, field)) return;
    if constexpr (requires { value.fields([](const char*, const auto&) {}); }) {
      const std::vector<uint32_t> inner = attribute_words(kernel, value);
      words.insert(words.end(), inner.begin(), inner.end());
    } else {
      uint32_t bits[(sizeof value + sizeof(uint32_t) - 1) / sizeof(uint32_t)] = {};
      std::memcpy(bits, &value, sizeof value);
      words.insert(words.end(), std::begin(bits), std::end(bits));
    }
  });
  return words;
}

// The same of attribute `index` of the kernel's pool; nothing for a kernel without attributes. `Pools` is the plan's AttributePools or
// the graph's AttributeTables.
template <typename Pools>
std::vector<uint32_t> attribute_words(const Pools& pools, Op op, Pass pass, uint32_t index) {
  const uint32_t kernel = kernel_index(op, pass);
  std::vector<uint32_t> words;
  AttributeKind kind = 0;
  for_each_pool(pools, [&](const auto& pool) {
    if (kind++ == kOps[kernel].attribute) words = attribute_words(kernel, pool[index]);
  });
  return words;
}

}  // namespace reprise::testing
