// See check_net.h. The net runs in evaluation, a few samples at a time, with the plan that stores
// everything.
#include "tools/run/nets/check_net.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <numeric>

#include "tools/files/formats/json_text.h"
#include "tools/files/formats/safetensors.h"
#include "tools/files/io/error.h"
#include "tools/plan/planning/planner.h"
#include "tools/plan/planning/weight_storage.h"
#include "tools/run/inference/logits.h"
#include "tools/run/inference/outputs.h"
#include "tools/run/profiling/measure.h"
#include "tools/run/session/status_text.h"
#include "tools/run/snapshots/initial_weights.h"

namespace reprise {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// ---- stored numbers ----

struct Numbers {
  std::string where;  // the file or tensor with the numbers, for messages
  std::vector<uint64_t> shape;
  std::vector<double> values;

  uint64_t of_sample() const { return values.size() / shape[0]; }
  [[noreturn]] void refuse(const std::string& why) const {
    throw UserError(where + ": is " + json(shape).dump() + "; " + why);
  }
};
struct StoredSet {
  std::map<std::string, Numbers> inputs;
  Numbers output;
};

Numbers read_numbers(const SafetensorsFile& file, const std::string& name) {
  const StoredTensor& tensor = file.tensors().at(name);
  Numbers numbers{file.path() + ": tensor " + json_shown(name), tensor.shape, {}};
  const auto read_as = [&](auto number) {
    std::vector<decltype(number)> values(tensor.bytes / sizeof number);
    file.read(tensor, 0, values.data(), tensor.bytes);
    numbers.values.assign(values.begin(), values.end());
  };
  switch (tensor.type) {
    case StoredType::kF32: read_as(float{}); break;
    case StoredType::kI64: read_as(int64_t{}); break;
    case StoredType::kI32: read_as(int32_t{}); break;
    case StoredType::kU8:
    case StoredType::kBool: read_as(uint8_t{}); break;
    default: numbers.refuse("must be of F32, I64, I32, U8 or BOOL");
  }
  return numbers;
}

Numbers read_numbers(const std::string& path) {
  const OnnxFile file = OnnxFile::of_tensor(path);
  const OnnxTensor& tensor = file.model().constants.at(0);
  Numbers numbers{path, tensor.shape, {}};
  const auto take = [&numbers](const auto& values) { numbers.values.assign(values.begin(), values.end()); };
  const auto is_of = [&tensor](OnnxType type) { return tensor.type == static_cast<uint32_t>(type); };
  const bool is_whole = is_of(OnnxType::kInt32) || is_of(OnnxType::kInt64) || is_of(OnnxType::kBool);
  is_whole ? take(file.integers(tensor)) : take(file.floats(tensor));
  return numbers;
}

std::vector<std::string> inputs_of(const OnnxModel& model) {
  std::vector<std::string> names;
  for (const OnnxValue& input : model.inputs) {
    const auto is_input = [&](const OnnxTensor& constant) { return constant.name == input.name; };
    if (std::none_of(model.constants.begin(), model.constants.end(), is_input)) names.push_back(input.name);
  }
  return names;
}

// Reads a file of stored numbers. The output may have any name if it is the only tensor that is no
// input, because torch.export invents a name for it.
StoredSet read_safetensors(const OnnxModel& model, const std::string& output, const std::string& path) {
  const SafetensorsFile file(path);
  StoredSet set;
  std::vector<std::string> others;
  const std::vector<std::string> inputs = inputs_of(model);
  for (const auto& [name, tensor] : file.tensors()) {
    if (std::count(inputs.begin(), inputs.end(), name) == 0) others.push_back(name);
  }
  for (const std::string& input : inputs) {
    if (!file.contains(input))
      throw UserError(path + ": tensor " + json_shown(input) +
                      ": missing; must be what the model's input of that name reads");
    set.inputs[input] = read_numbers(file, input);
  }
  if (!file.contains(output) && others.size() != 1) {
    throw UserError(path + ": tensor " + json_shown(output) +
                    ": missing; must be what the model writes of these inputs");
  }
  set.output = read_numbers(file, file.contains(output) ? output : others[0]);
  return set;
}

StoredSet read_test_data(const OnnxModel& model, const std::string& output, const fs::path& folder) {
  StoredSet set;
  size_t n = 0;
  for (const std::string& input : inputs_of(model))
    set.inputs[input] = read_numbers(folder / ("input_" + std::to_string(n++) + ".pb"));
  const auto is_output = [&](const OnnxValue& each) { return each.name == output; };
  const auto place = std::find_if(model.outputs.begin(), model.outputs.end(), is_output) - model.outputs.begin();
  set.output = read_numbers(folder / ("output_" + std::to_string(place) + ".pb"));
  return set;
}

std::vector<StoredSet> read_sets(const OnnxModel& model, const std::string& output, const std::string& data) {
  if (!fs::is_directory(data)) return {read_safetensors(model, output, data)};
  if (fs::exists(fs::path(data) / "input_0.pb")) return {read_test_data(model, output, data)};
  std::vector<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(data)) {
    if (entry.path().filename().string().starts_with("test_data_set_")) folders.push_back(entry.path());
  }
  if (folders.empty())
    throw UserError(data +
                    ": has neither input_0.pb nor a folder test_data_set_0; must be a folder of ONNX's test data");
  std::sort(folders.begin(), folders.end());
  std::vector<StoredSet> sets;
  for (const fs::path& folder : folders) sets.push_back(read_test_data(model, output, folder));
  return sets;
}

// ---- inputs in the net's layout ----

// The samples to compute, one after another.
struct Samples {
  uint64_t count = 0;
  std::vector<float> images;            // for each sample: [H,W,C]
  std::vector<int32_t> tokens, starts, types;  // for each sample: [T]; types is empty if the net reads no types
};

Samples images_of(const Numbers& stored, const ModelDescription& model) {
  const auto side = [](int n) { return static_cast<uint64_t>(n); };
  const uint64_t C = side(model.image_channels), H = side(model.image_height), W = side(model.image_width);
  if (stored.shape.size() != 4 || stored.shape != std::vector<uint64_t>{stored.shape[0], C, H, W} ||
      stored.shape[0] == 0)
    stored.refuse("must be [N," + std::to_string(C) + "," + std::to_string(H) + "," + std::to_string(W) + "]");
  Samples samples{stored.shape[0], std::vector<float>(stored.values.size()), {}, {}, {}};
  for (uint64_t i = 0; i < stored.values.size(); ++i) {
    const uint64_t place = i % (H * W), channel = i / (H * W) % C, sample = i / (H * W * C);
    samples.images[(sample * H * W + place) * C + channel] = static_cast<float>(stored.values[i]);
  }
  return samples;
}

Samples texts_of(const OnnxModel& model, const StoredSet& set, const ModelDescription& net) {
  const bool has_padding = net.input == ModelDescription::Input::kTexts;
  const uint64_t T = static_cast<uint64_t>(has_padding ? net.text_length : net.longest_sequence);
  const auto is_named = [](const std::string& name, const char* word) { return name.find(word) != std::string::npos; };
  Samples samples;
  const Numbers* mask = nullptr;
  for (const std::string& name : inputs_of(model)) {
    const Numbers& numbers = set.inputs.at(name);
    if (numbers.shape.size() != 2 || numbers.shape[1] != T || numbers.shape[0] == 0 ||
        (samples.count != 0 && samples.count != numbers.shape[0]))
      numbers.refuse("must be [" + (samples.count == 0 ? "N" : std::to_string(samples.count)) + "," +
                     std::to_string(T) + "]");
    samples.count = numbers.shape[0];
    if (is_named(name, "mask")) {
      mask = &numbers;
    } else if (is_named(name, "position")) {
      for (uint64_t i = 0; i < numbers.values.size(); ++i) {
        if (numbers.values[i] != static_cast<double>(i % T)) numbers.refuse("must be of positions that count from 0");
      }
    } else if (is_named(name, "type") || is_named(name, "segment")) {
      const int types = std::max(net.token_types, 1);
      const auto is_type = [&](double type) { return type >= 0 && type < types; };
      if (!std::all_of(numbers.values.begin(), numbers.values.end(), is_type))
        numbers.refuse("must be of types, of which the net has " + std::to_string(types) + ", counted from 0");
      if (net.token_types > 0) samples.types.assign(numbers.values.begin(), numbers.values.end());
    } else {
      const auto is_token = [&net](double token) { return token >= 0 && token < net.vocabulary; };
      if (!std::all_of(numbers.values.begin(), numbers.values.end(), is_token))
        numbers.refuse("must be of tokens from 0 to " + std::to_string(net.vocabulary - 1));
      samples.tokens.assign(numbers.values.begin(), numbers.values.end());
    }
  }
  for (uint64_t sample = 0; sample < samples.count; ++sample) {
    uint64_t length = T;
    const auto is_padding = [&](uint64_t t) {
      return mask != nullptr ? mask->values[sample * T + t] == 0
                             : has_padding && samples.tokens[sample * T + t] == net.pad;
    };
    if (!has_padding && is_padding(T - 1))
      mask->refuse("must be ones alone: a language model's samples have no padding");
    while (length > 1 && is_padding(length - 1)) --length;
    for (uint64_t t = 0; t < T; ++t) {
      if (mask != nullptr && t < length && is_padding(t))
        mask->refuse("of sample " + std::to_string(sample) + " padding must be behind the text alone");
      samples.starts.push_back(static_cast<int32_t>(t < length ? 0 : length));
    }
  }
  samples.types.resize(net.token_types > 0 ? samples.tokens.size() : 0);
  return samples;
}

// ---- outputs of the net ----

void require(const std::string& who, const Status& status) {
  if (!status.ok()) fail(who, status);
}

// The buffers from which fill_batch() fills a micro-batch. `inputs` has the inputs, one after
// another; the last sample is repeated until the micro-batch is full. All labels are 0.
struct Reading {
  const Samples& samples;
  uint64_t rows;  // number of inputs in a micro-batch
  std::vector<unsigned char> inputs, labels;
  std::vector<int32_t> starts, types;
};
Status fill_batch(void* self, uint64_t batch, uint32_t, BatchSink& sink) {
  Reading& reading = *static_cast<Reading*>(self);
  const Samples& all = reading.samples;
  const uint64_t bytes = sink.input_bytes() / reading.rows, starts = sink.start_count() / reading.rows,
                 labels = sink.label_count();
  const auto* inputs = all.images.empty() ? reinterpret_cast<const unsigned char*>(all.tokens.data())
                                          : reinterpret_cast<const unsigned char*>(all.images.data());
  const uint64_t tokens = bytes / sizeof(int32_t);
  reading.inputs.clear(), reading.starts.clear(), reading.types.clear();
  for (uint64_t row = 0; row < reading.rows; ++row) {
    const uint64_t sample = std::min(batch * reading.rows + row, all.count - 1);
    reading.inputs.insert(reading.inputs.end(), inputs + sample * bytes, inputs + (sample + 1) * bytes);
    const auto first = all.starts.begin() + static_cast<long>(sample * starts);
    reading.starts.insert(reading.starts.end(), first, first + static_cast<long>(starts));
    if (!sink.wants_token_types()) continue;
    const auto type = all.types.begin() + static_cast<long>(sample * tokens);
    reading.types.insert(reading.types.end(), type, type + static_cast<long>(tokens));
  }
  reading.labels.assign(labels * sizeof(float), 0);
  sink.add(reading.inputs.data(), reading.inputs.size(), reading.labels.data(), labels,
           sink.wants_document_start() ? reading.starts.data() : nullptr,
           sink.wants_token_types() ? reading.types.data() : nullptr);
  return ok_status();
}

// The net's output for all samples, one after another: rows of `columns` numbers.
struct Outputs {
  std::vector<double> values;
  size_t columns = 0;
};

Outputs outputs_of(const Port& port, Recipe recipe, const std::string& weights, const Samples& samples) {
  const int inputs = describe_model(recipe.model).inputs_of_sample();
  // Samples in a micro-batch: one, or two if samples are pairs, because a loss of pairs may need
  // two pairs.
  recipe.batch = inputs;
  recipe.data.kind = DataSource::Kind::kNone;
  const SolvedModel model = solve_model(recipe);
  ScheduleRequest request;
  request.strategy = "none";
  const PlannedModel planned = plan_model(model, request);
  Backend backend;
  require(weights, port.open_backend("cpu", &backend));
  PlanRun run(port, backend, recipe, planned.plan, 0);
  read_initial_weights(run.trainer(), *open_model_weights(recipe, weights), {});
  Outputs outputs;
  const auto take = [&outputs](const auto& row, size_t columns) {
    outputs.values.insert(outputs.values.end(), row.begin(), row.end());
    outputs.columns = columns;
  };
  const LogitsReader of_head(run.trainer(), [&](uint64_t, int32_t, const std::vector<double>& logits) {
    take(logits, logits.size());
  });
  const OutputReader of_loss(run.trainer(),
                             // The observer of OutputReader also calls the observer of of_head,
                             // which was set before.
                             [&](const NetOutputs& each) { take(each.numbers, each.columns); });
  Reading reading{samples, static_cast<uint64_t>(recipe.batch * inputs), {}, {}, {}, {}};
  EvaluationReport report;
  const uint64_t batches = (samples.count + reading.rows - 1) / reading.rows;
  require(weights, evaluate(run.trainer(), {&reading, fill_batch}, batches, report));
  outputs.values.resize(outputs.values.size() / (batches * reading.rows) * samples.count);
  return outputs;
}

// Applies `op`, the function in which the model ends and which the net leaves to its loss, to each
// row of the outputs. Changes nothing if `op` is "".
void end_as(const std::string& op, Outputs& outputs) {
  for (size_t first = 0; first < outputs.values.size() && !op.empty(); first += outputs.columns) {
    double* row = &outputs.values[first];
    if (op == "Sigmoid") {
      std::transform(row, row + outputs.columns, row, [](double x) { return 1 / (1 + std::exp(-x)); });
      continue;
    }
    if (op == "Div") {
      const double length = std::sqrt(std::inner_product(row, row + outputs.columns, row, 0.0));
      std::transform(row, row + outputs.columns, row, [length](double x) { return x / length; });
      continue;
    }
    const double maximum = *std::max_element(row, row + outputs.columns);
    double sum = 0;
    for (size_t c = 0; c < outputs.columns; ++c) sum += std::exp(row[c] - maximum);
    for (size_t c = 0; c < outputs.columns; ++c) {
      const double logarithm = row[c] - maximum - std::log(sum);
      row[c] = op == "LogSoftmax" ? logarithm : std::exp(logarithm);
    }
  }
}

// Returns the index in the stored numbers of number i of the net's output. Stored maps are
// [N,K,H,W].
uint64_t place_of(uint64_t i, const Numbers& stored, size_t columns) {
  if (stored.shape.size() != 4) return i;
  const uint64_t places = stored.of_sample() / columns, column = i % columns, place = i / columns % places,
                 sample = i / columns / places;
  return (sample * columns + column) * places + place;
}

}  // namespace

CheckReport check_net(const Port& port, const OnnxFile& file, const ImportedNet& net, const Recipe& recipe,
                      const std::string& weights, const std::string& data) {
  CheckReport report;
  double apart = 0, size = 0;
  const ModelDescription description = describe_model(recipe.model);
  for (const StoredSet& set : read_sets(file.model(), net.output, data)) {
    const bool reads_texts = description.input != ModelDescription::Input::kImages;
    const Samples samples =
        reads_texts ? texts_of(file.model(), set, description) : images_of(set.inputs.begin()->second, description);
    Outputs outputs = outputs_of(port, recipe, weights, samples);
    end_as(net.ending, outputs);
    const Numbers& stored = set.output;
    if (stored.shape.empty() || stored.shape[0] != samples.count || stored.values.size() != outputs.values.size())
      stored.refuse("of these inputs must be " + std::to_string(outputs.values.size() / samples.count) +
                    " numbers of each of " + std::to_string(samples.count) + " samples");
    for (uint64_t i = 0; i < outputs.values.size(); ++i) {
      const double right = stored.values[place_of(i, stored, outputs.columns)];
      apart += (outputs.values[i] - right) * (outputs.values[i] - right);
      size += right * right;
    }
    report.samples += samples.count;
  }
  report.distance = std::sqrt(apart / (size > 0 ? size : 1));
  if (report.distance <= kMaxDistance) return report;
  throw UserError(data + ": the net computes other outputs than those stored here, apart by " +
                  json(report.distance).dump() + " of their norm; must be at most " + json(kMaxDistance).dump() +
                  ": these are another model's, or of a training (they must be those of net.eval()), or " +
                  file.path() + " is not read as it is meant");
}

}  // namespace reprise
