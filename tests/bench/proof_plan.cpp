// Prints a synthetic plan of about ROWS rows as a C++ header that proves itself: what the compiler must get through.
// Here because the time of the proof is a promise (DESIGN 3: 20,000 rows in a few seconds) and promises are measured.
// It must not know the planner: a chain of conv, batch-norm, ReLU in segments recomputed once, as Chen et al. 2016 has
// it.
//
//   proof_plan ROWS [faulty] > plan.h      (proof_bench.sh compiles it with both compilers and times them)
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "tests/plan_builder.h"

namespace reprise::testing {
namespace {

struct Layer {
  Ref w, gamma, beta, dw, dgamma, dbeta;
};
struct Tape {
  Ref x, conv, mean, rstd, y;
};

class Chain {
 public:
  explicit Chain(uint32_t layers) : segment_(std::max(1u, static_cast<uint32_t>(std::sqrt(layers)))) {
    builder_.plan.window.push_back({3, 3, 1, 1});
    builder_.plan.norm.push_back({1e-5f, 0.1f, 2 * 8 * 8});
    for (uint32_t i = 0; i < layers; ++i) add_parameters(i);
    for (uint32_t i = 0; i < layers; ++i) add_momenta(i);
  }

  OwnedPlan make() {
    const uint32_t layers = static_cast<uint32_t>(layers_.size());
    builder_.begin(ProgramId::kMicroFirst);
    scratch_ = builder_.slot({4096}, DType::kU8, SlotKind::kScratch);
    std::vector<Ref> boundaries{builder_.input({2, 8, 8, 8})};
    for (uint32_t first = 0; first < layers; first += segment_)
      boundaries.push_back(forward(first, boundaries.back()).back().y);
    Ref gradient = kNoRef;
    for (uint32_t s = static_cast<uint32_t>(boundaries.size()) - 1; s-- > 0;) {
      const std::vector<Tape> tapes = forward(s * segment_, boundaries[s]);
      if (gradient == kNoRef) {
        gradient = builder_.slot({2, 8, 8, 8});
        builder_.row(Op::kCopy, Pass::kForward, {gradient, boundaries.back()});
      }
      for (uint32_t i = static_cast<uint32_t>(tapes.size()); i-- > 0;)
        gradient = backward(layers_[s * segment_ + i], tapes[i], gradient);
    }
    builder_.end();
    update();
    return builder_.finish();
  }

 private:
  void add_parameters(uint32_t i) {
    const std::string name = "layer." + std::to_string(i);
    layers_.push_back({builder_.state(StateKind::kParameter, name + ".weight", {8, 3, 3, 8}),
                       builder_.state(StateKind::kParameter, name + ".gamma", {8}),
                       builder_.state(StateKind::kParameter, name + ".beta", {8}), builder_.carried({8, 3, 3, 8}),
                       builder_.carried({8}), builder_.carried({8})});
  }
  void add_momenta(uint32_t i) {
    const std::string name = "momentum." + std::to_string(i);
    const Ref first = builder_.state(StateKind::kOptimizer, name + ".weight", {8, 3, 3, 8});
    if (i == 0) momenta_ = first;
    builder_.state(StateKind::kOptimizer, name + ".gamma", {8});
    builder_.state(StateKind::kOptimizer, name + ".beta", {8});
  }

  std::vector<Tape> forward(uint32_t first, Ref x) {
    std::vector<Tape> tapes;
    for (uint32_t i = first; i < std::min<size_t>(first + segment_, layers_.size()); ++i) {
      const Tape t{x, builder_.slot({2, 8, 8, 8}), builder_.slot({8}), builder_.slot({8}), builder_.slot({2, 8, 8, 8})};
      builder_.row(Op::kConv, Pass::kForward, {t.conv, x, layers_[i].w, scratch_});
      builder_.row(Op::kBatchNorm, Pass::kStatistics, {t.mean, t.rstd, t.conv, scratch_});
      builder_.row(Op::kBatchNorm, Pass::kForward, {t.y, t.conv, t.mean, t.rstd, layers_[i].gamma, layers_[i].beta});
      builder_.row(Op::kRelu, Pass::kForward, {t.y, t.y});
      tapes.push_back(t);
      x = t.y;
    }
    return tapes;
  }

  Ref backward(const Layer& p, const Tape& t, Ref dy) {
    const Ref dx = builder_.slot({2, 8, 8, 8}, DType::kF32, SlotKind::kGradient);
    builder_.row(Op::kRelu, Pass::kBackward, {dy, t.y, dy});
    builder_.row(Op::kBatchNorm, Pass::kBackward,
                 {dy, p.dgamma, p.dbeta, t.conv, t.mean, t.rstd, p.gamma, dy, scratch_});
    builder_.row(Op::kConv, Pass::kBackwardWeight, {p.dw, t.x, dy, scratch_});
    builder_.row(Op::kConv, Pass::kBackwardData, {dx, dy, p.w, scratch_});
    return dx;
  }

  void update() {
    const uint32_t tensors = static_cast<uint32_t>(3 * layers_.size());
    const GroupAttribute group{tensors, 0, builder_.plan.carried_bytes / sizeof(float)};
    builder_.plan.update.push_back({group, 0, 0.9f, 0, 0, 0, 0});
    builder_.begin(ProgramId::kUpdate);
    builder_.row(Op::kSgd, Pass::kUpdate, {layers_[0].w, momenta_, layers_[0].dw, PlanBuilder::scalars()});
    builder_.end();
  }

  PlanBuilder builder_;
  std::vector<Layer> layers_;
  uint32_t segment_;
  Ref scratch_ = kNoRef, momenta_ = kNoRef;
};

void print_tensor(const Tensor& t) {
  std::printf("{%llu,%llu,DType(%d),%d,{%u,%u,%u,%u}}", static_cast<unsigned long long>(t.offset),
              static_cast<unsigned long long>(t.bytes), static_cast<int>(t.dtype), t.rank, t.shape[0], t.shape[1],
              t.shape[2], t.shape[3]);
}

template <typename T, typename F>
void print_array(const char* type, const std::string& name, const std::vector<T>& items, const F& print_item) {
  if (items.empty()) return;
  std::printf("inline constexpr %s %s[] = {\n", type, name.c_str());
  for (const T& item : items) {
    print_item(item);
    std::printf(",\n");
  }
  std::printf("};\n");
}

template <typename T>
std::string span(const std::string& name, const std::vector<T>& items) {
  return items.empty() ? "{}" : "{" + name + "," + std::to_string(items.size()) + "}";
}

void print_program(const OwnedProgram& p, uint32_t id) {
  const std::string suffix = std::to_string(id);
  print_array("Row", "kRows" + suffix, p.rows, [](const Row& r) {
    std::printf("{Op(%d),Pass(%d),%d,%d,%u,%u,%u}", static_cast<int>(r.op), static_cast<int>(r.pass), r.queue,
                r.accumulate, r.attribute, r.link, r.first_argument);
  });
  print_array("Ref", "kArguments" + suffix, p.arguments, [](Ref r) { std::printf("%uu", r); });
  print_array("Slot", "kSlots" + suffix, p.slots, [](const Slot& s) {
    std::printf("{");
    print_tensor(s.tensor);
    std::printf(",%u,%u,%uu,SlotKind(%d)}", s.first_row, s.end_row, s.below, static_cast<int>(s.kind));
  });
}

void print_plan(const OwnedPlan& plan) {
  std::printf("#pragma once\n#include \"lib/check.h\"\nnamespace reprise {\n");
  print_array("StateTensor", "kState", plan.state, [](const StateTensor& s) {
    std::printf("{.tensor=");
    print_tensor(s.tensor);
    std::printf(",.kind=StateKind(%d),.name=\"%s\"}", static_cast<int>(s.kind), s.name);
  });
  print_array("Tensor", "kCarried", plan.carried, print_tensor);
  size_t slots = 0;
  for (uint32_t p = 0; p < kProgramCount; ++p) {
    print_program(plan.programs[p], p);
    slots = std::max(slots, plan.programs[p].slots.size());
  }
  std::printf(
      "inline constexpr WindowAttribute kWindow[] = {{3,3,1,1}};\ninline constexpr NormAttribute kNorm[] = "
      "{{1e-5f,0.1f,128}};\n");
  const UpdateAttribute& u = plan.update[0];
  std::printf("inline constexpr UpdateAttribute kUpdate[] = {{{%u,0,%llu},0,0.9f,0,0,0,0}};\n", u.group.tensors,
              static_cast<unsigned long long>(u.group.elements));
  std::printf("inline constexpr Plan kPlan = {kPlanFormat,\"proof\",\"cpu\",%s,%s,{",
              span("kState", plan.state).c_str(), span("kCarried", plan.carried).c_str());
  for (uint32_t p = 0; p < kProgramCount; ++p) {
    const std::string suffix = std::to_string(p);
    const OwnedProgram& program = plan.programs[p];
    std::printf("{%s,%s,%s,%llu,%uu,%uu},", span("kRows" + suffix, program.rows).c_str(),
                span("kArguments" + suffix, program.arguments).c_str(), span("kSlots" + suffix, program.slots).c_str(),
                static_cast<unsigned long long>(program.bytes), program.input, program.labels);
  }
  std::printf("},{{kWindow,1},{kNorm,1},{},{},{},{},{},{},{kUpdate,1}},{},%llu,%llu,%llu,0,1};\n",
              static_cast<unsigned long long>(plan.state_bytes), static_cast<unsigned long long>(plan.carried_bytes),
              static_cast<unsigned long long>(plan.arena_bytes));
  std::printf(
      "constexpr uint64_t scratch_rule(Op op, Pass, const Tensor* const*) { return op == Op::kConv ? 4096 : 0; }\n");
  std::printf("inline constexpr Verdict kVerdict = prove<%zu>(kPlan, scratch_rule);\n",
              plan.state.size() + plan.carried.size() + slots);
  std::printf(
      "static_assert(PlanIsSafe<kVerdict.fault, kVerdict.program, kVerdict.row, kVerdict.slot>::value);\n}  // "
      "namespace reprise\n");
}

}  // namespace
}  // namespace reprise::testing

int main(int argc, char** argv) {
  using namespace reprise::testing;
  if (argc < 2) return std::fprintf(stderr, "usage: proof_plan ROWS [faulty] > plan.h\n"), 2;
  const uint32_t rows = static_cast<uint32_t>(std::strtoul(argv[1], nullptr, 10));
  OwnedPlan plan = Chain(std::max(1u, rows / 12)).make();
  OwnedProgram& program = plan.programs[0];
  if (argc > 2)
    program.slots[program.slots.size() / 2].end_row += 50;  // outlives its place: somebody else is born there
  std::fprintf(stderr, "%zu rows, %zu slots, %zu arguments, %zu state tensors, %zu carried\n", program.rows.size(),
               program.slots.size(), program.arguments.size(), plan.state.size(), plan.carried.size());
  print_plan(plan);
  return 0;
}
