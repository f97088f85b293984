// A source that holds a list of its tensors by name, which a file's reader fills when it opens the file.
// Here so that each such reader says only what an entry is and how it is read.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tools/weights/weight_source.h"

namespace reprise {

// Entry has a StoredWeight `weight` beside what its reader needs.
template <typename Entry>
class ListedWeights : public WeightSource {
 public:
  std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const auto& [name, entry] : entries_) names.push_back(name);
    return names;
  }
  const StoredWeight* find(const std::string& name) const override {
    const auto found = entries_.find(name);
    return found == entries_.end() ? nullptr : &found->second.weight;
  }

 protected:
  std::map<std::string, Entry> entries_;
};

}  // namespace reprise
