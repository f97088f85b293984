// See stored_weights.h.
#include "tools/models/stored_weights.h"

#include <filesystem>

namespace reprise {

std::string stored_name(const SafetensorsFile& file, const std::string& name) {
  static const std::string kPrefix = "transformer.";
  const size_t prefix = name.find(kPrefix);
  if (file.contains(name) || prefix == std::string::npos) return name;
  const std::string bare = name.substr(0, prefix) + name.substr(prefix + kPrefix.size());
  return file.contains(bare) ? bare : name;
}

std::string weights_file(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored) ? path + "/model.safetensors" : path;
}

}  // namespace reprise
