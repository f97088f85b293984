// Fuzzes the reader of profiles. An accepted profile that is written and read again must be equal.
// Users copy profiles between machines and edit them.
#include "tests/fuzz/fuzz.h"
#include "tools/run/profiling/profile.h"

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
