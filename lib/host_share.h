// The division of a memory that the host shares with the device that runs the kernels: the bytes
// that the host keeps, and the bytes that remain for an arena. Three users print this division with
// host_share_text(): the port that refuses an arena, `reprise doctor` and `reprise fit --board`.
#pragma once

#include <cstdint>

namespace reprise {

// The division of a shared memory, in bytes:
//   0                                                                     usable_bytes
//   |  system, and the device's platform  |  headroom  |  staging  |  left for the arena  |
struct HostShare {
  uint64_t usable_bytes = 0;  // The memory that the system can give away: MemTotal of Linux.
  // Bytes in use before the arena is acquired: measured, or the value in a board's file.
  uint64_t system_bytes = 0;
  // Bytes that stay free: a board whose shared memory is exhausted may hang instead of ending a
  // program.
  uint64_t headroom_bytes = 0;
  // Bytes of pinned memory for the backend's copies, in addition to the arena.
  uint64_t staging_bytes = 0;

  // Returns the bytes that the host keeps.
  constexpr uint64_t bytes() const { return system_bytes + headroom_bytes + staging_bytes; }
  // Returns the bytes that remain for an arena; 0 if the host keeps everything.
  constexpr uint64_t space_bytes() const { return usable_bytes > bytes() ? usable_bytes - bytes() : 0; }
};

// A line of text without a line end. It uses neither heap nor stdio, so that ports can use it.
struct HostShareText {
  char text[192] = {};  // Ends with a zero.
  uint32_t length = 0;  // Characters before the zero.

  // Appends `words`; cuts them off if the line is full.
  constexpr void add(const char* words) {
    while (*words != 0 && length + 1 < sizeof text) text[length++] = *words++;
  }
  // Appends `bytes` in MiB, rounded up: "1536 MiB".
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

// Returns a line such as "of 7620 MiB the host keeps 1800 MiB (1536 MiB the system, 256 MiB
// free, 8 MiB for copies)".
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
