// See rope_parameters.h.
#include "tools/plan/models/rope_parameters.h"

#include <algorithm>
#include <cmath>

#include "tools/files/formats/json_fields.h"

namespace reprise {
namespace {

using nlohmann::json;
using Type = RopeParameters::Type;

constexpr Word<Type> kTypes[] = {{"default", Type::kDefault},   {"linear", Type::kLinear},
                                 {"dynamic", Type::kDynamic},   {"yarn", Type::kYarn},
                                 {"longrope", Type::kLongrope}, {"llama3", Type::kLlama3},
                                 {"divisors", Type::kDivisors}};

const char* const kFull = "full_attention";
const char* const kSliding = "sliding_attention";

constexpr FieldRange kFromOne = {1, 1e12, false, false};

void read_longrope(const JsonFields& fields, RopeParameters& rope) {
  fields.read("short_factor", rope.short_factor, kPositive,
              {"longrope: the divisor of each pair of channels, for texts up to the original length"});
  fields.read("long_factor", rope.long_factor, kPositive, {"longrope: the same for longer texts"});
  if (rope.type != Type::kLongrope) return;
  fields.require("short_factor", "longrope needs it: a list of divisors");
  fields.require("long_factor", "longrope needs it: a list of divisors");
}

void read_yarn(const JsonFields& fields, RopeParameters& rope) {
  fields.read("beta_fast", rope.beta_fast, kPositive,
              {"yarn: turns within the original length above which a pair keeps its frequency"});
  fields.read("beta_slow", rope.beta_slow, kPositive,
              {"yarn: turns below which its frequency is divided by the factor"});
  fields.read("mscale", rope.mscale, kNonNegative, {"yarn: weighs the attention factor", "", "not given"});
  fields.read("mscale_all_dim", rope.mscale_all_dim, kNonNegative,
              {"yarn: the same, by which is divided", "", "not given"});
  fields.read("truncate", rope.truncate, {"yarn: whether the borders between pairs are whole numbers"});
}

// Reads the fields of "rope_parameters" or "rope_scaling". `rope` has the values that the config
// states outside of these objects.
RopeParameters read_inner(const JsonFields& fields, RopeParameters rope) {
  if (fields.has_value("type") && fields.has_value("rope_type") && fields.at("type") != fields.at("rope_type")) {
    fields.refuse("type",
                  "contradicts \"rope_type\", its newer name; transformers 4 and 5 read two models: leave it out");
  }
  for (const char* type : {kFull, kSliding}) {
    if (fields.has(type)) fields.refuse(type, "is not available: parameters of its own for each type of layer");
  }
  if (!fields.has("rope_type")) fields.read_choice("type", rope.type, kTypes, {"The older name of rope_type"});
  fields.read_choice("rope_type", rope.type, kTypes, {"How the frequencies of rotary positions are scaled"});
  fields.read("rope_theta", rope.theta, kFromOne, {"The base of the frequencies"});
  fields.read("partial_rotary_factor", rope.partial, kPositive,
              {"The share of a head's channels that turn; at most 1"});
  fields.read("factor", rope.factor, kPositive, {"How many times longer texts may be", "", "not given"});
  fields.read("original_max_position_embeddings", rope.original, 0, kMaxCount,
              {"The length that the model was first trained with", "tokens", "max_position_embeddings"});
  fields.read("attention_factor", rope.attention_factor, kPositive,
              {"yarn, longrope: on q and k alike", "", "what their papers say"});
  read_yarn(fields, rope);
  fields.read("low_freq_factor", rope.low_freq_factor, kPositive,
              {"llama3: turns within the original length below which a frequency is divided"});
  fields.read("high_freq_factor", rope.high_freq_factor, kPositive, {"llama3: turns above which it is kept"});
  read_longrope(fields, rope);
  fields.read("divisors", rope.divisors, kPositive, {"divisors: of each pair's frequency, as a GGUF file has them"});
  const bool needs_factor = rope.type == Type::kLinear || rope.type == Type::kDynamic || rope.type == Type::kYarn ||
                            rope.type == Type::kLlama3;
  if (needs_factor && !rope.factor)
    fields.refuse("factor", std::string("missing; \"") + word_of(kTypes, rope.type) + "\" needs it");
  if (rope.type == Type::kLlama3 && rope.high_freq_factor <= rope.low_freq_factor) {
    fields.refuse("high_freq_factor", "must be above low_freq_factor");
  }
  if (rope.partial > 1) fields.refuse("partial_rotary_factor", "must be at most 1");
  return rope;
}

// ---- the formulas; every intermediate is rounded to f32 where transformers has a tensor ----

float power(double base, float exponent) {
  return static_cast<float>(std::pow(double{static_cast<float>(base)}, double{exponent}));
}

// Returns base^(2i / channels) of each pair i.
std::vector<float> wavelengths(double base, int channels) {
  std::vector<float> all(static_cast<size_t>(channels / 2));
  for (size_t i = 0; i < all.size(); ++i)
    all[i] = power(base, static_cast<float>(2 * i) / static_cast<float>(channels));
  return all;
}

std::vector<float> inverted(std::vector<float> all) {
  for (float& x : all) x = 1.0f / x;
  return all;
}

std::vector<float> llama3_frequencies(const RopeParameters& rope, int channels, double original) {
  const float factor = static_cast<float>(*rope.factor), low = static_cast<float>(rope.low_freq_factor),
              high = static_cast<float>(rope.high_freq_factor);
  const float low_wave = static_cast<float>(original / rope.low_freq_factor),
              high_wave = static_cast<float>(original / rope.high_freq_factor);
  std::vector<float> all = inverted(wavelengths(rope.theta, channels));
  for (float& frequency : all) {
    const float wave = static_cast<float>(2 * M_PI) / frequency;
    if (wave > low_wave) {
      frequency = frequency / factor;
    } else if (!(wave < high_wave)) {
      const float smooth = (static_cast<float>(original) / wave - low) / (high - low);
      const float shrunk = (1.0f - smooth) * frequency / factor, kept = smooth * frequency;
      frequency = shrunk + kept;
    }
  }
  return all;
}

std::vector<float> yarn_frequencies(const RopeParameters& rope, double factor, int channels, double original) {
  const auto channel_of = [&](double turns) {
    return channels * std::log(original / (turns * 2 * M_PI)) / (2 * std::log(rope.theta));
  };
  double low = channel_of(rope.beta_fast), high = channel_of(rope.beta_slow);
  if (rope.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, double(channels - 1));
  if (low == high) high += 0.001;
  std::vector<float> all = wavelengths(rope.theta, channels);
  for (size_t i = 0; i < all.size(); ++i) {
    const float ramp =
        std::clamp((static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low), 0.0f, 1.0f);
    const float kept = 1.0f - ramp;
    const float shrunk_part = 1.0f / (static_cast<float>(factor) * all[i]) * (1.0f - kept),
                kept_part = 1.0f / all[i] * kept;
    all[i] = shrunk_part + kept_part;
  }
  return all;
}

double yarn_scale(const RopeParameters& rope, double factor) {
  const auto scale = [factor](double weight) { return factor <= 1 ? 1.0 : 0.1 * weight * std::log(factor) + 1.0; };
  if (rope.attention_factor) return *rope.attention_factor;
  return rope.mscale != 0 && rope.mscale_all_dim != 0 ? scale(rope.mscale) / scale(rope.mscale_all_dim) : scale(1);
}

double longrope_scale(const RopeParameters& rope, double factor, double original) {
  if (rope.attention_factor) return *rope.attention_factor;
  return factor <= 1 ? 1.0 : std::sqrt(1 + std::log(factor) / std::log(original));
}

std::vector<float> divided(std::vector<float> waves, const std::vector<double>& divisors) {
  for (size_t i = 0; i < waves.size(); ++i) waves[i] = static_cast<float>(divisors[i]) * waves[i];
  return inverted(std::move(waves));
}

}  // namespace

namespace {

// Refuses a field that differs in the config and in its "rope_parameters": transformers 4 reads the
// first, transformers 5 the second.
void require_one_value(const JsonFields& config, const char* key, double outside, double inside) {
  if (!config.has_value(key) || outside == inside) return;
  config.refuse(key, json(outside).dump() + " contradicts the " + json(inside).dump() +
                         " of rope_parameters or rope_scaling; transformers 4 and 5 would read two models");
}

}  // namespace

namespace {

// Refuses an older config in which transformers 4 and 5 would read a value from different keys.
// `has_newer`: the config has "rope_parameters".
void require_one_reading(const JsonFields& config, const RopeParameters& rope, bool has_newer) {
  const bool inside = !has_newer && config.has_value("rope_scaling"),
             outside = config.has_value("original_max_position_embeddings");
  const JsonFields fields = config.object(has_newer ? "rope_parameters" : "rope_scaling");
  if (inside && fields.has_value("rope_theta") && !config.has_value("rope_theta")) {
    fields.refuse("rope_theta",
                  "must stand beside rope_scaling, not in it: transformers 4 and 5 would read two models");
  }
  const bool says_original = fields.has_value("original_max_position_embeddings");
  // Both versions take max_position_embeddings if the field is missing.
  const bool is_longest =
      config.has_value("max_position_embeddings") && config.at("max_position_embeddings") == rope.original;
  if (rope.type == Type::kLongrope && inside && says_original && !outside && !is_longest) {
    fields.refuse("original_max_position_embeddings",
                  "must stand beside rope_scaling too, where transformers 4 looks for longrope's");
  }
  if (rope.type == Type::kLongrope && outside && rope.factor && !rope.attention_factor &&
      config.has_value("max_position_embeddings")) {
    const double longer = config.at("max_position_embeddings").get<double>() / rope.original;
    if (std::abs(*rope.factor - longer) > 1e-6 * longer) {
      fields.refuse("factor", "must be max_position_embeddings / original_max_position_embeddings, " +
                                  json(longer).dump() + ", which transformers 4 takes for it");
    }
  }
  const bool inner_alone = rope.type == Type::kYarn || rope.type == Type::kLlama3;
  if (inner_alone && outside && !says_original && !is_longest) {
    config.refuse("original_max_position_embeddings",
                  "must stand in rope_parameters or rope_scaling too: transformers 4 looks for it there alone");
  }
}

}  // namespace

RopeParameters RopeParameters::read(const JsonFields& config, double default_theta) {
  RopeParameters outside;
  outside.theta = default_theta;
  config.read("rope_theta", outside.theta, kFromOne,
              {"The base of the frequencies of rotary positions; older than rope_parameters"});
  config.read("partial_rotary_factor", outside.partial, kPositive,
              {"The share of a head's channels that turn; older than rope_parameters"});
  config.read("original_max_position_embeddings", outside.original, 0, kMaxCount,
              {"The length that the model was first trained with; older than rope_parameters", "tokens",
               "max_position_embeddings"});
  std::vector<RopeParameters> inside;
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const KeyText text = {key == std::string("rope_scaling") ? "The older name of rope_parameters"
                                                             : "How rotary positions are scaled",
                          "", "none"};
    if (!config.has_value(key)) {
      config.note(key, object_form, [] { return json(); }, text);
      continue;
    }
    const RopeParameters& rope = inside.emplace_back(read_inner(config.object(key, text), outside));
    require_one_value(config, "rope_theta", outside.theta, rope.theta);
    require_one_value(config, "partial_rotary_factor", outside.partial, rope.partial);
    require_one_value(config, "original_max_position_embeddings", outside.original, rope.original);
  }
  if (inside.size() == 2 && !(inside[0] == inside[1])) {
    config.refuse("rope_scaling",
                  "contradicts \"rope_parameters\"; transformers 4 reads the one and 5 the other: leave one out");
  }
  if (inside.empty()) return outside;
  require_one_reading(config, inside[0], config.has_value("rope_parameters"));
  return inside[0];
}

RopeParameters RopeParameters::read_two(const JsonFields& config, double theta, double local_theta,
                                        RopeParameters& local) {
  local = {};
  local.theta = local_theta;
  config.read("rope_local_base_freq", local.theta, kFromOne,
              {"The base of the frequencies of blocks with a window; older than rope_parameters"});
  const json given = config.has_value("rope_parameters") ? config.at("rope_parameters") : json();
  if (!given.is_object() || !(given.contains(kFull) || given.contains(kSliding))) return read(config, theta);
  RopeParameters outside;
  outside.theta = theta;
  const JsonFields both =
      config.object("rope_parameters", {"How rotary positions are scaled, for each type of layer", "", "none"});
  const auto of_type = [&both](const char* type, const char* meaning, const RopeParameters& otherwise) {
    return both.has_value(type) ? read_inner(both.object(type, {meaning, "", "none"}), otherwise) : otherwise;
  };
  const RopeParameters rope = of_type(kFull, "Of blocks that see all before them", outside),
                       inner = of_type(kSliding, "Of blocks with a window", local);
  config.read("rope_theta", outside.theta, kFromOne,
              {"The base of the frequencies of rotary positions; older than rope_parameters"});
  require_one_value(config, "rope_theta", outside.theta, rope.theta);
  require_one_value(config, "rope_local_base_freq", local.theta, inner.theta);
  if (config.has_value("rope_scaling") && !(read_inner(config.object("rope_scaling"), outside) == rope)) {
    config.refuse("rope_scaling",
                  "contradicts \"rope_parameters\"; transformers 4 reads the one and 5 the other: leave one out");
  }
  local = inner;
  return rope;
}

json RopeParameters::write() const {
  json value = {{"rope_type", word_of(kTypes, type)}, {"rope_theta", theta}};
  if (partial != 1) value["partial_rotary_factor"] = partial;
  if (factor) value["factor"] = *factor;
  if (original != 0) value["original_max_position_embeddings"] = original;
  if (attention_factor) value["attention_factor"] = *attention_factor;
  if (type == Type::kYarn) {
    value.update({{"beta_fast", beta_fast}, {"beta_slow", beta_slow}, {"truncate", truncate}});
    if (mscale != 0) value["mscale"] = mscale;
    if (mscale_all_dim != 0) value["mscale_all_dim"] = mscale_all_dim;
  }
  if (type == Type::kLlama3)
    value.update({{"low_freq_factor", low_freq_factor}, {"high_freq_factor", high_freq_factor}});
  if (type == Type::kLongrope) value.update({{"short_factor", short_factor}, {"long_factor", long_factor}});
  if (type == Type::kDivisors) value["divisors"] = divisors;
  return value;
}

namespace {

// Adds the fields that transformers 4 reads to a config whose "rope_parameters" has an object for
// each type of layer. Only transformers 5 reads such objects.
void write_two_for_transformers(json& config) {
  const json &both = config["rope_parameters"], &local = both[kSliding];
  json rope = both[kFull];
  config["rope_theta"] = rope["rope_theta"];
  config["rope_local_base_freq"] = local["rope_theta"];
  rope.erase("rope_theta");
  config["rope_scaling"] = rope["rope_type"] == "default" ? json() : rope;
}

}  // namespace

namespace {

// A pair of channels whose divisor is between 1 and the factor. `turns`: rotations from one token
// to the next. `smooth`: the weight of the undivided frequency in llama3's blend, from 0 for the
// longest waves to 1 for the shortest.
struct Between {
  double turns, smooth;
};

bool gives_divisors(const RopeParameters& llama3, const std::vector<double>& divisors) {
  const int channels = static_cast<int>(2 * divisors.size());
  const std::vector<float> plain = inverted(wavelengths(llama3.theta, channels)),
                           scaled = llama3_frequencies(llama3, channels, llama3.original);
  for (size_t i = 0; i < divisors.size(); ++i) {
    if (std::abs(plain[i] / static_cast<double>(scaled[i]) / divisors[i] - 1) > 1e-5) return false;
  }
  return true;
}

// Returns the parameters of the straight line smooth = (original * turns - low) / (high - low)
// through these pairs. With a single pair, high is 4, as in Meta's models. Otherwise the line
// determines original and high for low = 1. If the file states `original` and high is not 4, all
// three are scaled to this `original`.
RopeParameters with_line(RopeParameters llama3, const std::vector<Between>& pairs) {
  const Between &first = pairs.front(), &last = pairs.back();
  double original = (3 * first.smooth + 1) / first.turns, high = 4;
  if (pairs.size() > 1) {
    const double slope = (first.smooth - last.smooth) / (first.turns - last.turns),
                 offset = slope * first.turns - first.smooth;
    original = slope / offset;
    high = 1 + 1 / offset;
  }
  const double unit = llama3.original > 0 && std::abs(high - 4) > 1e-3 ? llama3.original / original : 1;
  const auto rounded = [](double number) {
    return std::abs(number - std::round(number)) < 1e-3 ? std::round(number) : number;
  };
  llama3.original = static_cast<int>(std::min(std::round(unit * original), double{kMaxCount}));
  llama3.low_freq_factor = rounded(unit);
  llama3.high_freq_factor = rounded(unit * high);
  return llama3;
}

}  // namespace

namespace {

double rounded_where_near(double number) {
  return std::abs(number - std::round(number)) < 1e-5 * number ? std::round(number) : number;
}

// Returns the pairs whose divisors are between 1 and this factor.
std::vector<Between> pairs_between(const RopeParameters& rope, double factor) {
  const std::vector<float> frequencies = inverted(wavelengths(rope.theta, static_cast<int>(2 * rope.divisors.size())));
  std::vector<Between> pairs;
  for (size_t i = 0; i < rope.divisors.size(); ++i) {
    const double divisor = rope.divisors[i];
    if (divisor <= 1 + 1e-6 || divisor >= factor * (1 - 1e-6)) continue;
    pairs.push_back({static_cast<double>(frequencies[i]) / (2 * M_PI), (1 / divisor - 1 / factor) / (1 - 1 / factor)});
  }
  return pairs;
}

// Returns factors from which the divisors may have been made: 8 and 32, which Meta's models use,
// and the largest divisor. If no wave is long enough to be divided by the complete factor, the
// largest divisor is smaller than the factor. So with several pairs, also returns the factor that
// fits the frequency factors 1 and 4.
std::vector<double> likely_factors(const RopeParameters& rope) {
  const double largest = *std::max_element(rope.divisors.begin(), rope.divisors.end());
  std::vector<double> factors = {8, 32, rounded_where_near(largest)};
  if (const std::vector<Between> pairs = pairs_between(rope, HUGE_VAL); pairs.size() > 1) {
    const double slope = (pairs.front().smooth - pairs.back().smooth) / (pairs.front().turns - pairs.back().turns);
    factors.push_back(rounded_where_near(4 / (3 * (pairs.back().smooth - slope * pairs.back().turns) + 1)));
  }
  std::erase_if(factors, [&](double factor) {
    return !(factor > 1) || !std::isfinite(factor) || factor < largest * (1 - 1e-5);
  });
  return factors;
}

}  // namespace

std::optional<RopeParameters> llama3_of_divisors(const RopeParameters& rope) {
  if (rope.type != Type::kDivisors || rope.partial != 1 || rope.divisors.empty()) return std::nullopt;
  RopeParameters llama3 = rope;
  llama3.type = Type::kLlama3;
  llama3.divisors.clear();
  // the first parameters found that give the divisors, with other frequency factors than Meta's
  std::optional<RopeParameters> other;
  for (const double factor : likely_factors(rope)) {
    llama3.factor = factor;
    std::vector<RopeParameters> tried;
    const std::vector<Between> pairs = pairs_between(rope, factor);
    if (!pairs.empty()) tried.push_back(with_line(llama3, pairs));
    for (int original = 1 << 8; pairs.empty() && original <= 1 << 24; original *= 2) {
      tried.push_back(llama3);
      tried.back().original = rope.original != 0 ? rope.original : original;
    }
    for (const RopeParameters& each : tried) {
      if (each.original <= 0 || each.high_freq_factor <= each.low_freq_factor || !gives_divisors(each, rope.divisors))
        continue;
      if (each.low_freq_factor == 1 && each.high_freq_factor == 4) return each;
      if (!other) other = each;
    }
  }
  return other;
}

void write_rope_for_transformers(json& config) {
  if (config["rope_parameters"].contains(kFull)) return write_two_for_transformers(config);
  RopeParameters read = RopeParameters::read(JsonFields(config, {"config.json"}, ""), 10000);
  if (const auto llama3 = llama3_of_divisors(read)) read = *llama3;
  const int longest = config.at("max_position_embeddings");
  json rope = read.write();
  if (read.type == Type::kDivisors) {
    rope.update({{"rope_type", "longrope"},
                 {"short_factor", read.divisors},
                 {"long_factor", read.divisors},
                 {"attention_factor", 1.0}});
    rope.erase("divisors");
  }
  const bool is_long = rope["rope_type"] == "longrope";
  if (is_long || read.type == Type::kYarn || read.type == Type::kLlama3)
    rope.emplace("original_max_position_embeddings", longest);
  if (is_long) {
    const double original = rope["original_max_position_embeddings"];
    rope.emplace("attention_factor", longrope_scale(read, read.factor.value_or(longest / original), original));
    // Transformers 4 looks for the original length here.
    if (read.original != 0) config["original_max_position_embeddings"] = read.original;
  }
  config["rope_parameters"] = rope;
  config["rope_theta"] = read.theta;
  if (read.partial != 1) config["partial_rotary_factor"] = read.partial;
  rope.erase("rope_theta");
  rope.erase("partial_rotary_factor");
  config["rope_scaling"] = read.type == Type::kDefault ? json() : rope;
}

namespace {

bool takes_long_factor(const RopeParameters& rope, int longest, int sequence) {
  return sequence > (rope.original != 0 ? rope.original : longest);
}

}  // namespace

std::string longrope_text(const RopeParameters& rope, int longest, int sequence) {
  if (rope.type != Type::kLongrope || rope.short_factor == rope.long_factor) return "";
  const std::string original = std::to_string(rope.original != 0 ? rope.original : longest),
                    length = std::to_string(sequence);
  if (!takes_long_factor(rope, longest, sequence)) {
    return "short_factor, as the sequence of " + length + " is within original_max_position_embeddings, " + original +
           "; transformers takes long_factor for longer texts";
  }
  return "long_factor for samples of every length, as the sequence of " + length +
         " is above original_max_position_embeddings, " + original +
         "; transformers takes short_factor for texts of up to " + original +
         " tokens: to train those, plan with a \"sequence\" of at most " + original;
}

int rotary_channels(const RopeParameters& rope, int head) { return static_cast<int>(head * rope.partial) / 2 * 2; }

RopeTable rope_table(const RopeParameters& rope, int head, int longest, int sequence) {
  const int channels = rotary_channels(rope, head);
  const double original = rope.original != 0 ? rope.original : longest;
  const double factor = rope.factor.value_or(longest / original);
  switch (rope.type) {
    case Type::kDefault: break;
    case Type::kLinear: {
      RopeTable table = {inverted(wavelengths(rope.theta, channels)), 1};
      for (float& frequency : table.frequencies) frequency /= static_cast<float>(factor);
      return table;
    }
    case Type::kDynamic: {
      const double stretch = factor * std::max(sequence, longest) / longest - (factor - 1);
      return {inverted(wavelengths(rope.theta * std::pow(stretch, channels / double(channels - 2)), channels)), 1};
    }
    case Type::kYarn:
      return {yarn_frequencies(rope, factor, channels, original), static_cast<float>(yarn_scale(rope, factor))};
    case Type::kLongrope:
      return {divided(wavelengths(rope.theta, channels),
                      takes_long_factor(rope, longest, sequence) ? rope.long_factor : rope.short_factor),
              static_cast<float>(longrope_scale(rope, factor, original))};
    case Type::kLlama3: return {llama3_frequencies(rope, channels, original), 1};
    case Type::kDivisors: return {divided(wavelengths(rope.theta, channels), rope.divisors), 1};
  }
  return {inverted(wavelengths(rope.theta, channels)), 1};
}

}  // namespace reprise
