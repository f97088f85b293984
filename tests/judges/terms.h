// Terms: symbolic values, each stored once and identified by a number. Two values are computed in
// the same way if and only if their numbers are equal. The replay compares the terms of a plan with
// those of the graph (expected_terms.h).
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

// The type and shape of a value in memory. It is part of the term, so that no row can read a value
// in another shape.
struct Form {
  DType dtype = DType::kF32;
  std::array<uint32_t, kMaxRank> shape = {1, 1, 1, 1};
  bool operator==(const Form&) const = default;
};
inline Form form_of(const Tensor& t) { return {t.dtype, {t.shape[0], t.shape[1], t.shape[2], t.shape[3]}}; }

// The fields of StepScalars (plan.h), in groups. A kernel reads or writes a whole group.
enum class Scalar : uint8_t { kSeedAndStep, kMicroBatch, kStepLabelled, kLearningRate, kLoss, kSkip, kClip, kNorm };
constexpr uint32_t kScalarCount = 8;
struct Scalars {
  std::array<Term, kScalarCount> terms = {};
  Term& operator[](Scalar s) { return terms[static_cast<size_t>(s)]; }
  Term operator[](Scalar s) const { return terms[static_cast<size_t>(s)]; }
};

// A kernel call as a function. It contains everything on which the results depend, except the old
// content of an output to which the call adds.
struct Application {
  Op op;
  Pass pass;
  std::vector<uint32_t> attribute;  // attribute_words()
  // The kernel's inputs in the order of kOps without scalars, then the result of scalars_read().
  std::vector<Term> inputs;
};

class TermTable {
 public:
  Term leaf(const std::string& text, const Form& form);
  // Returns the term of output `argument` of the call. `previous` is the term to which the call
  // adds or which it updates; kNoTerm if the call overwrites it.
  Term output(const Application& call, uint32_t argument, const Form& form, Term previous = kNoTerm);
  // Returns the term of a sum: `previous` after a copy has added x.
  Term sum(Term previous, Term x);
  // Returns the term of y after a `copy` or `move` of x. This is x, unless y has another form.
  Term copy(Term x, const Form& form);

  const Form& form(Term t) const { return nodes_[t].form; }
  // Returns a description of the first difference of two terms that should be equal. It lists the
  // operations from the outermost one inwards to the first ones that differ.
  std::string difference(Term expected, Term found) const;

 private:
  struct TermNode {
    std::vector<uint32_t> key;
    Form form;
    std::string text;  // for a leaf
    Op op = Op::kCopy;
    Pass pass = Pass::kForward;
    uint32_t argument = 0;
    std::vector<Term> children;  // `previous` (kNoTerm if there is none), then the inputs; empty for a leaf
  };
  struct Hash {
    size_t operator()(const std::vector<uint32_t>& key) const;
  };
  Term intern(TermNode node);
  std::string name(Term t) const;

  std::vector<TermNode> nodes_ = std::vector<TermNode>(1);
  // term of each TermNode::key, so that equal computations have equal terms
  std::unordered_map<std::vector<uint32_t>, Term, Hash> known_;
};

// Returns the scalars with which the host starts a step. scalars_read() returns those that a kernel
// reads, and update_scalars() replaces those that it writes. Kernels that these functions do not
// list read and write all scalars.
Scalars host_scalars(TermTable& terms, uint64_t seed, const std::string& step);
Term micro_batch_leaf(TermTable& terms, uint32_t micro_batch);
// Returns the scalars with which a rank begins a micro-batch; `step` are the step's scalars so far.
// add_rank() adds the rank's scalars to the step's afterwards.
Scalars scalars_of_rank(TermTable& terms, const Scalars& step);
void add_rank(TermTable& terms, const Scalars& rank, Scalars& step);
std::vector<Term> scalars_read(Op op, Pass pass, const Scalars& scalars);
void update_scalars(TermTable& terms, const Application& call, Scalars& scalars);

// Form of one norm. Each entry of the norms is a term of its own.
constexpr Form kNormForm = {DType::kF64, {1, 1, 1, 1}};

// A field of a kernel's attribute that does not affect the kernel's result. All fields that are not
// listed are part of the kernel's term. So a new kernel is compared with its complete attribute.
struct IgnoredField {
  uint32_t kernel;
  const char* field;
};
inline constexpr IgnoredField kIgnoredFields[] = {
    // The epsilon affects only the statistics that a convolution computes of its output. The term
    // of these statistics contains the epsilon, as the term of a row batch_norm.statistics does
    // (TermMachine::statistic).
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

// Returns no words for a group, because a group states where tensors are, and not what is computed
// from them.
inline std::vector<uint32_t> attribute_words(uint32_t, const GroupAttribute&) { return {}; }

// Returns the bits of all fields that affect the kernel's result, one field after another.
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

// Returns the words of attribute `index` of the kernel's pool; no words if the kernel has no
// attribute. `Pools` is a plan's AttributePools or a graph's AttributeTables.
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
