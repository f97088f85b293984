// Ops of ONNX that change how numbers are read, split them or concatenate them; and constants for
// these ops.
#include <algorithm>

#include "tools/files/formats/json_text.h"
#include "tools/plan/onnx/importer.h"

namespace reprise {
namespace {

using nlohmann::json;

// Returns the number of elements; -1 if a size is negative, or if the number is too large.
int64_t product(const std::vector<int64_t>& shape) {
  int64_t n = 1;
  for (const int64_t d : shape) {
    if (d < 0 || __builtin_mul_overflow(n, d, &n)) return -1;
  }
  return n;
}

// Returns the axis counted from the front. Refuses the node and returns -1 if there is no such
// axis.
int64_t axis_of(NodeReader& reader, int64_t axis, size_t rank) {
  const int64_t counted = axis < 0 ? axis + static_cast<int64_t>(rank) : axis;
  if (counted >= 0 && counted < static_cast<int64_t>(rank)) return counted;
  reader.refuse("axis is " + std::to_string(axis) + " of " + std::to_string(rank));
  return -1;
}

void read_as(Importer& net, NodeReader& reader, const ImportValue& given, const std::vector<int64_t>& shape) {
  const auto settled = net.settled(reader, given);
  if (!settled) return;
  const ImportValue& x = *settled;
  if (!x.has_own_shape()) return reader.refuse(std::string("reads ") + form_text(x.form) + " in another shape");
  ImportValue result = x;
  if (x.known && !x.repeats) {
    auto known = std::make_shared<KnownNumbers>(*x.known);
    known->shape = shape;
    result.known = known;
  }
  auto view = x.view.reshaped(shape);
  const auto& axes = x.view.axes;
  const bool begins_with_batch = !axes.empty() && !axes[0].empty() && axes[0][0] == TensorView::kBatch;
  // If the numbers are in the model's own order in memory, they can be read in every shape.
  if (!view && x.form == ImportForm::kTensor && begins_with_batch) {
    const auto ordered = net.in_order(reader, x.view, x.view.ids());
    if (!ordered) return;
    const int64_t rest = product(ordered->shape()) / net.batch();
    TensorView flat = *ordered;
    flat.memory = {ordered->memory[0]};
    flat.axes = {{TensorView::kBatch}};
    if (rest > 1) {
      flat.memory.push_back({1, rest});
      flat.axes[0].push_back(1);
    }
    view = flat.reshaped(shape);
  }
  if (!view)
    return reader.refuse("to " + json(shape).dump() + " from " + json(x.view.shape()).dump() +
                         ", which does not go on");
  result.view = *view;
  net.pass(reader, result);
}

// Returns the first input. A value within a chain is written as a tensor first, so that it has a
// shape.
ImportValue shaped_value(Importer& net, NodeReader& reader) {
  const ImportValue x = net.value(reader, 0);
  return net.settled(reader, x).value_or(ImportValue());
}

void read_reshape(Importer& net, NodeReader& reader) {
  const ImportValue x = shaped_value(net, reader);
  const auto given = net.known(reader, 1);
  const bool zero_is_zero = reader.integer("allowzero", 0) != 0;
  if (x.form == ImportForm::kUnknown || !given) return;
  std::vector<int64_t> shape = given->integers();
  const std::vector<int64_t> before = x.view.shape();
  int64_t open = -1, rest = product(before);
  for (size_t n = 0; n < shape.size(); ++n) {
    if (shape[n] == 0 && !zero_is_zero) shape[n] = n < before.size() ? before[n] : 0;
    if (shape[n] == -1) open = static_cast<int64_t>(n);
    if (shape[n] > 0 && rest % shape[n] == 0) rest /= shape[n];
  }
  if (open >= 0) shape[static_cast<size_t>(open)] = rest;
  if (std::any_of(shape.begin(), shape.end(), [](int64_t n) { return n < 1; }) || product(shape) != product(before)) {
    return reader.refuse("to " + json(given->integers()).dump() + ", which does not hold " + json(before).dump());
  }
  read_as(net, reader, x, shape);
}

void read_flatten(Importer& net, NodeReader& reader) {
  const ImportValue x = shaped_value(net, reader);
  int64_t axis = reader.integer("axis", 1);
  if (x.form == ImportForm::kUnknown) return;
  const std::vector<int64_t> shape = x.view.shape();
  axis += axis < 0 ? static_cast<int64_t>(shape.size()) : 0;
  if (axis < 0 || axis > static_cast<int64_t>(shape.size()))
    return reader.refuse("axis is " + std::to_string(axis) + " of " + std::to_string(shape.size()));
  read_as(net, reader, x,
          {product({shape.begin(), shape.begin() + axis}), product({shape.begin() + axis, shape.end()})});
}

std::optional<std::vector<int64_t>> axes_of(Importer& net, NodeReader& reader) {
  std::vector<int64_t> axes = reader.integers("axes", {});
  if (!reader.has_input(1)) return axes;
  const auto given = net.known(reader, 1);
  return given ? std::optional(given->integers()) : std::nullopt;
}

void read_squeeze(Importer& net, NodeReader& reader) {
  const ImportValue x = shaped_value(net, reader);
  const auto axes = axes_of(net, reader);
  if (x.form == ImportForm::kUnknown || !axes) return;
  const std::vector<int64_t> shape = x.view.shape();
  std::vector<bool> goes(shape.size(), axes->empty());
  for (const int64_t each : *axes) {
    const int64_t axis = axis_of(reader, each, shape.size());
    if (axis < 0) return;
    goes[static_cast<size_t>(axis)] = true;
  }
  std::vector<int64_t> result;
  for (size_t n = 0; n < shape.size(); ++n) {
    if (goes[n] && shape[n] != 1 && !axes->empty())
      return reader.refuse("axis " + std::to_string(n) + " is of " + std::to_string(shape[n]));
    if (!goes[n] || shape[n] != 1) result.push_back(shape[n]);
  }
  read_as(net, reader, x, result);
}

void read_unsqueeze(Importer& net, NodeReader& reader) {
  const ImportValue x = shaped_value(net, reader);
  const auto axes = axes_of(net, reader);
  if (x.form == ImportForm::kUnknown || !axes) return;
  const std::vector<int64_t> shape = x.view.shape();
  const size_t rank = shape.size() + axes->size();
  std::vector<bool> is_new(rank);
  for (const int64_t each : *axes) {
    const int64_t axis = axis_of(reader, each, rank);
    if (axis < 0 || is_new[static_cast<size_t>(axis)]) return reader.refuse("axes are " + json(*axes).dump());
    is_new[static_cast<size_t>(axis)] = true;
  }
  std::vector<int64_t> result;
  for (size_t n = 0, old = 0; n < rank; ++n) result.push_back(is_new[n] ? 1 : shape[old++]);
  read_as(net, reader, x, result);
}

void read_transpose(Importer& net, NodeReader& reader) {
  ImportValue x = shaped_value(net, reader);
  if (x.form == ImportForm::kUnknown) return;
  const size_t rank = x.view.axes.size();
  std::vector<int64_t> order = reader.integers("perm", {});
  if (order.empty()) {
    order.resize(rank);
    for (size_t n = 0; n < rank; ++n) order[n] = static_cast<int64_t>(rank - 1 - n);
  }
  std::vector<int64_t> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  for (size_t n = 0; n < sorted.size(); ++n) {
    if (sorted[n] != static_cast<int64_t>(n) || sorted.size() != rank)
      return reader.refuse("perm is " + json(order).dump() + " of " + std::to_string(rank) + " axes");
  }
  if (!x.has_own_shape() || x.known)
    return reader.refuse(std::string("reads ") + form_text(x.form) + " in another order");
  x.view = x.view.transposed({order.begin(), order.end()});
  net.pass(reader, x);
}

// ---- parts of an axis ----

// An axis whose factors are neighbours in memory. `outer` and `behind`: the factors before and
// after it in memory. `before`: product of the sizes in `outer`, without the batch. `inner`:
// product of the sizes in `behind`.
struct Run {
  TensorView view;
  int64_t before = 1, inner = 1;
  std::vector<Factor> outer, behind;
};

std::optional<Run> run_of(Importer& net, NodeReader& reader, const TensorView& x, size_t axis) {
  const std::vector<int>& ids = x.axes[axis];
  if (std::count(ids.begin(), ids.end(), TensorView::kBatch) > 0)
    return reader.refuse("cuts or joins the batch, which is not available"), std::nullopt;
  Run run = {x, 1, 1, {}, {}};
  size_t begin = ids.empty() ? 0 : x.place(ids[0]);
  bool is_run = !ids.empty();
  for (size_t n = 0; n < ids.size(); ++n)
    is_run = is_run && begin + n < x.memory.size() && x.memory[begin + n].id == ids[n];
  // Put the axis's factors together and keep the order of the others. An axis of size 1 goes where
  // it is in the order of the model's axes.
  if (!is_run) {
    std::vector<int> order;
    for (const Factor& factor : x.memory) {
      if (std::count(ids.begin(), ids.end(), factor.id) == 0) order.push_back(factor.id);
    }
    size_t behind = 0;  // number of factors of later axes
    for (size_t each = axis + 1; each < x.axes.size(); ++each) behind += x.axes[each].size();
    begin = ids.empty() ? order.size() - std::min(behind, order.size() - 1) : std::min(begin, order.size());
    order.insert(order.begin() + static_cast<long>(begin), ids.begin(), ids.end());
    const auto ordered = net.in_order(reader, x, order);
    if (!ordered) return std::nullopt;
    run.view = *ordered;
  }
  const auto& memory = run.view.memory;
  run.outer.assign(memory.begin(), memory.begin() + static_cast<long>(begin));
  run.behind.assign(memory.begin() + static_cast<long>(begin + ids.size()), memory.end());
  for (size_t n = 1; n < run.outer.size(); ++n) run.before *= run.outer[n].size;
  for (const Factor& factor : run.behind) run.inner *= factor.size;
  return run;
}

std::vector<int64_t> run_shape(int64_t batch, const Run& run, int64_t size) {
  return run.before == 1 ? std::vector<int64_t>{batch, size * run.inner}
                         : std::vector<int64_t>{batch, run.before, size * run.inner};
}

// Returns the layout in which the axis has `size` elements.
TensorView with_places(const Run& run, size_t axis, int64_t size, const std::vector<int64_t>& written) {
  TensorView layout = run.view;
  const int id = layout.fresh_id();
  layout.memory = run.outer;
  layout.axes[axis].clear();
  if (size != 1) {
    layout.memory.push_back({id, size});
    layout.axes[axis] = {id};
  }
  layout.memory.insert(layout.memory.end(), run.behind.begin(), run.behind.end());
  layout.written = written;
  return layout;
}

std::optional<TensorView> part_of(Importer& net, NodeReader& reader, const TensorView& x, size_t axis, int64_t first,
                                  int64_t count) {
  const int64_t size = x.axis_size(axis);
  if (first < 0 || count < 1 || first + count > size)
    return reader.refuse("takes places " + std::to_string(first) + " to " + std::to_string(first + count) + " of " +
                         std::to_string(size)),
           std::nullopt;
  if (count == size) return x;
  const auto run = run_of(net, reader, x, axis);
  if (!run) return std::nullopt;
  const bool is_last = run->view.written.back() == size * run->inner;
  const TensorView whole = is_last ? run->view : net.written_as(run->view, run_shape(net.batch(), *run, size));
  std::vector<int64_t> written = whole.written;
  written.back() = count * run->inner;
  return net.append(
      {{"op", "slice"}, {"axis", written.size() - 1}, {"first", first * run->inner}, {"count", count * run->inner}},
      net.name_of(reader.node()), {whole.node}, with_places(*run, axis, count, written));
}

// Returns every `step`-th element of an axis from the first on, by a pool with windows of one
// element.
std::optional<TensorView> every_of(Importer& net, NodeReader& reader, const TensorView& x, size_t axis, int64_t step) {
  const int64_t size = x.axis_size(axis), count = (size - 1) / step + 1;
  if (size == 1) return x;
  const auto run = run_of(net, reader, x, axis);
  if (!run) return std::nullopt;
  const TensorView whole = net.written_as(run->view, {net.batch(), run->before, size, run->inner});
  return net.append({{"op", "avg_pool"}, {"kernel", 1}, {"stride", {1, step}}}, net.name_of(reader.node()),
                    {whole.node}, with_places(*run, axis, count, {net.batch(), run->before, count, run->inner}));
}

void read_split(Importer& net, NodeReader& reader) {
  const auto x = net.tensor(reader, 0);
  if (!x) return;
  const int64_t axis = axis_of(reader, reader.integer("axis", 0), x->axes.size());
  std::vector<int64_t> sizes = reader.integers("split", {});
  const auto given = reader.has_input(1) ? net.known(reader, 1) : std::nullopt;
  if (given) sizes = given->integers();
  const int64_t parts = static_cast<int64_t>(reader.node().outputs.size());
  reader.integer("num_outputs", parts);
  if (axis < 0 || reader.failed()) return;
  const int64_t size = x->axis_size(static_cast<size_t>(axis));
  const int64_t each = (size + parts - 1) / parts;
  for (int64_t n = 0, left = size; sizes.size() < static_cast<size_t>(parts); ++n, left -= each)
    sizes.push_back(std::min(each, left));
  int64_t first = 0;
  for (size_t n = 0; n < static_cast<size_t>(parts); ++n) {
    const auto part = part_of(net, reader, *x, static_cast<size_t>(axis), first, sizes[n]);
    if (!part) return;
    net.set_tensor(reader, *part, n);
    first += sizes[n];
  }
  if (first != size) reader.refuse("splits " + std::to_string(first) + " places of " + std::to_string(size));
}

// Reads a Gather of rows of a parameter, for example of a bias for each distance between two
// positions. The indices of the rows are known before the net runs. Along axis 1 the parameter is
// transposed.
void take_rows(Importer& net, NodeReader& reader, const ImportValue& table, int64_t axis, const KnownNumbers& places) {
  if (table.tensor == nullptr || table.rows || table.view.axes.size() != 2 || !table.is_parameter)
    return reader.refuse("reads rows of what is no parameter of two axes");
  const size_t along = static_cast<size_t>(axis);
  const int64_t V = table.view.axis_size(along), C = table.view.axis_size(1 - along), R = product(places.shape);
  auto rows = std::make_shared<std::vector<double>>();
  net.spend(16 * places.numbers.size());  // each index is written as text
  for (const int64_t place : places.integers()) rows->push_back(static_cast<double>(place + (place < 0 ? V : 0)));
  if (rows->empty() ||
      std::any_of(rows->begin(), rows->end(), [V](double row) { return row < 0 || row >= static_cast<double>(V); }))
    return reader.refuse("takes a place that is none of " + std::to_string(V));
  ImportValue taken = table;
  taken.table = along == 0 ? table.view : table.view.transposed({1, 0});
  taken.rows = rows;
  taken.view = TensorView();
  taken.view.axes.resize(2);
  if (R > 1) taken.view.memory.push_back({1, R}), taken.view.axes[along] = {1};
  if (C > 1) taken.view.memory.push_back({2, C}), taken.view.axes[1 - along] = {2};
  std::vector<int64_t> shape = taken.view.shape();
  shape.erase(shape.begin() + axis);
  shape.insert(shape.begin() + axis, places.shape.begin(), places.shape.end());
  const auto view = taken.view.reshaped(shape);
  if (!view) return reader.refuse("leaves " + json(shape).dump() + ", which does not go on");
  taken.view = *view;
  net.set(reader, taken);
}

void read_rows_of(Importer& net, NodeReader& reader, const ImportValue& table) {
  if (are_rows_of_tokens(net, reader, table)) return;
  const auto given = net.known_of(net.value(reader, 1));
  auto places = given ? places_of_each_text(net.texts(), *given) : std::nullopt;
  if (!places) places = net.known(reader, 1);
  if (places && reader.node().op == "GatherND") places->shape.pop_back();
  const int64_t axis = axis_of(reader, reader.integer("axis", 0), table.view.axes.size()),
                padding = reader.integer("padding", -1);
  if (places && padding >= 0 &&
      std::count(places->numbers.begin(), places->numbers.end(), static_cast<double>(padding)) > 0)
    return reader.refuse("has padding_idx " + std::to_string(padding) +
                         " among the rows that are known before the net runs, which is not available (yet)");
  if (places && axis >= 0) take_rows(net, reader, table, axis, *places);
}

using Integers = std::vector<int64_t>;
// Reads a Slice of a parameter along one axis, for example of the first positions of a table.
void read_slice_of(Importer& net, NodeReader& reader, const ImportValue& table, const Integers& starts,
                   const Integers& ends, const Integers& axes, const Integers& steps) {
  const bool is_one = starts.size() == 1 && ends.size() == 1 && axes.size() == 1 && steps == Integers{1};
  if (!is_one) return reader.refuse("cuts a parameter along several axes, or by steps, which is not available (yet)");
  const int64_t axis = axis_of(reader, axes[0], table.view.axes.size());
  if (axis < 0) return;
  const int64_t size = table.view.axis_size(static_cast<size_t>(axis));
  const SliceRange range = slice_range(starts[0], ends[0], 1, size);
  if (range.count == size) return net.pass(reader, table);
  Integers places;
  for (int64_t n = 0; n < range.count; ++n) places.push_back(range.first + n);
  take_rows(net, reader, table, axis, known_integers(places));
}

void read_slice(Importer& net, NodeReader& reader) {
  const ImportValue source = net.value(reader, 0);
  const bool is_parameter = source.form == ImportForm::kConstant && source.is_parameter;
  const auto x = is_parameter ? std::nullopt : net.whole(reader, source);
  const auto starts = net.known(reader, 1), ends = net.known(reader, 2);
  const auto axes = reader.has_input(3) ? net.known(reader, 3) : std::nullopt,
             steps = reader.has_input(4) ? net.known(reader, 4) : std::nullopt;
  if ((!x && !is_parameter) || !starts || !ends || reader.failed()) return;
  if (is_parameter)
    return read_slice_of(net, reader, source, starts->integers(), ends->integers(),
                         axes ? axes->integers() : Integers{0}, steps ? steps->integers() : Integers{1});
  TensorView part = *x;
  for (size_t n = 0; n < starts->numbers.size() && n < ends->numbers.size(); ++n) {
    const int64_t axis =
        axis_of(reader, axes && n < axes->numbers.size() ? axes->integers()[n] : static_cast<int64_t>(n),
                part.axes.size());
    const int64_t step = steps && n < steps->numbers.size() ? steps->integers()[n] : 1;
    if (axis < 0) return;
    if (step < 1)
      return reader.refuse("steps are " + json(steps->integers()).dump() + "; available are steps forwards");
    const size_t along = static_cast<size_t>(axis);
    const SliceRange range = slice_range(starts->integers()[n], ends->integers()[n], step, part.axis_size(along));
    const int64_t reach = range.count < 1 ? 0 : (range.count - 1) * step + 1;
    auto next = part_of(net, reader, part, along, range.first, reach);
    if (next && step > 1) next = every_of(net, reader, *next, along, step);
    if (!next) return;
    part = *next;
  }
  net.set_tensor(reader, part);
}

// True if these are all indices of a list of this size, in order: torch's exporter writes a change
// of strides in this form.
bool is_every_place(const KnownNumbers& places, int64_t size) {
  if (product(places.shape) != size || !(places.is_whole() || places.is_rows())) return false;
  for (size_t n = 0; n < places.numbers.size(); ++n) {
    if (places.numbers[n] != static_cast<double>(n)) return false;
  }
  return places.is_whole() || places.each_row == static_cast<double>(places.numbers.size());
}

// Reads a Gather of one element of an axis, or of consecutive elements. Also reads rows of a
// constant, and a Gather of all elements, which is a reshape.
void read_gather(Importer& net, NodeReader& reader) {
  const ImportValue table = net.value(reader, 0), every = net.value(reader, 1);
  if (table.form == ImportForm::kTensor && every.known && table.view.axes.size() == 1 &&
      is_every_place(*every.known, product(table.view.shape()))) {
    reader.integer("axis", 0);
    return read_as(net, reader, table, every.known->shape);
  }
  if (table.form == ImportForm::kConstant) return read_rows_of(net, reader, table);
  const auto x = net.whole(reader, table);
  const auto places = net.known(reader, 1);
  if (!x || !places) return;
  const int64_t axis = axis_of(reader, reader.integer("axis", 0), x->axes.size());
  if (axis < 0) return;
  const int64_t size = x->axis_size(static_cast<size_t>(axis));
  std::vector<int64_t> at = places->integers();
  for (int64_t& place : at) place += place < 0 ? size : 0;
  for (size_t n = 0; n < at.size(); ++n) {
    if (at[n] != at[0] + static_cast<int64_t>(n))
      return reader.refuse("takes the places " + json(at).dump() + "; available are such as follow each other");
  }
  if (at.empty() || places->shape.size() > 1) return reader.refuse("takes places that are no list");
  auto part = part_of(net, reader, *x, static_cast<size_t>(axis), at[0], static_cast<int64_t>(at.size()));
  if (!part) return;
  if (places->shape.empty()) {
    std::vector<int64_t> shape = part->shape();
    shape.erase(shape.begin() + axis);
    const auto without = part->reshaped(shape);
    if (!without) return reader.refuse("leaves " + json(shape).dump() + ", which does not go on");
    part = without;
  }
  net.set_tensor(reader, *part);
}

// Reads a GatherND whose indices are one number each: a Gather along the first axis.
void read_gather_nd(Importer& net, NodeReader& reader) {
  const ImportValue table = net.value(reader, 0);
  const auto places = net.known(reader, 1);
  reader.require_integer("batch_dims", 0);
  if (table.form == ImportForm::kUnknown || !places || reader.failed()) return;
  if (table.form != ImportForm::kConstant || places->shape.empty() || places->shape.back() != 1)
    return reader.refuse("takes places of several axes, or of what is no parameter");
  read_rows_of(net, reader, table);
}

// The inputs of a concatenation.
struct Parts {
  std::vector<ImportValue> values;
  size_t first = 0;  // index of the largest part that a node writes; the others get its layout
};

std::optional<Parts> parts_of(Importer& net, NodeReader& reader) {
  Parts parts;
  int64_t maximum = 0;
  for (size_t n = 0; n < reader.node().inputs.size(); ++n) {
    ImportValue part = net.value(reader, n);
    if (part.form == ImportForm::kUnknown) return std::nullopt;
    if (part.form != ImportForm::kConstant) {
      const auto whole = net.whole(reader, part);
      if (!whole) return std::nullopt;
      part.view = *whole;
      part.factor = 1;
      if (product(whole->shape()) > maximum) maximum = product(whole->shape()), parts.first = n;
    }
    parts.values.push_back(part);
  }
  if (maximum == 0) return reader.refuse("puts parameters side by side, which is not available (yet)"), std::nullopt;
  return parts;
}

// Returns the factors of `view`, whose axes have the order that the run's axes have in memory. The
// factors of axis `along` are where the run's axis is.
std::vector<int> laid_as(const Run& run, const TensorView& view, size_t along) {
  std::vector<size_t> order;
  const auto add_axis_of = [&](const Factor& factor) {
    for (size_t a = 0; a < view.axes.size(); ++a) {
      const auto& ids = run.view.axes[a];
      if (std::count(ids.begin(), ids.end(), factor.id) > 0 && std::count(order.begin(), order.end(), a) == 0)
        order.push_back(a);
    }
  };
  for (const Factor& factor : run.outer) add_axis_of(factor);
  order.push_back(along);
  for (const Factor& factor : run.behind) add_axis_of(factor);
  std::vector<int> ids;
  for (const size_t a : order) ids.insert(ids.end(), view.axes[a].begin(), view.axes[a].end());
  return ids;
}

// Concatenates values and a parameter, which is equal for all samples: pads the values with zeros,
// and adds the parameter to these zeros. Returns the node's name.
std::string with_parameter(Importer& net, NodeReader& reader, const std::string& values, const ImportValue& parameter,
                           const std::vector<int>& ids, const std::vector<int64_t>& written, int64_t before,
                           int64_t behind) {
  std::vector<int64_t> zeros(written.size() - 1), own(written.begin() + 1, written.end());
  const auto padded = [&](const std::string& node, int64_t front, int64_t back) {
    std::vector<int64_t> at_front = zeros, at_back = zeros;
    at_front.back() = front;
    at_back.back() = back;
    return net
        .append({{"op", "pad"}, {"before", at_front}, {"behind", at_back}}, net.unique_name(node + ".padded"), {node},
                TensorView())
        .node;
  };
  const int64_t width = own.back();
  own.insert(own.begin(), 1);
  const std::string space = padded(values, before == 0 ? width : 0, before == 0 ? 0 : width);
  const std::string term = padded(net.learned(reader.node(), parameter, ids, own), before, behind);
  return net.append({{"op", "add"}}, net.unique_name(values + ".with"), {space, term}, TensorView()).node;
}

// Returns a constant part as one that repeats along the batch. Exporters that fix the batch write a
// class token as a constant with numbers for every sample, or for the only sample.
ImportValue beside_values(Importer& net, const ImportValue& part, const TensorView& values, size_t along) {
  const bool is_constant = part.form == ImportForm::kConstant && part.tensor != nullptr && !part.repeats && along > 0;
  if (!is_constant) return part;
  const bool is_of_one =
      net.batch() == 1 && values.axes[0] == std::vector<int>{TensorView::kBatch} && part.view.axis_size(0) == 1;
  return is_of_one ? repeated_value(part, 1) : net.repeating(part, values);
}

void read_concat(Importer& net, NodeReader& reader) {
  auto parts = parts_of(net, reader);
  if (!parts) return;
  const TensorView& first = parts->values[parts->first].view;
  const size_t rank = first.axes.size();
  const int64_t axis = axis_of(reader, reader.integer("axis", 0), rank);
  if (axis < 0) return;
  const size_t along = static_cast<size_t>(axis);
  auto run = run_of(net, reader, first, along);
  if (!run) return;
  // The axes get the order that the other parts will have, too.
  const auto together = net.in_order(reader, run->view, laid_as(*run, run->view, along));
  run = together ? run_of(net, reader, *together, along) : std::nullopt;
  if (!run) return;
  // If the axis is innermost by itself, as channels of images are, the parts stay as they are
  // written.
  const bool is_innermost = run->inner == 1 && run->view.written.back() == run->view.axis_size(along);
  const auto written_with = [&](int64_t size) {
    std::vector<int64_t> written = is_innermost ? run->view.written : run_shape(net.batch(), *run, size);
    if (is_innermost) written.back() = size;
    return written;
  };
  int64_t of_nodes = 0;
  std::vector<std::string> nodes;
  std::vector<size_t> parameters;
  for (size_t n = 0; n < parts->values.size(); ++n) {
    ImportValue& part = parts->values[n];
    std::vector<int64_t> shape = part.view.shape(), right = first.shape();
    const bool fits = shape.size() == rank && (shape[along] = right[along] = 0, shape == right);
    if (!fits)
      return reader.refuse("parts of " + json(part.view.shape()).dump() + " and " + json(first.shape()).dump() +
                           " do not fit side by side");
    const int64_t size = part.view.axis_size(along);
    if (part.form == ImportForm::kConstant) {
      part = beside_values(net, part, first, along);
      if (part.tensor == nullptr || !part.repeats)
        return reader.refuse("puts a constant beside values, which is available where it is repeated along the batch");
      n < parts->first ? (void)parameters.insert(parameters.begin(), n) : parameters.push_back(n);
    } else {
      const auto ordered = net.in_order(reader, part.view, laid_as(*run, part.view, along));
      if (!ordered) return;
      nodes.push_back(net.written_as(*ordered, written_with(size)).node);
      of_nodes += size;
    }
  }
  for (const size_t n : parameters) {
    const auto is_node = [](const ImportValue& part) { return part.form != ImportForm::kConstant; };
    const auto at = parts->values.begin() + static_cast<long>(n);
    if (std::any_of(parts->values.begin(), at, is_node) && std::any_of(at, parts->values.end(), is_node))
      return reader.refuse("puts a parameter between values, which is not available (yet)");
  }
  const auto layout_of = [&](int64_t count) { return with_places(*run, along, count, written_with(count)); };
  std::string joined = nodes[0];
  if (nodes.size() > 1)
    joined = net.append({{"op", "concat"}, {"axis", layout_of(of_nodes).written.size() - 1}},
                        net.name_of(reader.node()), nodes, layout_of(of_nodes))
                 .node;
  for (const size_t n : parameters) {  // from the values outwards: the parameters next to the values are added first
    const ImportValue part = one_sample_of(parts->values[n]);
    const int64_t size = part.view.axis_size(along), space = of_nodes * run->inner;
    joined = with_parameter(net, reader, joined, part, laid_as(*run, part.view, along), written_with(size),
                            n > parts->first ? space : 0, n > parts->first ? 0 : space);
    of_nodes += size;
  }
  net.set_tensor(reader, layout_of(of_nodes).by(joined));
}

// Expands a constant along the batch, as needed for a class token. A value that the net computes
// keeps its numbers, because the product or sum that reads it repeats them.
void expand_to(Importer& net, NodeReader& reader, ImportValue x, std::vector<int64_t> shape) {
  std::vector<int64_t> own = x.view.shape();
  if (own.size() < shape.size()) own.insert(own.begin(), shape.size() - own.size(), 1);
  for (size_t n = 0; n < shape.size(); ++n) shape[n] = shape[n] == -1 || shape[n] == 1 ? own[n] : shape[n];
  if (own == shape && !(x.form == ImportForm::kConstant && net.batch() == 1)) return net.pass(reader, x);
  const bool is_once =
      x.form == ImportForm::kTensor && net.has_once(x.view.node) && own.size() == shape.size() && own[0] == 1;
  if (is_once && std::equal(shape.begin() + 1, shape.end(), own.begin() + 1) && shape[0] == net.batch()) {
    x.view.memory[0].size = net.batch();
    return net.pass(reader, x);
  }
  bool is_wider = x.form == ImportForm::kTensor && own.size() == shape.size() && x.expanded.empty();
  for (size_t n = 0; n < shape.size() && is_wider; ++n) is_wider = own[n] == shape[n] || own[n] == 1;
  if (is_wider) {
    x.expanded = shape;
    return net.pass(reader, x);
  }
  const bool is_along_batch =
      x.form == ImportForm::kConstant && !shape.empty() && shape[0] == net.batch() && own[0] == 1;
  const bool is_batch_alone = is_along_batch && std::equal(shape.begin() + 1, shape.end(), own.begin() + 1, own.end());
  // Repeats the numbers along the other axes here, because repeated_value() repeats along the batch
  // only.
  if (const auto known = is_along_batch && !is_batch_alone ? net.known_of(x) : std::nullopt) {
    std::vector<int64_t> sample = shape;
    sample[0] = 1;
    const KnownNumbers target = known_integers(sample);
    if (auto numbers = computed(reader, {&*known, &target}))
      return net.pass(reader, repeated_value(constant_value(std::move(*numbers)), net.batch()));
  }
  if (!is_batch_alone)
    return reader.refuse("to " + json(shape).dump() + " from " + json(own).dump() +
                         "; available is a constant that is repeated along the batch");
  if (own.size() > x.view.axes.size()) x.view.axes.insert(x.view.axes.begin(), own.size() - x.view.axes.size(), {});
  net.pass(reader, repeated_value(x, net.batch()));
}

void read_expand(Importer& net, NodeReader& reader) {
  const ImportValue x = net.value(reader, 0);
  const auto given = net.known(reader, 1);
  if (x.form != ImportForm::kUnknown && given) expand_to(net, reader, x, given->integers());
}

// Reads a Tile as an Expand, which is possible if it repeats only axes of size 1.
void read_tile(Importer& net, NodeReader& reader) {
  const ImportValue x = net.value(reader, 0);
  const auto times = net.known(reader, 1);
  if (x.form == ImportForm::kUnknown || !times) return;
  std::vector<int64_t> shape = x.view.shape();
  const std::vector<int64_t> each = times->integers();
  for (size_t n = 0; n < shape.size(); ++n) {
    const bool suits = each.size() == shape.size() && (each[n] == 1 || (shape[n] == 1 && each[n] > 1));
    if (!suits)
      return reader.refuse(json(each).dump() + " times " + json(shape).dump() + "; available is an axis of 1");
    shape[n] *= each[n];
  }
  expand_to(net, reader, x, shape);
}

// ---- constants ----

void read_shape(Importer& net, NodeReader& reader) {
  const ImportValue x = shaped_value(net, reader);
  if (x.form == ImportForm::kUnknown) return;
  if (!x.has_own_shape()) return reader.refuse(std::string("asks for the shape of ") + form_text(x.form));
  std::vector<int64_t> shape = x.view.shape();
  const int64_t rank = static_cast<int64_t>(shape.size());
  const SliceRange range = slice_range(reader.integer("start", 0), reader.integer("end", rank), 1, rank);
  shape = {shape.begin() + range.first, shape.begin() + range.first + range.count};
  net.pass(reader, constant_value(known_integers(shape)));
}

void read_constant(Importer& net, NodeReader& reader) {
  KnownNumbers known;
  if (const OnnxAttribute* tensor = reader.find("value"); tensor != nullptr && tensor->tensor) {
    return net.pass(reader, constant_value(*tensor->tensor, false));
  }
  if (const OnnxAttribute* number = reader.find("value_int")) {
    known = {{}, {static_cast<double>(number->integer)}, true};
  } else if (const OnnxAttribute* real = reader.find("value_float")) {
    known = {{}, {shortest(static_cast<double>(real->number))}, false};
  } else if (const OnnxAttribute* list = reader.find("value_ints")) {
    known = known_integers(list->integers);
  } else {
    return reader.refuse("has no tensor as its value");
  }
  net.pass(reader, constant_value(std::move(known)));
}

void read_constant_of_shape(Importer& net, NodeReader& reader) {
  const auto shape = net.known(reader, 0);
  const OnnxAttribute* filled = reader.find("value");
  if (!shape) return;
  double number = 0;
  bool is_integer = false;
  if (filled != nullptr && filled->tensor) {
    const auto known = net.known_of(constant_value(*filled->tensor, false));
    if (!known || known->numbers.size() != 1) return reader.refuse("is filled with what is no number");
    number = known->numbers[0];
    is_integer = known->is_integer;
  }
  KnownNumbers result = {shape->integers(), {}, is_integer};
  const auto is_short = [&] {
    return product(result.shape) >= 0 && product(result.shape) <= static_cast<int64_t>(kMaxKnown);
  };
  const bool repeats = !is_short() && result.shape.size() > 1 && result.shape[0] == net.batch();
  if (repeats) result.shape[0] = 1;
  // A longer list gets no numbers: only its shape is known.
  if (is_short()) result.numbers.assign(static_cast<size_t>(product(result.shape)), number);
  const ImportValue value = constant_value(std::move(result));
  net.pass(reader, repeats ? repeated_value(value, net.batch()) : value);
}

}  // namespace

const OnnxOps& layout_ops() {
  static const OnnxOps ops = {{"Reshape", read_reshape},
                              {"Flatten", read_flatten},
                              {"Squeeze", read_squeeze},
                              {"Unsqueeze", read_unsqueeze},
                              {"Transpose", read_transpose},
                              {"Slice", read_slice},
                              {"Split", read_split},
                              {"Gather", read_gather},
                              {"GatherND", read_gather_nd},
                              {"Concat", read_concat},
                              {"Expand", read_expand},
                              {"Tile", read_tile},
                              {"Shape", read_shape},
                              {"Constant", read_constant},
                              {"ConstantOfShape", read_constant_of_shape}};
  return ops;
}

}  // namespace reprise
