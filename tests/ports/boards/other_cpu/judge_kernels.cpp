// Runs every CPU kernel on every case of the table with the judges of kernel_judge.h, and tests the
// register tiles. It does not use GoogleTest, because an emulated processor may have no library but
// the C++ library.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "lib/cpu/cpu_backend.h"
#include "tests/ops/kernel_judge.h"
#include "tests/ops/tile_judge.h"
#include "tests/ports/test_machine.h"

namespace {

using namespace reprise;
using namespace reprise::test;

struct Count {
  int cases = 0, faults = 0;
  void add(const KernelCase& c, const std::string& fault) {
    ++cases;
    if (fault.empty()) return;
    ++faults;
    std::printf("%s: %s\n", c.id.c_str(), fault.c_str());
  }
};

// Judges a case. An accumulating case skips judge_workers, because an emulator is slow and the case
// without accumulation has this test.
void judge(const Backend& backend, const KernelCase& c, Count& count) {
  count.add(c, judge_reference(backend, c));
  count.add(c, c.accumulate != 0 ? judge_accumulate(backend, c) : judge_workers(backend, c));
  if (has_in_place(c)) count.add(c, judge_in_place(backend, c));
}

// Adds two arrays with one wrong element, which the judge must detect.
Status wrong_add(const KernelContext&, const AddArgsOf<float>& args) {
  for (uint64_t i = 0; i < args.n; ++i) args.y[i] = args.a[i] + args.b[i];
  args.y[args.n - 1] += 1;
  return ok_status();
}

bool judge_tile(const GemmTile& tile) {
  bool right = true;
  for (const std::string& fault : {judge_fused_tile(tile), judge_the_tile_judge(tile)}) {
    if (!fault.empty()) std::printf("%s: %s\n", tile.name, fault.c_str());
    right = right && fault.empty();
  }
  return right;
}

// The cases that one process judges: every `parts`-th case, beginning with number `part`.
struct Share {
  size_t part, parts;

  template <typename Use>
  void for_each(const Use& use) const {
    const std::vector<KernelCase> cases = kernel_cases();
    for (size_t i = part; i < cases.size(); i += parts) use(cases[i]);
  }
};

int judge_f32(const Share& share, const Backend& portable, const Backend& minimum) {
  Count count, baseline, mutant;
  Backend wrong = portable;
  wrong.set<AddForward, float, wrong_add>();
  share.for_each([&](const KernelCase& c) {
    judge(portable, c, count);
    if (c.op == Op::kAdd && judge_reference(wrong, c).empty()) mutant.add(c, "the judge does not see a wrong kernel");
  });
  std::printf("%s: %d judgements\n", portable.kernel_set, count.cases);
  share.for_each([&](const KernelCase& c) {
    if (family_of(c.op).multiplies) baseline.add(c, judge_reference(minimum, c));
  });
  std::printf("%s: %d judgements\n", minimum.kernel_set, baseline.cases);
  return count.faults + baseline.faults + mutant.faults == 0 && count.cases > 0 ? 0 : 1;
}

// Judges the kernels that multiply, on activations stored as bf16. Skips attention if there is no
// tile for pairs: attention then converts to f32 and runs the loops that are tested with f32.
int judge_bf16(const Share& share, const Backend& portable) {
  Count count;
  const bool has_pairs = static_cast<const CpuMachine*>(portable.machine)->pairs != nullptr;
  share.for_each([&](const KernelCase& c) {
    const std::optional<KernelCase> stored = stored_as_bf16(c);
    if (stored && family_of(c.op).multiplies && (has_pairs || c.op != Op::kAttention)) judge(portable, *stored, count);
  });
  std::printf("%s: %d judgements in bf16\n", portable.kernel_set, count.cases);
  return count.faults == 0 && count.cases > 0 ? 0 : 1;
}

}  // namespace

// Usage: judge_kernels f32|bf16 PART PARTS. Part 0 of f32 also tests the register tiles. The port
// chooses the vector level.
int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const bool is_bf16 = std::strcmp(argv[1], "bf16") == 0;
  const Share share{std::strtoul(argv[2], nullptr, 10), std::strtoul(argv[3], nullptr, 10)};
  CpuMachine portable, minimum;
  if (!choose_cpu_machine(portable, GemmTileChoice::kWidest, port_level()).ok()) return 2;
  if (!choose_cpu_machine(minimum, GemmTileChoice::kBaseline).ok()) return 2;
  if (is_bf16) return judge_bf16(share, cpu_backend(portable));
  if (share.part == 0 && !judge_tile(portable.tile)) return 1;
  return judge_f32(share, cpu_backend(portable), cpu_backend(minimum));
}
