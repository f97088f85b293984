// Fuzzes the reader of chains. An accepted chain that is written and read again must be equal. A
// short chain is scheduled, simulated and laid out. Other programs write these files, with numbers
// of any size.
#include <nlohmann/json.hpp>

#include "tests/fuzz/fuzz.h"
#include "tools/files/formats/json_text.h"
#include "tools/plan/layout/chain_layout.h"
#include "tools/plan/schedule/chain_json.h"
#include "tools/plan/schedule/schedule.h"
#include "tools/plan/schedule/simulate.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace reprise;
  const std::string text(reinterpret_cast<const char*>(data), size);
  fuzz::answers_or_refuses([&] {
    const Chain chain = chain_from_json(parse_json(text, "chain.json"), "chain.json");
    const std::string again = chain_to_json(chain).dump();
    fuzz::require(chain_to_json(chain_from_json(parse_json(again, "again"), "again")).dump() == again,
                  "a chain is read back");
    if (chain.length() > 8) return;
    for (const char* strategy : {"none", "sqrt"}) {
      const Schedule schedule = make_schedule(chain, {.strategy = strategy});
      fuzz::require(schedule.feasible && simulate(chain, schedule.actions).valid,
                    "a schedule without a budget is valid");
      fuzz::require(layout_chain(chain, schedule.actions).packed_bytes == schedule.peak_bytes, "packed is the peak");
    }
  });
  return 0;
}
