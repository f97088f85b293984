// Fuzzes the reader of profiles; what it accepts is written and read back equal.
// Profiles are copied between machines and edited by hand.
#include "tests/fuzz/fuzz.h"
#include "tools/profiling/profile.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace reprise;
  const std::string text(reinterpret_cast<const char*>(data), size);
  fuzz::answers_or_refuses([&] {
    const Profile profile = parse_profile(text, "profile.json");
    const std::string written = profile_text(profile);
    fuzz::require(profile_text(parse_profile(written, "again.json")) == written, "a profile is read back");
  });
  return 0;
}
