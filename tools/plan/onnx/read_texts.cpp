// Ops of ONNX in a net of texts: rows of its tables, and the mask of padding where it reaches the
// net (text_probe.h).
#include <algorithm>
#include <cmath>

#include "tools/files/formats/json_text.h"
#include "tools/plan/onnx/importer.h"

namespace reprise {
namespace {

using nlohmann::json;

constexpr double kShut = -1e4;  // a score that is this low has the exponential 0 in a softmax

// Numbers with a shape of four dimensions; dimensions that are missing in front are 1.
class Grid {
 public:
  explicit Grid(const KnownNumbers& known) : known_(known), is_valid_(known.shape.size() <= 4 && known.is_whole()) {
    int64_t stride = 1;
    for (size_t back = 1; back <= 4 && is_valid_; ++back) {
      const int64_t size = back <= known.shape.size() ? known.shape[known.shape.size() - back] : 1;
      sizes_[4 - back] = size;
      strides_[4 - back] = size == 1 ? 0 : stride;
      stride *= size;
    }
  }
  // True if the grid can be broadcast to these sizes.
  bool suits(const std::array<int64_t, 4>& sizes) const {
    bool suits = is_valid_;
    for (size_t d = 0; d < 4; ++d) suits = suits && (sizes_[d] == 1 || sizes_[d] == sizes[d]);
    return suits;
  }
  int64_t size(size_t d) const { return sizes_[d]; }
  double at(int64_t a, int64_t b, int64_t c, int64_t d) const {
    return known_.numbers[static_cast<size_t>(a * strides_[0] + b * strides_[1] + c * strides_[2] + d * strides_[3])];
  }

 private:
  const KnownNumbers& known_;
  bool is_valid_;
  std::array<int64_t, 4> sizes_ = {}, strides_ = {};
};

// ---- rows of tables ----

// Returns the row for each position, which must be the same for all texts; padding may have any
// row. If a position is padding in all texts, the difference between the two rows before it is
// added once more. Returns nothing if texts differ, or if `rows` does not have the shape of the
// texts.
std::optional<std::vector<int64_t>> rows_of_positions(const TextProbe& texts, const KnownNumbers& rows) {
  const Grid grid(rows);
  if (!grid.suits({1, 1, texts.texts, texts.length})) return std::nullopt;
  std::vector<int64_t> result;
  for (int64_t t = 0; t < texts.length; ++t) {
    for (int64_t n = 0; n < texts.texts; ++n) {
      if (rows.of_texts && !texts.is_text(n, t)) continue;
      const int64_t row = static_cast<int64_t>(grid.at(0, 0, grid.size(2) == 1 ? 0 : n, grid.size(3) == 1 ? 0 : t));
      if (result.size() <= static_cast<size_t>(t)) result.push_back(row);
      if (result.back() != row) return std::nullopt;
    }
    if (result.size() == static_cast<size_t>(t))
      result.push_back(t < 2 ? result.back()
                             : 2 * result[static_cast<size_t>(t) - 1] - result[static_cast<size_t>(t) - 2]);
  }
  return result;
}

bool is_in_its_own_order(const TensorView& view) {
  const std::vector<int> ids = view.ids();
  return ids.size() == view.memory.size() && std::equal(ids.begin(), ids.end(), view.memory.begin(),
                                                        [](int id, const Factor& factor) { return factor.id == id; });
}

void read_rows_of_tokens(Importer& net, NodeReader& reader, const ImportValue& table, const TensorView& tokens) {
  const std::vector<int64_t> shape = table.view.shape();
  if (shape.size() != 2 || table.tensor == nullptr)
    return reader.refuse("its table is " + json(shape).dump() + "; must be a parameter, [V,C]");
  const std::string name = net.name_of(reader.node(), table.tensor);
  net.add_weight(name + ".weight", table);
  const std::vector<int64_t> written = {net.batch(), net.texts().length, shape[1]};
  if (tokens.shape() != std::vector<int64_t>{written[0], written[1]})
    return reader.refuse("reads tokens as " + json(tokens.shape()).dump() + "; must be [N,T]");
  json node = {{"op", "embedding"}, {"rows", shape[0]}, {"features", shape[1]}};
  if (const int64_t padding = reader.integer("padding", -1); padding >= 0) node["padding"] = padding;
  net.set_tensor(reader, net.append(node, name, {tokens.node}, TensorView::of(name, written, {0, 1, 2}, written)));
}

// ---- the mask ----

KnownNumbers flipped(const KnownNumbers& flags) {
  KnownNumbers result = flags;
  for (double& number : result.numbers) number = number == 0 ? 1 : 0;
  return result;
}

bool is_shut_everywhere(const Importer& net, const ImportValue& value) {
  const auto known = net.known_of(value);
  return known && !known->numbers.empty() &&
         std::all_of(known->numbers.begin(), known->numbers.end(), [](double n) { return n <= kShut; });
}

// Applies the mask's exclusions to the scores, and returns true. If the mask does anything else and
// depends on the texts, refuses it and returns true. Otherwise returns false: the mask may be
// numbers to add.
bool see_scores(Importer& net, NodeReader& reader, const ImportValue& scores, const KnownNumbers& mask,
                bool are_flags) {
  const auto sight = sight_of(net.texts(), mask, are_flags);
  if (!sight || scores.view.axes.size() != 4) {
    if (mask.of_texts)
      reader.refuse("changes the scores of an attention otherwise than by padding, which is not available (yet)");
    return mask.of_texts;
  }
  ImportValue seen = scores;
  seen.masked = seen.masked || sight->masked;
  seen.causal = seen.causal || sight->causal;
  net.pass(reader, seen);
  return true;
}

// True if the mask, [texts, length, anything], is 1 for a text's own tokens and 0 for padding.
bool is_text_mask(const TextProbe& texts, const KnownNumbers& mask, int64_t columns) {
  const Grid grid(mask);
  if (!mask.of_texts || !grid.suits({1, texts.texts, texts.length, columns})) return false;
  for (int64_t n = 0; n < texts.texts; ++n) {
    for (int64_t t = 0; t < texts.length; ++t) {
      for (int64_t c = 0; c < grid.size(3); ++c) {
        if (grid.at(0, n, t, c) != (texts.is_text(n, t) ? 1 : 0)) return false;
      }
    }
  }
  return true;
}

// True if the counts, [texts, ...], are the number of tokens of each text.
bool are_lengths(const TextProbe& texts, const KnownNumbers& counts) {
  if (!counts.of_texts || counts.shape.empty() || counts.shape[0] != texts.texts) return false;
  const size_t each = counts.numbers.size() / static_cast<size_t>(texts.texts);
  for (size_t i = 0; i < counts.numbers.size(); ++i) {
    if (counts.numbers[i] != static_cast<double>(texts.length_of(static_cast<int64_t>(i / each)))) return false;
  }
  return true;
}

// Reads a comparison of tokens with the padding token, which shows where padding is.
void read_equal(Importer& net, NodeReader& reader) {
  const ImportValue a = net.value(reader, 0), b = net.value(reader, 1);
  if (a.form == ImportForm::kUnknown || b.form == ImportForm::kUnknown) return;
  const ImportValue& tokens = a.form == ImportForm::kTokens ? a : b;
  const auto pad = net.known_scalar(a.form == ImportForm::kTokens ? b : a);
  if (tokens.form != ImportForm::kTokens || tokens.view.node != kNetTokens || !pad)
    return reader.refuse("is available of tokens and the padding's");
  if (!net.set_pad(static_cast<int64_t>(*pad)))
    return reader.refuse("compares tokens with " + json(*pad).dump() + ", and others with another");
  KnownNumbers is_pad = flipped(text_mask(net.texts()));
  const auto shape = tokens.view.shape();
  is_pad.shape = shape;
  net.pass(reader, constant_value(std::move(is_pad)));
}

// Reads the test of a softmax: a row whose scores are all excluded is NaN, and some exporters put 0
// there.
void read_is_nan(Importer& net, NodeReader& reader) {
  ImportValue x = net.value(reader, 0);
  if (x.form == ImportForm::kUnknown) return;
  if (x.form != ImportForm::kWeights) return reader.refuse("is available within an attention alone");
  x.form = ImportForm::kIsNan;
  net.pass(reader, x);
}

}  // namespace

KnownNumbers text_mask(const TextProbe& texts) {
  KnownNumbers mask = {.shape = {texts.texts, texts.length}, .numbers = {}, .is_integer = true, .of_texts = true};
  for (int64_t n = 0; n < texts.texts; ++n) {
    for (int64_t t = 0; t < texts.length; ++t) mask.numbers.push_back(texts.is_text(n, t) ? 1 : 0);
  }
  return mask;
}

std::optional<Sight> sight_of(const TextProbe& texts, const KnownNumbers& mask, bool are_flags) {
  const Grid grid(mask);
  // Without texts there is no padding, and the mask's sizes are the number and the length of the
  // sequences.
  const bool has_texts = texts.texts > 0;
  const int64_t count = has_texts ? texts.texts : grid.size(0),
                length = has_texts ? texts.length : std::max(grid.size(2), grid.size(3));
  if (!grid.suits({count, grid.size(1), length, length})) return std::nullopt;
  bool sees_all = true, sees_before = true, sees_padding = true, shuts_padding = true;
  for (int64_t n = 0; n < count; ++n) {
    const int64_t own = mask.of_texts ? texts.length_of(n) : length;
    for (int64_t h = 0; h < grid.size(1); ++h) {
      for (int64_t q = 0; q < own; ++q) {
        for (int64_t k = 0; k < length; ++k) {
          const double number = grid.at(n, h, q, k);
          const bool is_open = are_flags ? number != 0 : number == 0;
          if (!is_open && !are_flags && !(number <= kShut)) return std::nullopt;
          if (k < own) {
            sees_all = sees_all && is_open;
            sees_before = sees_before && is_open == (k <= q);
          } else {
            sees_padding = sees_padding && is_open;
            shuts_padding = shuts_padding && !is_open;
          }
        }
      }
    }
  }
  if (!sees_all)
    return sees_before && shuts_padding ? std::optional(Sight{.masked = false, .causal = true}) : std::nullopt;
  if (!mask.of_texts) return Sight{};
  if (!shuts_padding) return sees_padding ? std::optional(Sight{}) : std::nullopt;
  return Sight{.masked = true, .causal = false};
}

bool is_sight_of_scores(Importer& net, NodeReader& reader, const ImportValue& scores, const ImportValue& mask) {
  if (scores.form != ImportForm::kScores || mask.form != ImportForm::kConstant) return false;
  const auto known = net.known_of(one_sample_of(mask));
  return known && see_scores(net, reader, scores, *known, false);
}

bool is_filled_scores(Importer& net, NodeReader& reader) {
  const ImportValue condition = net.value(reader, 0), a = net.value(reader, 1), b = net.value(reader, 2);
  if (condition.form == ImportForm::kIsNan && b.form == ImportForm::kWeights) {
    const auto zero = net.known_of(a);
    if (!zero || !std::all_of(zero->numbers.begin(), zero->numbers.end(), [](double n) { return n == 0; }))
      return false;
    return net.pass(reader, b), true;
  }
  const auto flags = net.known_of(one_sample_of(condition));
  if (!flags) return false;
  if (a.form == ImportForm::kScores && is_shut_everywhere(net, b)) return see_scores(net, reader, a, *flags, true);
  if (b.form == ImportForm::kScores && is_shut_everywhere(net, a))
    return see_scores(net, reader, b, flipped(*flags), true);
  return false;
}

bool is_masked_value(Importer& net, NodeReader& reader, const ImportValue& x, const ImportValue& mask) {
  const auto known = x.form == ImportForm::kTensor && x.view.axes.size() == 3 ? net.known_of(mask) : std::nullopt;
  if (!known || !is_text_mask(net.texts(), *known, x.view.axis_size(2))) return false;
  ImportValue masked = x;
  masked.form = ImportForm::kMasked;
  net.pass(reader, masked);
  return true;
}

bool is_masked_sum(Importer& net, NodeReader& reader, const ImportValue& x, const std::vector<int64_t>& axes,
                   bool keeps) {
  const bool is_over_tokens = x.form == ImportForm::kMasked && axes.size() == 1 && (axes[0] == 1 || axes[0] == -2);
  if (!is_over_tokens) return false;
  ImportValue sum = x;
  sum.form = ImportForm::kMaskedSum;
  sum.keeps_axis = keeps;
  net.pass(reader, sum);
  return true;
}

bool is_masked_mean(Importer& net, NodeReader& reader, const ImportValue& sum, const ImportValue& counts) {
  const auto known = sum.form == ImportForm::kMaskedSum ? net.known_of(counts) : std::nullopt;
  if (!known || !are_lengths(net.texts(), *known)) return false;
  ImportValue value = sum;
  value.form = ImportForm::kTensor;
  const auto whole = net.whole(reader, value);
  const auto ordered = whole ? net.in_order(reader, *whole, whole->ids()) : std::nullopt;
  if (!ordered) return true;
  const int64_t columns = ordered->axis_size(2);
  const TensorView rows = net.written_as(*ordered, {net.batch(), net.texts().length, columns});
  const std::vector<int64_t> written = {net.batch(), columns};
  TensorView mean = TensorView::of(rows.node, written, {0, 1}, written);
  if (sum.keeps_axis) mean.axes.insert(mean.axes.begin() + 1, std::vector<int>());
  net.set_tensor(reader,
                 net.append({{"op", "global_pool"}, {"masked", true}}, net.name_of(reader.node()), {rows.node}, mean));
  return true;
}

// Makes a table the positions of the embedding x: the first T rows of a table [P,C], or all rows of
// a table [T,C]. Returns false if that is not possible. Only this sum may read the embedding's
// output, because the embedding's node is moved here.
bool become_positions(Importer& net, NodeReader& reader, const ImportValue& x, size_t place,
                      const ImportValue& constant) {
  const json* embedding = net.node_called(x.view.node);
  if (embedding == nullptr || embedding->at("op") != "embedding" || embedding->at("inputs").size() != 1 ||
      x.factor != 1 || embedding->contains("padding"))
    return false;
  const std::string& name = reader.node().inputs[place];
  const OnnxNode* gather = net.writer_of(name);
  if (gather == nullptr || gather->op != "Gather" || net.only_reader_of(name) != &reader.node()) return false;
  ImportValue table = one_sample_of(constant);
  std::vector<int64_t> shape = table.view.shape();
  while (shape.size() > 2 && shape.front() == 1) shape.erase(shape.begin());
  const std::vector<int64_t> right = {net.texts().length, embedding->at("features")};
  if (!constant.is_parameter || constant.tensor == nullptr || shape != right || !is_in_its_own_order(table.view))
    return false;
  if (constant.rows) {
    for (size_t n = 0; n < constant.rows->size(); ++n) {
      if ((*constant.rows)[n] != static_cast<double>(n)) return false;
    }
    table.view = constant.table;
    table.rows = nullptr;
    shape = table.view.shape();
    if (!is_in_its_own_order(table.view) || shape[1] != right[1]) return false;
  }
  json node = *embedding;
  node["inputs"].push_back(net.learned(reader.node(), table, table.view.ids(), shape));
  net.replace_at_end(x.view.node, node);
  net.note_joined("embedding");
  net.pass(reader, x);
  return true;
}

bool are_rows_of_tokens(Importer& net, NodeReader& reader, const ImportValue& table) {
  const ImportValue places = net.value(reader, 1);
  if (places.form != ImportForm::kTokens || reader.integer("axis", 0) != 0) return false;
  read_rows_of_tokens(net, reader, table, places.view);
  return true;
}

std::optional<KnownNumbers> places_of_each_text(const TextProbe& texts, const KnownNumbers& places) {
  if (texts.texts == 0 || places.shape.empty() || places.shape.size() > 2) return std::nullopt;
  const auto rows = rows_of_positions(texts, places);
  if (!rows) return std::nullopt;
  const bool is_one = std::all_of(rows->begin(), rows->end(), [&](int64_t row) { return row == rows->front(); });
  KnownNumbers of_text = known_integers(is_one ? std::vector<int64_t>{rows->front()} : *rows);
  of_text.shape.insert(of_text.shape.begin(), places.shape.size() - 1, 1);
  return of_text;
}

const OnnxOps& text_ops() {
  static const OnnxOps ops = {{"Equal", read_equal}, {"IsNaN", read_is_nan}};
  return ops;
}

}  // namespace reprise
