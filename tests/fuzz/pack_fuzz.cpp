// Fuzzes the reader of packing problems. An accepted problem that is written and read again must
// have the same number of buffers. A short problem must be packed without overlap. Other people's
// scripts write such files.
#include "tests/fuzz/fuzz.h"
#include "tools/plan/layout/pack_command.h"

namespace {

void require_no_overlap(const reprise::PackProblem& problem, const reprise::Packing& packing) {
  for (size_t i = 0; i < problem.buffers.size(); ++i) {
    const reprise::PackBuffer& a = problem.buffers[i];
    reprise::fuzz::require(packing.offsets[i] + a.size <= packing.packed_bytes, "a buffer ends within the packing");
    for (size_t j = 0; j < i; ++j) {
      const reprise::PackBuffer& b = problem.buffers[j];
      const bool together = a.lower < b.upper && b.lower < a.upper;
      const bool apart =
          packing.offsets[i] + a.size <= packing.offsets[j] || packing.offsets[j] + b.size <= packing.offsets[i];
      reprise::fuzz::require(!together || apart, "buffers that live together do not overlap");
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace reprise;
  const std::string text(reinterpret_cast<const char*>(data), size);
  fuzz::answers_or_refuses([&] {
    const PackProblem problem = parse_pack_problem(text, "problem.csv", 0);
    const std::string again = packed_csv(problem, std::vector<uint64_t>(problem.buffers.size(), 0));
    fuzz::require(parse_pack_problem(again, "again.csv", 0).buffers.size() == problem.buffers.size(),
                  "a problem is read back");
    if (problem.buffers.size() > 12) return;
    require_no_overlap(problem, pack_buffers(problem.buffers, {.nodes = 50}));
  });
  return 0;
}
