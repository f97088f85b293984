// See stored_form.h.
#include "tools/files/weights/stored_form.h"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "tools/files/formats/safetensors.h"

namespace reprise {

std::vector<uint64_t> stored_shape(const Tensor& t) {
  if (has_dynamic_codes(t.dtype))
    return {t.used_bytes() / dtype_info(t.dtype).block_bytes, dtype_info(t.dtype).block_bytes};
  if (t.rank == 4) return {t.shape[0], t.shape[3], t.shape[1], t.shape[2]};
  return std::vector<uint64_t>(t.shape, t.shape + t.rank);
}

namespace {

// Calls visit(file, graph) for each number, with its index in the file's order and in the graph's
// order.
template <typename Visit>
void for_each_place(const StoredForm& form, const Visit& visit) {
  std::vector<uint64_t> strides(form.sides.size(), 1), digits(form.sides.size());
  for (size_t n = form.sides.size(); n-- > 1;) strides[n - 1] = strides[n] * form.sides[n];
  uint64_t count = 1, place = 0;
  for (const uint64_t side : form.sides) count *= side;
  for (uint64_t at = 0; at < count; ++at) {
    visit(place, at);
    for (size_t n = form.order.size(); n-- > 0;) {
      const uint64_t axis = form.order[n];
      place += strides[axis];
      if (++digits[n] < form.sides[axis]) break;
      place -= strides[axis] * form.sides[axis];
      digits[n] = 0;
    }
  }
}

// True if the file is an import or a snapshot of an older version, which did not write kFormsKey.
bool is_older(const std::string& path) {
  std::error_code ignored;
  if (!path.ends_with(".safetensors") || !std::filesystem::exists(path, ignored)) return false;
  const std::map<std::string, std::string> notes = SafetensorsFile(path).metadata();
  const bool is_snapshots =
      std::filesystem::exists(std::filesystem::path(path).parent_path() / "training.json", ignored);
  return notes.count(kFormsKey) == 0 && (notes.count("imported_sum") > 0 || is_snapshots);
}

// A source whose tensors are converted to the graph's form, or to the form in files.
class FormedWeights : public WeightSource {
 public:
  FormedWeights(std::shared_ptr<const WeightSource> source, const StoredForms& forms, bool to_graph)
      : source_(std::move(source)), to_graph_(to_graph) {
    for (const auto& [name, form] : forms) {
      const StoredWeight* weight = source_->find(name);
      const auto is_there = [this](const std::string& before) { return source_->find(before) != nullptr; };
      const auto before = std::find_if(form.before.begin(), form.before.end(), is_there);
      if (weight == nullptr && to_graph && before != form.before.end()) {
        older_[name] = *before;
      } else if (weight != nullptr && weight->exact && weight->shape == (to_graph ? form.shape : form.own)) {
        if (to_graph && form.shape == form.own && is_older(source_->path())) continue;
        Formed& formed = formed_[name];
        formed.form = form;
        formed.weight = *weight;
        formed.weight.shape = to_graph ? form.own : form.shape;
        if (!form.order.empty()) formed.weight.format = std::nullopt;
      }
    }
  }

  const std::string& path() const override { return source_->path(); }
  std::vector<std::string> shards() const override { return source_->shards(); }
  std::vector<std::string> names() const override {
    std::vector<std::string> names = source_->names();
    for (const auto& [name, before] : older_) *std::find(names.begin(), names.end(), before) = name;
    std::sort(names.begin(), names.end());
    return names;
  }
  const StoredWeight* find(const std::string& name) const override {
    const auto formed = formed_.find(name);
    return formed != formed_.end() ? &formed->second.weight : source_->find(there(name));
  }
  void read_stored(const std::string& name, uint64_t first, uint64_t count, void* to) const override {
    source_->read_stored(there(name), first, count, to);
  }
  void read_exact(const std::string& name, uint64_t first, uint64_t count, void* to) const override {
    const auto formed = formed_.find(name);
    if (formed == formed_.end() || formed->second.form.order.empty())
      return source_->read_exact(there(name), first, count, to);
    const size_t bytes = dtype_info(*formed->second.weight.exact).block_bytes;
    hold(name, formed->second, bytes);
    std::memcpy(to, held_.data() + first * bytes, count * bytes);
  }

 private:
  struct Formed {
    StoredForm form;
    StoredWeight weight;
  };

  const std::string& there(const std::string& name) const {
    const auto older = older_.find(name);
    return older == older_.end() ? name : older->second;
  }
  // Reads and converts a complete tensor, and keeps it until another tensor must be converted.
  void hold(const std::string& name, const Formed& formed, size_t bytes) const {
    if (stored_name_ == name) return;
    uint64_t count = 1;
    for (const uint64_t side : formed.form.sides) count *= side;
    std::vector<unsigned char> numbers(count * bytes);
    source_->read_exact(name, 0, count, numbers.data());
    held_ = to_graph_ ? in_graph_order(formed.form, numbers, bytes) : in_file_order(formed.form, numbers, bytes);
    stored_name_ = name;
  }

  const std::shared_ptr<const WeightSource> source_;
  const bool to_graph_;
  std::map<std::string, Formed> formed_;
  std::map<std::string, std::string> older_;  // the tensor's name -> its name in the files of an older import
  mutable std::string stored_name_;
  mutable std::vector<unsigned char> held_;
};

}  // namespace

std::vector<unsigned char> in_graph_order(const StoredForm& form, const std::vector<unsigned char>& numbers,
                                          size_t bytes) {
  std::vector<unsigned char> result(numbers.size());
  for_each_place(form, [&](uint64_t file, uint64_t graph) {
    std::memcpy(result.data() + graph * bytes, numbers.data() + file * bytes, bytes);
  });
  return result;
}

std::vector<unsigned char> in_file_order(const StoredForm& form, const std::vector<unsigned char>& numbers,
                                         size_t bytes) {
  std::vector<unsigned char> result(numbers.size());
  for_each_place(form, [&](uint64_t file, uint64_t graph) {
    std::memcpy(result.data() + file * bytes, numbers.data() + graph * bytes, bytes);
  });
  return result;
}

std::shared_ptr<const WeightSource> as_graph_has(std::shared_ptr<const WeightSource> file, const StoredForms& forms) {
  if (forms.empty()) return file;
  return std::make_shared<FormedWeights>(std::move(file), forms, true);
}

std::unique_ptr<WeightSource> as_graph_has(std::unique_ptr<WeightSource> file, const StoredForms& forms) {
  if (forms.empty()) return file;
  return std::make_unique<FormedWeights>(std::move(file), forms, true);
}

std::shared_ptr<const WeightSource> as_files_have(std::shared_ptr<const WeightSource> weights,
                                                  const StoredForms& forms) {
  if (forms.empty()) return weights;
  return std::make_shared<FormedWeights>(std::move(weights), forms, false);
}

}  // namespace reprise
