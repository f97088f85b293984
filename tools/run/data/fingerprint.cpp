// See fingerprint.h.
#include "tools/run/data/fingerprint.h"

#include <sys/stat.h>

#include "tools/files/formats/checksum.h"

namespace reprise {

DataFingerprint fingerprint_of(uint64_t samples, const std::string& folder, const std::vector<std::string>& files) {
  DataFingerprint print;
  print.samples = samples;
  print.files = files.size();
  Checksum checksum;
  for (const std::string& file : files) {
    struct stat status = {};
    const uint64_t size = ::stat(file.c_str(), &status) == 0 ? static_cast<uint64_t>(status.st_size) : 0;
    const bool is_within = file.compare(0, folder.size() + 1, folder + "/") == 0;
    const std::string entry = (is_within ? file.substr(folder.size() + 1) : file.substr(file.rfind('/') + 1)) + "\n" +
                              std::to_string(size) + "\n";
    checksum.add(entry.data(), entry.size());
    print.bytes += size;
  }
  print.checksum = checksum.text();
  return print;
}

}  // namespace reprise
