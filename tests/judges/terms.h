// Terms: hash-consed symbolic values; two computations are the same exactly when their terms are the same number.
// Here because graph (expected_terms) and plan (replay) must speak of values in one language to be compared.
// It must not know graphs, slots or addresses.
#pragma once

#include <array>
#include <cstring>
#include <string>
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

// The fields of StepScalars, in groups that kernels read or write together (lib/backend.h).
enum class Scalar : uint8_t { kSeedAndStep, kMicroBatch, kMicroBatches, kLearningRate, kLoss, kSkip, kClip, kNorm };
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
  // What stands in y after `copy` or `move` of x: x itself, unless it is read in another form.
  Term copy(Term x, const Form& form);

  const Form& form(Term t) const { return nodes_[t].form; }
  // Where two terms that ought to be one part ways, from the outside in.
  std::string difference(Term expected, Term found) const;

 private:
  struct Node {
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
  Term intern(Node node);
  std::string name(Term t) const;

  std::vector<Node> nodes_ = std::vector<Node>(1);
  std::unordered_map<std::vector<uint32_t>, Term, Hash> known_;
};

// Scalars as they stand when the host starts a step, and which of them a kernel reads and writes.
Scalars host_scalars(TermTable& terms, uint64_t seed, const std::string& step, uint32_t micro_batches);
Term micro_batch_leaf(TermTable& terms, uint32_t micro_batch);
std::vector<Term> scalars_read(Op op, Pass pass, const Scalars& scalars);
void update_scalars(TermTable& terms, const Application& call, Scalars& scalars);

// Entry i of the norms is eight bytes: a double of its own.
constexpr Form kNormForm = {DType::kU8, {8, 1, 1, 1}};

// The bits of the numbers, one after another.
template <typename... Numbers>
std::vector<uint32_t> words_of(const Numbers&... numbers) {
  std::vector<uint32_t> words;
  const auto append = [&words](const auto& number) {
    uint32_t bits[(sizeof number + sizeof(uint32_t) - 1) / sizeof(uint32_t)] = {};
    std::memcpy(bits, &number, sizeof number);
    for (const uint32_t word : bits) words.push_back(word);
  };
  (append(numbers), ...);
  return words;
}

// Contents of attribute `index` as far as the kernel's result depends on them (lib/backend.h: the argument structs),
// never the index. `Pools` is the plan's AttributePools or the graph's AttributeTables.
template <typename Pools>
std::vector<uint32_t> attribute_words(const Pools& pools, Op op, Pass pass, uint32_t index) {
  switch (op) {
    case Op::kConv:
    case Op::kNormConv:
    case Op::kMaxPool: {
      const WindowAttribute& a = pools.of<WindowAttribute>()[index];
      return words_of(a.kernel_h, a.kernel_w, a.stride, a.pad);
    }
    case Op::kBatchNorm:
    case Op::kNormRelu:
    case Op::kNormAddRelu: {
      const NormAttribute& a = pools.of<NormAttribute>()[index];
      if (pass == Pass::kRunning) return words_of(a.count, a.epsilon, a.momentum);
      if (pass == Pass::kStatistics || pass == Pass::kInference) return words_of(a.count, a.epsilon);
      return words_of(a.count);
    }
    case Op::kLayerNorm:
      if (pass != Pass::kForward) return {};
      return words_of(pools.of<NormAttribute>()[index].epsilon);
    case Op::kLinear:
      if (pass == Pass::kBackwardBias) return {};
      return words_of(pools.of<LinearAttribute>()[index].input_major);
    case Op::kGelu:
      return words_of(pools.of<GeluAttribute>()[index].tanh_form);
    case Op::kAttention: {
      const AttentionAttribute& a = pools.of<AttentionAttribute>()[index];
      return words_of(a.heads, a.dropout, a.dropout == 0 ? 0u : a.stream);  // nothing is drawn without dropout
    }
    case Op::kDropout:
      return words_of(pools.of<DropoutAttribute>()[index].probability, pools.of<DropoutAttribute>()[index].stream);
    case Op::kSgd: {
      const UpdateAttribute& a = pools.of<UpdateAttribute>()[index];
      return words_of(a.weight_decay, a.momentum, a.nesterov);
    }
    case Op::kAdamW: {
      const UpdateAttribute& a = pools.of<UpdateAttribute>()[index];
      return words_of(a.weight_decay, a.beta1, a.beta2, a.epsilon);
    }
    case Op::kGradNorm:
      if (pass == Pass::kReduce) return {};  // its group says where, not what
      return words_of(pools.of<ClipAttribute>()[index].max_norm);
    default:
      return {};
  }
}

}  // namespace reprise::testing
