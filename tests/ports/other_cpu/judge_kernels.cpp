// Every CPU kernel on every case of the table, by the judges of kernel_judge.h, and the register tiles, without GoogleTest.
// Here because a processor that is emulated has a C++ library at best.
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

// An emulator is slow: bits are compared where the case is another than one before that only adds.
void judge(const Backend& backend, const KernelCase& c, Count& count) {
  count.add(c, judge_reference(backend, c));
  count.add(c, c.accumulate != 0 ? judge_accumulate(backend, c) : judge_workers(backend, c));
  if (has_in_place(c)) count.add(c, judge_in_place(backend, c));
}

// A kernel that adds once too often: one that no judge notices would make the rest worthless.
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

// Every PARTS-th case from PART on.
struct Share {
  size_t part, parts;

  template <typename Use>
  void for_each(const Use& use) const {
    const std::vector<KernelCase> cases = kernel_cases();
    for (size_t i = part; i < cases.size(); i += parts) use(cases[i]);
  }
};

int judge_f32(const Share& share, const Backend& portable, const Backend& least) {
  Count count, baseline, mutant;
  Backend wrong = portable;
  wrong.set<AddForward, float, wrong_add>();
  share.for_each([&](const KernelCase& c) {
    judge(portable, c, count);
    if (c.op == Op::kAdd && judge_reference(wrong, c).empty()) mutant.add(c, "the judge does not see a wrong kernel");
  });
  std::printf("%s: %d judgements\n", portable.kernel_set, count.cases);
  share.for_each([&](const KernelCase& c) {
    if (family_of(c.op).multiplies) baseline.add(c, judge_reference(least, c));
  });
  std::printf("%s: %d judgements\n", least.kernel_set, baseline.cases);
  return count.faults + baseline.faults + mutant.faults == 0 && count.cases > 0 ? 0 : 1;
}

// Products of activations stored as bf16. Without a tile for pairs attention widens them, and has the loops of f32.
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

// judge_kernels f32|bf16 PART PARTS; part 0 of f32 has the tiles. The level is the one that the port chooses.
int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const bool is_bf16 = std::strcmp(argv[1], "bf16") == 0;
  const Share share{std::strtoul(argv[2], nullptr, 10), std::strtoul(argv[3], nullptr, 10)};
  CpuMachine portable, least;
  if (!choose_cpu_machine(portable, GemmTileChoice::kPortable, port_level()).ok()) return 2;
  if (!choose_cpu_machine(least, GemmTileChoice::kBaseline).ok()) return 2;
  if (is_bf16) return judge_bf16(share, cpu_backend(portable));
  if (share.part == 0 && !judge_tile(portable.tile)) return 1;
  return judge_f32(share, cpu_backend(portable), cpu_backend(least));
}
