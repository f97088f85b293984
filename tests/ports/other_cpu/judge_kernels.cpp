// Every CPU kernel on every case of the table, by the judges of kernel_judge.h, and the register tiles, without GoogleTest.
// Here because a processor that is emulated has a C++ library at best.
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <string>
#include <vector>

#include "lib/cpu/cpu_backend.h"
#include "tests/ops/kernel_judge.h"
#include "tests/ops/tile_judge.h"

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

}  // namespace

bool judge_tiles(std::initializer_list<const CpuMachine*> machines) {
  bool right = true;
  for (const CpuMachine* machine : machines) {
    for (const std::string& fault : {judge_fused_tile(machine->tile), judge_the_tile_judge(machine->tile)}) {
      if (!fault.empty()) std::printf("%s: %s\n", machine->tile.name, fault.c_str());
      right = right && fault.empty();
    }
  }
  return right;
}

// judge_kernels PART PARTS: every PARTS-th case from PART on; part 0 has the tiles.
int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const size_t part = std::strtoul(argv[1], nullptr, 10), parts = std::strtoul(argv[2], nullptr, 10);
  Count count, baseline, mutant;
  CpuMachine portable_machine, baseline_machine;
  if (!choose_cpu_machine(portable_machine, GemmTileChoice::kPortable).ok()) return 2;
  if (!choose_cpu_machine(baseline_machine, GemmTileChoice::kBaseline).ok()) return 2;
  if (part == 0 && !judge_tiles({&portable_machine, &baseline_machine})) return 1;
  const Backend portable = cpu_backend(portable_machine), least = cpu_backend(baseline_machine);
  Backend wrong = portable;
  wrong.set<AddForward, float, wrong_add>();
  const std::vector<KernelCase> cases = kernel_cases();
  for (size_t i = part; i < cases.size(); i += parts) {
    judge(portable, cases[i], count);
    if (cases[i].op == Op::kAdd && judge_reference(wrong, cases[i]).empty()) {
      mutant.add(cases[i], "the judge does not see a wrong kernel");
    }
  }
  std::printf("%s: %d judgements\n", portable.kernel_set, count.cases);
  for (size_t i = part; i < cases.size(); i += parts) {
    if (family_of(cases[i].op).multiplies) baseline.add(cases[i], judge_reference(least, cases[i]));
  }
  std::printf("%s: %d judgements\n", least.kernel_set, baseline.cases);
  return count.faults + baseline.faults + mutant.faults == 0 && count.cases > 0 ? 0 : 1;
}
