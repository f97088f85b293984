// Fuzzes the chain's reader; what it accepts is read back equal, and a short one is scheduled, walked and laid out.
// Other people's programs write these files, with numbers of any size.
#include <nlohmann/json.hpp>

#include "tests/fuzz/fuzz.h"
#include "tools/formats/json_text.h"
#include "tools/layout/chain_layout.h"
#include "tools/schedule/chain_json.h"
#include "tools/schedule/schedule.h"
#include "tools/schedule/simulate.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace reprise;
  const std::string text(reinterpret_cast<const char*>(data), size);
  fuzz::answers_or_refuses([&] {
    const Chain chain = chain_from_json(parse_json(text, "chain.json"), "chain.json");
    const std::string again = chain_to_json(chain).dump();
    fuzz::require(chain_to_json(chain_from_json(parse_json(again, "again"), "again")).dump() == again, "a chain is read back");
    if (chain.length() > 8) return;
    for (const char* strategy : {"none", "sqrt"}) {
      const Schedule schedule = make_schedule(chain, {.strategy = strategy});
      fuzz::require(schedule.feasible && simulate(chain, schedule.actions).valid, "a schedule without a budget is valid");
      fuzz::require(layout_chain(chain, schedule.actions).packed_bytes == schedule.peak_bytes, "packed is the peak");
    }
  });
  return 0;
}
