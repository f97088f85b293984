// What a host keeps of a memory that it shares with the device that the kernels run on, and what is left for an arena.
// One definition: the port that refuses an arena, `reprise doctor` before a plan is made and `reprise fit --board` before the board is
// bought make this value, and say it in the words of host_share_text.
#pragma once

#include <cstdint>

namespace reprise {

//   0                                                                            usable_bytes
//   |  system, and the device's platform  |  headroom  |  staging  |  the arena's room  |
struct HostShare {
  uint64_t usable_bytes = 0;    // all that the system may give away: MemTotal of Linux
  uint64_t system_bytes = 0;    // what is taken already, or will be before the arena: measured, or as a board's file says
  uint64_t headroom_bytes = 0;  // stays free: a board whose shared memory is exhausted may hang whole instead of ending a program
  uint64_t staging_bytes = 0;   // of the backend, beside the arena: pinned memory through which copies go

  constexpr uint64_t bytes() const { return system_bytes + headroom_bytes + staging_bytes; }
  constexpr uint64_t room_bytes() const { return usable_bytes > bytes() ? usable_bytes - bytes() : 0; }
};

// A line without its end, written without heap or stdio, because a port says it too.
struct HostShareText {
  char text[192] = {};
  uint32_t length = 0;

  constexpr void add(const char* words) {
    while (*words != 0 && length + 1 < sizeof text) text[length++] = *words++;
  }
  // "1536 MiB", rounded up.
  constexpr void add_mebibytes(uint64_t bytes) {
    const uint64_t mebibytes = (bytes >> 20) + ((bytes & ((uint64_t{1} << 20) - 1)) != 0);
    uint64_t unit = 1;
    while (mebibytes / unit >= 10) unit *= 10;
    for (; unit > 0; unit /= 10) {
      const char digit[] = {static_cast<char>('0' + mebibytes / unit % 10), 0};
      add(digit);
    }
    add(" MiB");
  }
};

// "of 7620 MiB the host keeps 1800 MiB (1536 MiB the system, 256 MiB free, 8 MiB for copies)".
constexpr HostShareText host_share_text(const HostShare& share) {
  HostShareText line;
  line.add("of ");
  line.add_mebibytes(share.usable_bytes);
  line.add(" the host keeps ");
  line.add_mebibytes(share.bytes());
  line.add(" (");
  line.add_mebibytes(share.system_bytes);
  line.add(" the system");
  if (share.headroom_bytes != 0) {
    line.add(", ");
    line.add_mebibytes(share.headroom_bytes);
    line.add(" free");
  }
  if (share.staging_bytes != 0) {
    line.add(", ");
    line.add_mebibytes(share.staging_bytes);
    line.add(" for copies");
  }
  line.add(")");
  return line;
}

}  // namespace reprise
