// What a data set is known by again: how many samples it has, and the names and sizes of its files.
// Here so that a resumed training can say that its data are others than before, without reading them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace reprise {

struct DataFingerprint {
  uint64_t samples = 0, files = 0, bytes = 0;
  std::string checksum;  // of the names, from the set's folder on, and sizes
  bool operator==(const DataFingerprint&) const = default;
};

// Of files in the order of the set. Names count from `folder` on, so that a set may lie elsewhere the next time.
DataFingerprint fingerprint_of(uint64_t samples, const std::string& folder, const std::vector<std::string>& files);

}  // namespace reprise
