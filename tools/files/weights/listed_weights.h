// A WeightSource with a list of its tensors by name, which a reader fills when it opens a file. A
// reader defines only the type of an entry and how an entry is read.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tools/files/weights/weight_source.h"

namespace reprise {

// Entry must have a member `StoredWeight weight`. A reader adds the members that it needs to read
// the tensor.
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
  std::map<std::string, Entry> entries_;  // the tensors, by name
};

}  // namespace reprise
