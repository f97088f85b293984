// The table of terms, and the effect of kernels on the StepScalars. A term's key lists everything
// on which its value depends. Equal keys are the same term.
#include "tests/judges/terms.h"

#include <algorithm>

namespace reprise::testing {

namespace {

constexpr uint32_t kScalarArgument = 100;  // outputs from this number on are groups of StepScalars, not arguments
constexpr Form kScalarForm = {DType::kU8, {1, 1, 1, 1}};

void append(std::vector<uint32_t>& key, const Form& form) {
  key.push_back(static_cast<uint32_t>(form.dtype));
  key.insert(key.end(), form.shape.begin(), form.shape.end());
}

}  // namespace

size_t TermTable::Hash::operator()(const std::vector<uint32_t>& key) const {
  uint64_t h = 1469598103934665603ull;  // FNV-1a over words
  for (const uint32_t word : key) h = (h ^ word) * 1099511628211ull;
  return h;
}

Term TermTable::intern(TermNode node) {
  const auto [found, is_new] = known_.emplace(node.key, static_cast<Term>(nodes_.size()));
  if (is_new) nodes_.push_back(std::move(node));
  return found->second;
}

Term TermTable::leaf(const std::string& text, const Form& form) {
  TermNode node;
  node.key = {0};
  append(node.key, form);
  node.key.insert(node.key.end(), text.begin(), text.end());
  node.form = form;
  node.text = text;
  return intern(std::move(node));
}

namespace {
// True if the kernel first completes its sums and then adds them to the output's old content. The
// result is then the same as if a copy added the sums.
bool adds_complete_sums(const Application& call, uint32_t argument) {
  const uint32_t kernel = kernel_index(call.op, call.pass);
  if (kernel == kKernelCount || argument >= kOps[kernel].arity()) return false;
  const ArgumentInfo& info = kOps[kernel].arguments[argument];
  return info.may_accumulate && info.storage == Storage::kF32 && !info.running;
}
}  // namespace

Term TermTable::output(const Application& call, uint32_t argument, const Form& form, Term previous) {
  if (previous != kNoTerm && adds_complete_sums(call, argument)) return sum(previous, output(call, argument, form));
  TermNode node;
  node.key = {1,
              static_cast<uint32_t>(call.op),
              static_cast<uint32_t>(call.pass),
              argument,
              previous,
              static_cast<uint32_t>(call.attribute.size())};
  append(node.key, form);
  node.key.insert(node.key.end(), call.attribute.begin(), call.attribute.end());
  node.key.insert(node.key.end(), call.inputs.begin(), call.inputs.end());
  node.form = form;
  node.op = call.op;
  node.pass = call.pass;
  node.argument = argument;
  node.children = {previous};
  node.children.insert(node.children.end(), call.inputs.begin(), call.inputs.end());
  return intern(std::move(node));
}

Term TermTable::sum(Term previous, Term x) {
  const Form form = nodes_[x].form;
  return output({Op::kCopy, Pass::kForward, {}, {x}}, 0, form, previous);
}

Term TermTable::copy(Term x, const Form& form) {
  if (nodes_[x].form == form) return x;
  return output({Op::kCopy, Pass::kForward, {}, {x}}, 0, form);
}

std::string TermTable::name(Term t) const {
  if (t == kNoTerm) return "nothing";
  const TermNode& node = nodes_[t];
  if (node.key[0] == 0) return node.text;
  const uint32_t kernel = kernel_index(node.op, node.pass);
  return (kernel == kKernelCount ? "unknown kernel" : kOps[kernel].name) + ("[" + std::to_string(node.argument) + "]");
}

std::string TermTable::difference(Term expected, Term found) const {
  std::string path;
  for (int depth = 0; depth < 40; ++depth) {
    const TermNode &a = nodes_[expected], &b = nodes_[found];
    const bool alike = expected != kNoTerm && found != kNoTerm && a.key[0] == 1 && b.key[0] == 1 && a.op == b.op &&
                       a.pass == b.pass && a.argument == b.argument && a.children.size() == b.children.size() &&
                       a.children != b.children;
    if (!alike) break;
    size_t child = 0;
    while (a.children[child] == b.children[child]) ++child;
    path += name(expected) + (child == 0 ? " previous <- " : " input " + std::to_string(child - 1) + " <- ");
    expected = a.children[child];
    found = b.children[child];
  }
  const std::string same_name =
      name(expected) == name(found) ? " with another attribute, form or number of inputs" : "";
  return path + "expected " + name(expected) + ", found " + name(found) + same_name;
}

Scalars host_scalars(TermTable& terms, uint64_t seed, const std::string& step) {
  Scalars scalars;
  const auto leaf = [&terms](const std::string& text) { return terms.leaf("scalar " + text, kScalarForm); };
  scalars[Scalar::kSeedAndStep] = leaf("seed " + std::to_string(seed) + " " + step);
  scalars[Scalar::kMicroBatch] = micro_batch_leaf(terms, 0);
  scalars[Scalar::kStepLabelled] = leaf("labels of " + step);
  scalars[Scalar::kLearningRate] = leaf("learning rate of " + step);
  scalars[Scalar::kLoss] = leaf("no loss yet");
  scalars[Scalar::kSkip] = leaf("no skip");
  scalars[Scalar::kClip] = leaf("clip factor 1");
  scalars[Scalar::kNorm] = leaf("no norm yet");
  return scalars;
}

Term micro_batch_leaf(TermTable& terms, uint32_t micro_batch) {
  return terms.leaf("scalar micro-batch " + std::to_string(micro_batch), kScalarForm);
}

Scalars scalars_of_rank(TermTable& terms, const Scalars& step) {
  Scalars scalars = step;
  scalars[Scalar::kLoss] = terms.leaf("scalar no loss yet", kScalarForm);
  return scalars;
}

void add_rank(TermTable& terms, const Scalars& rank, Scalars& step) {
  for (const Scalar s : {Scalar::kLoss, Scalar::kSkip}) step[s] = terms.sum(step[s], rank[s]);
}

std::vector<Term> scalars_read(Op op, Pass pass, const Scalars& scalars) {
  const KernelInfo& info = kernel_info(op, pass);
  const auto is_scalars = [](const ArgumentInfo& a) { return a.role != Role::kNone && a.storage == Storage::kScalars; };
  if (std::none_of(std::begin(info.arguments), std::end(info.arguments), is_scalars)) return {};
  switch (op) {
    case Op::kAttention:
    case Op::kDropout:
      return {scalars[Scalar::kSeedAndStep], scalars[Scalar::kMicroBatch]};
    case Op::kLossHead:
    case Op::kTargetLoss:
    case Op::kPairLoss:
    case Op::kClassLoss:  // kStepLabelled: the fields step_labelled and step_weight, which the host writes together
    case Op::kPreference:
      if (pass == Pass::kEvaluate) return {};
      return {scalars[Scalar::kStepLabelled]};
    case Op::kGradNorm:
      return {};
    case Op::kSgd:  // all optimizers also read seed and step, for random rounding
    case Op::kLion:
    case Op::kAdamW:
    case Op::kAdafactor:
    case Op::kApollo:
    case Op::kMuon:
      return {scalars[Scalar::kLearningRate], scalars[Scalar::kClip], scalars[Scalar::kSkip],
              scalars[Scalar::kSeedAndStep]};
    default:
      return {scalars.terms.begin(), scalars.terms.end()};
  }
}

void update_scalars(TermTable& terms, const Application& call, Scalars& scalars) {
  const auto write = [&](Scalar s, Term previous) {
    scalars[s] = terms.output(call, kScalarArgument + static_cast<uint32_t>(s), kScalarForm, previous);
  };
  switch (call.op) {
    case Op::kLossHead:
      // With row weights, an earlier row (Op::kPreference) has computed the weights and the loss.
      if (call.pass == Pass::kBackward &&
          call.inputs[LossHeadBackward::kRowWeights - LossHeadBackward::kX] != kNoTerm)
        return;
      [[fallthrough]];
    case Op::kTargetLoss:
    case Op::kClassLoss:
    case Op::kPairLoss:
    case Op::kPreference:
      write(Scalar::kLoss, scalars[Scalar::kLoss]);
      if (call.pass == Pass::kBackward) write(Scalar::kSkip, scalars[Scalar::kSkip]);
      return;
    case Op::kGradNorm:
      write(Scalar::kClip, kNoTerm);
      write(Scalar::kNorm, kNoTerm);
      write(Scalar::kSkip, scalars[Scalar::kSkip]);
      return;
    default:
      for (uint32_t s = 0; s < kScalarCount; ++s) write(static_cast<Scalar>(s), scalars.terms[s]);
  }
}

}  // namespace reprise::testing
