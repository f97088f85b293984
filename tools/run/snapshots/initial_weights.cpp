// See initial_weights.h.
#include "tools/run/snapshots/initial_weights.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "lib/initial_values.h"
#include "tools/files/formats/ggml_blocks.h"
#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"
#include "tools/files/io/text.h"
#include "tools/files/weights/tied_head.h"
#include "tools/run/snapshots/magnitudes.h"
#include "tools/run/snapshots/state_tensors.h"

namespace reprise {

namespace {

// Returns the reason why the source's tensor does not fit the tensor of State, without the name of
// the file; "" if it fits.
std::string misfit_of(const WeightSource& source, const WantedTensor& wanted) {
  try {
    find_tensor(source, wanted);
    return "";
  } catch (const UserError& error) {
    // The file's name as the message shows it
    const std::string line = error.what(), file = UserError(source.path() + ": ").what();
    return line.starts_with(file) ? line.substr(file.size()) : line;
  }
}

[[noreturn]] void refuse_misfits(const WeightSource& source, const std::vector<std::string>& misfits) {
  throw UserError(
      source.path() + ": " + (misfits.size() == 1 ? "1 tensor does" : std::to_string(misfits.size()) + " tensors do") +
      " not fit: " + some_of(misfits, "; ", kSentence) +
      "; --init-skip PATTERN, or init.skip in the recipe, leaves tensors of such names at their initial values");
}

// Throws UserError if the tensor's type in State is neither f32 nor bf16: such a tensor has no
// initial values.
void require_drawn(const WeightSource& source, const StateTensor& state) {
  if (!takes_weights(kEveryWeight & ~kPlainWeights, state.tensor.dtype)) return;
  throw UserError(source.path() + ": tensor " + json_shown(std::string(state.name)) +
                  ": the plan keeps it as the model's own file stored it, so it has no initial values: " +
                  "take it from a file, or name it in the recipe's init.skip and plan again");
}

// For each tensor of State, returns the name of the source's tensor; "" if it is not read. Checks
// all tensors before State is changed.
std::vector<std::string> find_initial(const Plan& plan, const WeightSource& source, const InitialRules& rules,
                                      InitialReport& report) {
  std::vector<std::string> found(plan.state.count);
  std::vector<std::string> misfits;
  for (const std::string& pattern : rules.skip) {
    const auto matches = [&](const StateTensor& state) {
      return belongs(plan, state, StatePart::kModel) && matches_pattern(pattern, state.name);
    };
    if (std::none_of(plan.state.begin(), plan.state.end(), matches)) {
      throw UserError(source.path() + ": --init-skip, init.skip: \"" + pattern +
                      "\" matches no tensor; `reprise parameters` lists their names");
    }
  }
  for (uint32_t i = 0; i < plan.state.count; ++i) {
    const StateTensor& state = plan.state[i];
    if (!belongs(plan, state, StatePart::kModel)) continue;
    const bool is_there = source.find(stored_name(source, state.name)) != nullptr;
    const auto matches = [&](const std::string& pattern) { return matches_pattern(pattern, state.name); };
    if (std::any_of(rules.skip.begin(), rules.skip.end(), matches)) {
      require_drawn(source, state);
      report.skipped.push_back(state.name);
    } else if (!is_there && is_adapter(state.name)) {  // files of models do not contain adapters
    } else if (!is_there && (rules.allow_missing || std::string_view(state.name).ends_with(".num_batches_tracked"))) {
      require_drawn(source, state);
      report.left_over.push_back(state.name);
    } else if (std::string misfit = misfit_of(source, wanted(plan, state)); !misfit.empty()) {
      misfits.push_back(std::move(misfit));
    } else {
      found[i] = find_tensor(source, wanted(plan, state));
    }
  }
  if (!misfits.empty()) refuse_misfits(source, misfits);
  return found;
}

// Draws the initial values of a tensor and converts them to its stored format, in parallel on the
// workers.
void draw_tensor(const Plan& plan, uint32_t index, const Workers& workers, const TensorSink& sink) {
  // kPiece: numbers that are drawn at one time. kShare: numbers of one task. Both are whole numbers
  // of blocks.
  constexpr uint64_t kPiece = uint64_t{1} << 18, kShare = 4096;
  const Tensor& tensor = plan.state[index].tensor;
  const BlockType type = block_type_of(tensor.dtype).value();
  const uint64_t block = dtype_info(tensor.dtype).block_elements;
  std::vector<float> numbers(kPiece);
  std::vector<unsigned char> piece(stored_bytes(tensor.dtype, kPiece));
  for (uint64_t at = 0; at < tensor.elements(); at += kPiece) {
    const uint64_t count = std::min(kPiece, tensor.elements() - at);
    parallel_for(workers, static_cast<uint32_t>((count + kShare - 1) / kShare), [&](uint32_t share) {
      const uint64_t begin = share * kShare, own = std::min(kShare, count - begin);
      initial_values(plan, index, at + begin, own, numbers.data() + begin);
      quantise_blocks(type, numbers.data() + begin, own / block, piece.data() + stored_bytes(tensor.dtype, begin));
    });
    sink(piece.data(), stored_bytes(tensor.dtype, count));
  }
}

}  // namespace

void draw_stored_weights(const Trainer& trainer, const InputFile* streamed) {
  const Plan& plan = *trainer.plan;
  for (uint32_t i = 0; i < plan.state.count; ++i) {
    const bool is_drawn = plan.state[i].kind != StateKind::kStreamed &&
                          takes_weights(kEveryWeight & ~kPlainWeights, plan.state[i].tensor.dtype);
    if (is_drawn) draw_tensor(plan, i, *trainer.context.workers, sink_of(trainer, i));
  }
  start_magnitudes(trainer, streamed);
}

InitialReport read_initial_weights(const Trainer& trainer, const WeightSource& source, const InitialRules& rules,
                                   const InputFile* streamed) {
  const Plan& plan = *trainer.plan;
  InitialReport report;
  std::vector<std::string> found = find_initial(plan, source, rules, report);
  const auto is_read = [&](uint32_t i) { return !found[i].empty() && plan.state[i].kind != StateKind::kStreamed; };
  for (uint32_t i = 0; i < plan.state.count; ++i) {
    if (is_read(i)) require_sense(source, plan.state[i], found[i]);
  }
  for (uint32_t i = 0; i < plan.state.count; ++i) {
    if (is_read(i)) read_tensor(source, found[i], plan.state[i].tensor, sink_of(trainer, i));
    report.loaded += found[i].empty() ? 0 : 1;
  }
  start_magnitudes(trainer, streamed);
  for (const std::string& name : report.skipped) found.push_back(stored_name(source, name));
  const std::set<std::string> used(found.begin(), found.end());
  for (const std::string& name : source.names()) {
    if (used.count(name) == 0) report.unused.push_back(name);
  }
  const auto is_head = [](const StateTensor& state) { return state.name == std::string_view(kHead); };
  report.drops_head = std::none_of(plan.state.begin(), plan.state.end(), is_head) && has_other_head(source);
  return report;
}

void write_streamed_weights(const Plan& plan, const Workers& workers, const WeightSource* source,
                            const InitialRules& rules, OutputFile& file, const std::function<void()>& before_piece) {
  InitialReport ignored;
  const std::vector<std::string> found =
      source == nullptr ? std::vector<std::string>(plan.state.count) : find_initial(plan, *source, rules, ignored);
  const TensorSink sink = [&](const void* piece, uint64_t bytes) {
    if (before_piece) before_piece();
    file.write(piece, bytes);
  };
  for (uint32_t i = 0; i < plan.state.count; ++i) {
    const StateTensor& state = plan.state[i];
    if (state.kind != StateKind::kStreamed) continue;
    if (found[i].empty()) {
      draw_tensor(plan, i, workers, sink);
    } else {
      require_sense(*source, state, found[i]);
      read_tensor(*source, found[i], state.tensor, sink);
    }
    const std::vector<unsigned char> padding(state.tensor.bytes - state.tensor.used_bytes());
    file.write(padding.data(), padding.size());
  }
}

void require_weights_fit(const Graph& graph, const WeightSource& source, const InitialRules& rules) {
  std::vector<std::string> misfits;
  for (const Value& value : graph.values) {
    const bool is_read = value.kind == ValueKind::kParameter || value.kind == ValueKind::kBuffer;
    if (!is_read || is_adapter(value.name) || value.name.ends_with(".num_batches_tracked")) continue;
    const auto matches = [&](const std::string& pattern) { return matches_pattern(pattern, value.name); };
    if (std::any_of(rules.skip.begin(), rules.skip.end(), matches)) continue;
    if (rules.allow_missing && source.find(stored_name(source, value.name)) == nullptr) continue;
    StateTensor state;
    state.tensor = value.tensor;
    state.name = value.name.c_str();
    if (std::string misfit = misfit_of(source, {state, value.trainable}); !misfit.empty())
      misfits.push_back(std::move(misfit));
  }
  if (!misfits.empty()) refuse_misfits(source, misfits);
}

}  // namespace reprise
