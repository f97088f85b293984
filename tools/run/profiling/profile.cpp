// See profile.h. Implements keys, file and costs. A call in the graph and its row in a plan get the
// same key, because both list their tensors in the order of kOps.
#include "tools/run/profiling/profile.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "tools/files/formats/json_fields.h"
#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"
#include "tools/files/io/output_file.h"

namespace reprise {

namespace {

std::string number_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

// Returns the part of a call's key (call_key()) for an attribute. It has only the fields that
// change the work: two dropouts with different random streams have the same cost.
std::string work_text(const WindowAttribute& w) {
  const auto number = [](uint32_t n) { return std::to_string(n); };
  std::string text =
      " window=" + number(w.kernel_h) + "x" + number(w.kernel_w) + "/" + number(w.stride_h) + "+" + number(w.pad_top);
  const WindowAttribute alike = {w.kernel_h, w.kernel_w, w.stride_h, w.pad_top};
  if (w.columns() != alike.columns() || w.rows() != alike.rows()) {
    for (const WindowSide& side : {w.rows(), w.columns()}) {
      text +=
          " " + number(side.stride) + ":" + number(side.dilation) + "+" + number(side.pad) + "+" + number(side.far_pad);
    }
  }
  return text + (w.groups == 1 ? "" : " groups=" + number(w.groups)) + (w.counts_padding == 0 ? "" : " counts_padding");
}
std::string work_text(const NormAttribute& n) { return " count=" + std::to_string(n.count); }
std::string work_text(const LinearAttribute& l) { return " input_major=" + std::to_string(l.input_major); }
std::string work_text(const GeluAttribute& g) { return " tanh=" + std::to_string(g.tanh_form); }
std::string work_text(const AttentionAttribute& a) {
  const std::string shared = a.kv_heads == a.heads ? "" : " kv_heads=" + std::to_string(a.kv_heads);
  const std::string window = a.window == 0 ? "" : " window=" + std::to_string(a.window),
                    cap = a.softcap == 0 ? "" : " capped";
  const std::string order = a.causal == 1 ? "" : " causal=0";
  return " heads=" + std::to_string(a.heads) + shared + " dropout=" + number_text(a.dropout) + window + cap + order;
}
std::string work_text(const DropoutAttribute& d) {
  return " dropout=" + number_text(d.probability) + (d.shared == 1 ? "" : " shared");
}
std::string work_text(const GroupAttribute& g) {
  return " tensors=" + std::to_string(g.tensors) + " elements=" + std::to_string(g.elements);
}
// Returns the text for an optimizer's attribute: the text of its group.
template <typename A>
  requires requires(const A& attribute) { attribute.group; }
std::string work_text(const A& attribute) { return work_text(attribute.group); }
std::string work_text(const ClipAttribute&) { return ""; }
// Returns the text for a box of columns. A plain run of columns has the same text as in older
// profiles.
std::string work_text(const ColumnsAttribute& a) {
  const std::string run = " first=" + std::to_string(a.first);
  const bool is_run = a.second_last == 0 && a.third_last == 0;
  return is_run ? run
                : run + " second_last=" + std::to_string(a.second_last) + " third_last=" + std::to_string(a.third_last);
}
// Returns the text for all other attributes: all their fields.
template <typename A>
std::string work_text(const A& attribute) {
  std::string text;
  attribute.fields([&text](const char* name, auto value) {
    text += std::string(" ") + name + "=" + number_text(static_cast<double>(value));
  });
  return text;
}

std::string attribute_text(const AttributeTables& tables, AttributeKind kind, uint32_t attribute) {
  std::string text;
  for_each_pool(tables, [&](const auto& pool) {
    using A = typename std::decay_t<decltype(pool)>::value_type;
    if (kAttributeKind<A> == kind) text = work_text(pool[attribute]);
  });
  return text;
}

std::string tensor_text(const Tensor* tensor) {
  if (tensor == nullptr) return " -";
  std::string text = std::string(" ") + dtype_info(tensor->dtype).name + "[";
  for (uint32_t d = 0; d < tensor->rank; ++d) text += (d == 0 ? "" : ",") + std::to_string(tensor->shape[d]);
  return text + "]";
}

// True if a key contains this argument. Left out are the norms of all gradients, because their
// number does not change the time of one norm. Absent arguments are left out if they are documents
// of an attention, adapters of a linear layer, or biases of a convolution.
bool is_named(const KernelCall& call, size_t argument) {
  if (call.op == Op::kGradNorm) return argument != (call.pass == Pass::kReduce ? 0 : 1);
  if (call.op == Op::kLinear && call.pass == Pass::kForward && argument > LinearForward::kB)
    return call.tensors[argument] != nullptr;
  if (call.op == Op::kConv && call.pass == Pass::kForward && argument == ConvForward::kB)
    return call.tensors[argument] != nullptr;
  if (call.op == Op::kNormConv && call.pass == Pass::kForward && argument == NormConvForward::kB)
    return call.tensors[argument] != nullptr;
  return call.op != Op::kAttention || call.tensors[argument] != nullptr;
}

std::string kernel_key(const KernelCall& call, const AttributeTables& tables) {
  const KernelInfo& kernel = kernel_info(call.op, call.pass);
  std::string key = kernel.name + attribute_text(tables, kernel.attribute, call.attribute);
  for (size_t i = 0; i < call.tensors.size(); ++i) {
    if (is_named(call, i)) key += tensor_text(call.tensors[i]);
  }
  if (call.accumulate != 0) key += " adds=" + std::to_string(call.accumulate);
  return key;
}

}  // namespace

std::string call_key(const Graph& graph, const Call& call) {
  return kernel_key(kernel_call(graph, call), graph.attributes);
}

std::string row_key(const OwnedPlan& plan, const OwnedProgram& program, const Row& row) {
  return kernel_key(kernel_call(plan, program, row), plan.attributes);
}

namespace {

// Returns the number of elements in the key of a group of tensors; 0 for other keys.
double elements_of(const std::string& key) {
  constexpr const char* kElements = " elements=";
  const size_t at = key.find(kElements);
  return at == std::string::npos ? 0 : std::strtod(key.c_str() + at + std::strlen(kElements), nullptr);
}

}  // namespace

std::optional<double> Profile::seconds_of_part(const std::string& key) const {
  const double elements = elements_of(key);
  const std::string kernel = key.substr(0, key.find(' ') + 1);
  const Time* whole = nullptr;
  double maximum = 0;
  for (auto each = kernels.lower_bound(kernel);
       elements > 0 && each != kernels.end() && each->first.rfind(kernel, 0) == 0; ++each) {
    if (elements_of(each->first) > maximum) maximum = elements_of(each->first), whole = &each->second;
  }
  if (whole == nullptr) return std::nullopt;
  return whole->seconds * elements / maximum;
}

double Profile::seconds(const std::string& key) const {
  const auto found = kernels.find(key);
  if (found != kernels.end()) return found->second.seconds;
  throw UserError(path + ": kernels: none has the key \"" + key +
                  "\"; the profile is of another recipe: profile this recipe again");
}

std::string profile_text(const Profile& profile) {
  nlohmann::ordered_json json = {{"format", kProfileFormat},
                                 {"backend", profile.backend},
                                 {"kernel_set", profile.kernel_set},
                                 {"threads", profile.threads},
                                 {"processor", profile.processor},
                                 {"micro_batch_seconds", profile.micro_batch_seconds},
                                 {"kernels", nlohmann::ordered_json::array()}};
  for (const auto& [level, measured] : {std::pair{"disk", profile.disk}, {"host", profile.host}}) {
    if (!measured) continue;
    json[std::string(level) + "_write_seconds"] = measured->write_cost;
    json[std::string(level) + "_read_seconds"] = measured->read_cost;
  }
  if (profile.stream_read_seconds) json["stream_read_seconds"] = *profile.stream_read_seconds;
  if (profile.wire) {
    json["wire_ranks"] = profile.wire->ranks;
    json["wire_message_seconds"] = profile.wire->message_seconds;
    json["wire_byte_seconds"] = profile.wire->byte_seconds;
  }
  for (const auto& [key, kernel] : profile.kernels) {
    json["kernels"].push_back({{"key", key}, {"seconds", kernel.seconds}, {"runs", kernel.runs}});
  }
  return json.dump(1) + "\n";
}

namespace {

// Returns the costs with the keys `write` and `read`, seconds per byte of a second level; nothing
// if the file has neither. Throws UserError if it has only one of them.
std::optional<DiskLevel> read_level(const JsonFields& fields, const char* write, const char* read) {
  if (!fields.has(write) && !fields.has(read)) return std::nullopt;
  const FieldRange seconds = {0, std::numeric_limits<double>::max()};
  DiskLevel level;
  for (const char* key : {write, read}) (void)fields.at(key);
  fields.read(write, level.write_cost, seconds);
  fields.read(read, level.read_cost, seconds);
  return level;
}

// Returns the values of the wire; nothing if the file has none. Throws UserError if the file lacks
// one of the three.
std::optional<Wire> read_wire(const JsonFields& fields) {
  constexpr const char *kRanks = "wire_ranks", *kMessage = "wire_message_seconds", *kByte = "wire_byte_seconds";
  if (!fields.has(kRanks) && !fields.has(kMessage) && !fields.has(kByte)) return std::nullopt;
  const FieldRange seconds = {0, std::numeric_limits<double>::max()};
  Wire wire;
  for (const char* key : {kRanks, kMessage, kByte}) (void)fields.at(key);
  fields.read(kRanks, wire.ranks, 2, UINT32_MAX);
  fields.read(kMessage, wire.message_seconds, seconds);
  fields.read(kByte, wire.byte_seconds, seconds);
  return wire;
}

}  // namespace

Profile parse_profile(const std::string& text, const std::string& path) {
  const nlohmann::json json = parse_json(text, path);
  const JsonFields fields(json, {path, &text}, "");
  const FieldRange seconds = {0, std::numeric_limits<double>::max()};
  uint64_t format = 0;
  if (!fields.has("format") || !fields.has("kernels"))
    throw UserError(path + ": format, kernels: missing; this is no file as `reprise profile` writes it");
  fields.read("format", format, kProfileFormat, kProfileFormat);
  fields.allow_only({"format", "backend", "kernel_set", "threads", "processor", "micro_batch_seconds", "kernels",
                     "disk_write_seconds", "disk_read_seconds", "host_write_seconds", "host_read_seconds",
                     "stream_read_seconds", "wire_ranks", "wire_message_seconds", "wire_byte_seconds"});
  for (const char* key : {"backend", "kernel_set", "threads", "micro_batch_seconds"}) (void)fields.at(key);
  Profile profile;
  profile.path = path;
  constexpr Word<const char*> kBackends[] = {{"cpu", "cpu"}, {"cuda", "cuda"}};
  fields.read_choice("backend", profile.backend, kBackends);
  fields.read("kernel_set", profile.kernel_set);
  fields.read("processor", profile.processor);
  fields.read("threads", profile.threads, 1, UINT32_MAX);
  fields.read("micro_batch_seconds", profile.micro_batch_seconds, seconds);
  profile.disk = read_level(fields, "disk_write_seconds", "disk_read_seconds");
  profile.host = read_level(fields, "host_write_seconds", "host_read_seconds");
  fields.read("stream_read_seconds", profile.stream_read_seconds, seconds);
  profile.wire = read_wire(fields);
  for (size_t n = 0; n < fields.list_at("kernels").size(); ++n) {
    const JsonFields kernel = fields.element("kernels", n);
    kernel.allow_only({"key", "seconds", "runs"});
    for (const char* key : {"key", "seconds", "runs"}) (void)kernel.at(key);
    std::string key;
    Profile::Time value;
    kernel.read("key", key);
    kernel.read("seconds", value.seconds, seconds);
    kernel.read("runs", value.runs, 1, UINT64_MAX);
    if (!profile.kernels.emplace(key, value).second) kernel.refuse("key", "given twice: \"" + key + "\"");
  }
  return profile;
}

Profile read_profile(const std::string& path) { return parse_profile(read_file(path), path); }

bool is_profile(const std::string& path) {
  try {
    (void)read_profile(path);
    return true;
  } catch (const UserError&) {
    return false;
  }
}

MeasuredCosts costs_of(std::shared_ptr<const Profile> profile) {
  MeasuredCosts costs;
  costs.micro_batch_seconds = profile->micro_batch_seconds;
  costs.disk = profile->disk;
  costs.host = profile->host;
  costs.stream_read_seconds = profile->stream_read_seconds;
  costs.wire = profile->wire;
  costs.call_seconds = [profile](const Graph& graph, const Call& call) {
    return profile->seconds(call_key(graph, call));
  };
  costs.row_seconds = [profile](const OwnedPlan& plan, const OwnedProgram& program, const Row& row) {
    const std::string key = row_key(plan, program, row);
    const bool is_part = plan.ranks > 1 && profile->kernels.count(key) == 0;
    const std::optional<double> part = is_part ? profile->seconds_of_part(key) : std::nullopt;
    return part ? *part : profile->seconds(key);
  };
  return costs;
}

std::string profile_mismatch(const Profile& profile, const std::string& kernel_set, uint64_t threads) {
  if (profile.kernel_set != kernel_set) {
    return profile.path + ": kernel_set: measured with \"" + profile.kernel_set + "\", this machine uses \"" +
           kernel_set + "\"; its times may be wrong here";
  }
  if (profile.threads != threads) {
    return profile.path + ": threads: measured with " + std::to_string(profile.threads) + ", this machine offers " +
           std::to_string(threads) + "; its times hold for training with --threads " + std::to_string(profile.threads);
  }
  return "";
}

}  // namespace reprise
