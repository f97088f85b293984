// See tensor_view.h.
#include "tools/plan/onnx/tensor_view.h"

#include <algorithm>

namespace reprise {

TensorView TensorView::of(const std::string& node, const std::vector<int64_t>& shape, const std::vector<size_t>& order,
                          const std::vector<int64_t>& written) {
  TensorView view;
  view.node = node;
  view.written = written;
  view.axes.resize(shape.size());
  for (const size_t axis : order) {
    const bool is_batch = axis == order[0];
    if (shape[axis] == 1 && !is_batch) continue;
    const int id = is_batch ? kBatch : static_cast<int>(view.memory.size());
    view.memory.push_back({id, shape[axis]});
    view.axes[axis] = {id};
  }
  return view;
}

size_t TensorView::place(int id) const {
  return static_cast<size_t>(std::find_if(memory.begin(), memory.end(), [id](const Factor& f) { return f.id == id; }) -
                             memory.begin());
}

int64_t TensorView::size(int id) const { return memory[place(id)].size; }

int64_t TensorView::axis_size(size_t axis) const {
  int64_t product = 1;
  for (const int id : axes[axis]) product *= size(id);
  return product;
}

std::vector<int64_t> TensorView::shape() const {
  std::vector<int64_t> sizes;
  for (size_t axis = 0; axis < axes.size(); ++axis) sizes.push_back(axis_size(axis));
  return sizes;
}

std::vector<int> TensorView::ids() const {
  std::vector<int> all;
  for (const std::vector<int>& axis : axes) all.insert(all.end(), axis.begin(), axis.end());
  return all;
}

int TensorView::fresh_id() const {
  int id = 0;
  for (const Factor& factor : memory) id = std::max(id, factor.id);
  return id + 1;
}

void TensorView::cut(int id, int64_t outer) {
  const int inner = fresh_id();
  const size_t at = place(id);
  memory.insert(memory.begin() + static_cast<long>(at) + 1, {inner, memory[at].size / outer});
  memory[at].size = outer;
  for (std::vector<int>& axis : axes) {
    const auto found = std::find(axis.begin(), axis.end(), id);
    if (found != axis.end()) axis.insert(found + 1, inner);
  }
}

TensorView TensorView::of_one_sample() const {
  TensorView view = *this;
  std::erase_if(view.memory, [](const Factor& factor) { return factor.id == kBatch; });
  for (auto& axis : view.axes) std::erase(axis, kBatch);
  return view;
}

TensorView TensorView::by(const std::string& writer) const {
  TensorView view = *this;
  view.node = writer;
  return view;
}

TensorView TensorView::transposed(const std::vector<size_t>& order) const {
  TensorView view = *this;
  for (size_t axis = 0; axis < order.size(); ++axis) view.axes[axis] = axes[order[axis]];
  return view;
}

bool TensorView::is_laid_as(const TensorView& other) const {
  const auto is_same = [](const Factor& a, const Factor& b) { return a.id == b.id && a.size == b.size; };
  return axes == other.axes && written == other.written &&
         std::equal(memory.begin(), memory.end(), other.memory.begin(), other.memory.end(), is_same);
}

std::optional<TensorView> TensorView::reshaped(const std::vector<int64_t>& shape) const {
  if (std::any_of(memory.begin(), memory.end(), [](const Factor& factor) { return factor.size < 1; }))
    return std::nullopt;
  TensorView view = *this;
  view.axes.assign(1, ids());  // factors that no axis has yet, outermost first; cut() finds them here
  std::vector<size_t> ends;    // end of each axis, as an index in that list
  size_t next = 0;
  for (const int64_t dimension : shape) {
    int64_t need = dimension;
    // A batch of one sample goes to the first axis that could be the batch.
    if (next < view.axes[0].size() && view.size(view.axes[0][next]) == 1) ++next;
    while (need > 1) {
      if (next == view.axes[0].size()) return std::nullopt;
      const int id = view.axes[0][next];
      const int64_t size = view.size(id);
      if (size == 1) {
        ++next;
      } else if (need % size == 0) {
        need /= size;
        ++next;
      } else if (size % need == 0 && id != kBatch) {
        view.cut(id, need);
        need = 1;
        ++next;
      } else {
        return std::nullopt;
      }
    }
    ends.push_back(next);
  }
  for (; next < view.axes[0].size(); ++next) {  // only a batch of one sample may remain
    if (view.size(view.axes[0][next]) != 1 || ends.empty()) return std::nullopt;
    ++ends.back();
  }
  const std::vector<int> all = view.axes[0];
  view.axes.clear();
  size_t begin = 0;
  for (const size_t end : ends) {
    view.axes.emplace_back(all.begin() + static_cast<long>(begin), all.begin() + static_cast<long>(end));
    begin = end;
  }
  return view;
}

}  // namespace reprise
