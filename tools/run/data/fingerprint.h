// Identifies a data set by the number of its samples and the names and sizes of its files. A
// resumed training compares it to detect that its data have changed, without reading them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace reprise {

struct DataFingerprint {
  uint64_t samples = 0, files = 0, bytes = 0;
  std::string checksum;  // over the files' names (relative to the set's folder) and sizes
  bool operator==(const DataFingerprint&) const = default;
};

// Returns the fingerprint of `files`, which are in the order of the set. A name is relative to
// `folder`, so that a set may be moved; if the file is not in `folder`, the name has no folder. A
// file that does not exist counts as 0 bytes.
DataFingerprint fingerprint_of(uint64_t samples, const std::string& folder, const std::vector<std::string>& files);

}  // namespace reprise
