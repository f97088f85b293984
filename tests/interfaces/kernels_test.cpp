// Tests `reprise kernels`. Every kernel must have a synopsis that uses the names of its arguments.
// The scratch and stack bytes of a call must be those of the backends' rules.
#include <gtest/gtest.h>

#include <cctype>
#include <cstdlib>
#include <set>

#include "cuda/cuda_rules.h"
#include "lib/cpu/cpu_rules.h"
#include "lib/cpu/vector_level.h"
#include "tests/interfaces/command_line.h"
#include "tools/plan/audit/kernel_sizes.h"
#include "tools/plan/audit/kernels_text.h"

namespace reprise::test {
namespace {

constexpr size_t kLongest = 180;  // characters of a synopsis, which is one line
// The words that a synopsis may contain in addition to names: functions, and words between them.
const std::set<std::string> kWords = {"sum",    "mean",     "rstd",     "max",    "min",        "sqrt",      "exp",
                                      "log",    "sign",     "relu",     "gelu",   "silu",       "softmax",   "conv",
                                      "turn",   "rotation", "position", "draw",   "one_hot",    "of",        "over",
                                      "by",     "in",       "its",      "from",   "has",        "is",        "channel",
                                      "window", "head",     "tensor",   "row",    "causal",     "clipped",   "alike",
                                      "first",  "place",    "there",    "whose",  "places",     "may",       "overlap",
                                      "begins", "ended",    "kept",     "rms",    "orthogonal", "projected", "slope",
                                      "judged", "loss",     "or",       "capped", "and",        "columns",   "on",
                                      "tanh",   "which",    "box",      "side",   "dimensions", "resized",   "what",
                                      "it",     "not",      "rank"};

std::vector<std::string> tokens_of(const std::string& text) {
  std::vector<std::string> tokens;
  for (size_t i = 0; i < text.size();) {
    size_t end = i;
    while (end < text.size() &&
           (std::isalnum(static_cast<unsigned char>(text[end])) != 0 || text[end] == '_' || text[end] == '.'))
      ++end;
    while (end > i && text[end - 1] == '.') --end;
    if (end > i && std::isdigit(static_cast<unsigned char>(text[i])) == 0) tokens.push_back(text.substr(i, end - i));
    i = std::max(end, i + 1);
  }
  return tokens;
}

std::string without(std::string text, const std::string& part) {
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part)) text.replace(at, part.size(), " ");
  return text;
}

// Returns the names that a synopsis defines after "where": the names before each "=".
std::set<std::string> defined_in(const std::string& synopsis) {
  std::set<std::string> names;
  const size_t where = synopsis.find("where ");
  for (size_t equals = where == std::string::npos ? where : synopsis.find(" = ", where); equals != std::string::npos;
       equals = synopsis.find(" = ", equals + 1)) {
    size_t begin = equals;  // moves back over lists such as "a, b"
    while (begin > 0 &&
           (std::isalnum(static_cast<unsigned char>(synopsis[begin - 1])) != 0 || synopsis[begin - 1] == '_' ||
            synopsis.compare(begin - 2, 2, ", ") == 0 || synopsis[begin - 1] == ',')) {
      --begin;
    }
    for (const std::string& name : tokens_of(synopsis.substr(begin, equals - begin))) names.insert(name);
  }
  return names;
}

// Returns what is wrong with a kernel's synopsis; "" if nothing is wrong.
std::string complaint(const KernelInfo& kernel, const std::string& synopsis) {
  if (synopsis.empty() || synopsis.size() > kLongest || synopsis.find('\n') != std::string::npos)
    return "it is no line";
  std::string rest = without(synopsis, "^T");
  std::vector<std::string> missing;
  for (uint32_t i = 0; i < kernel.arity(); ++i) {
    const ArgumentInfo& argument = kernel.arguments[i];
    const std::string name = argument_text(argument).name;
    const bool silent = argument.optional || argument.role == Role::kScratch || argument.storage == Storage::kScalars;
    const std::vector<std::string> tokens = tokens_of(synopsis);
    const bool spaced = name.find(' ') != std::string::npos;
    const bool said = spaced ? synopsis.find(name) != std::string::npos
                             : std::find(tokens.begin(), tokens.end(), name) != tokens.end();
    if (!silent && !said) missing.push_back(name);
    if (spaced) rest = without(rest, name);
  }
  if (!missing.empty()) return "it does not name " + missing[0];
  std::set<std::string> known = defined_in(synopsis);
  for (const std::string& name : KernelSizes(kernel, {}).names()) known.insert(name);
  for (const std::string& name : KernelSizes(kernel, {}).fields()) known.insert("attribute." + name);
  bool has_scalars = false;
  for (uint32_t i = 0; i < kernel.arity(); ++i) {
    known.insert(argument_text(kernel.arguments[i]).name);
    has_scalars = has_scalars || kernel.arguments[i].storage == Storage::kScalars;
  }
  for (const char* name : {"gradient_norm", "clip_factor", "learning_rate", "loss_sum", "step_labelled"}) {
    if (has_scalars) known.insert(std::string("scalars.") + name);
  }
  for (const std::string& token : tokens_of(without(rest, "where "))) {
    if (known.count(token) == 0 && kWords.count(token) == 0)
      return "it says \"" + token + "\", which is none of its names";
  }
  return "";
}

class Kernels : public CommandLine {
 protected:
  json list(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "kernels");
    arguments.push_back("--json");
    const ProcessResult result = reprise_command(arguments);
    EXPECT_EQ(result.status, 0) << result.err;
    const json answer = json::parse(result.out, nullptr, false);
    EXPECT_TRUE(answer.is_array()) << result.out;
    return answer;
  }
  json one(const std::vector<std::string>& arguments) {
    const json answer = list(arguments);
    EXPECT_EQ(answer.size(), 1u);
    return answer.empty() ? json() : answer[0];
  }
};

TEST(Synopsis, SaysEveryKernelInItsOwnNames) {
  for (uint32_t i = 0; i < kKernelCount; ++i)
    EXPECT_EQ(complaint(kOps[i], kSynopses[i]), "") << kOps[i].name << ": " << kSynopses[i];
  const KernelInfo& linear = kernel_info(Op::kLinear, Pass::kForward);
  EXPECT_EQ(complaint(linear, "y = x w^T + b"), "");
  EXPECT_NE(complaint(linear, ""), "");
  EXPECT_NE(complaint(linear, "y = x w^T\n"), "");
  EXPECT_NE(complaint(linear, "y = x^T + b"), "") << "w is not named";
  EXPECT_NE(complaint(linear, "y = x W^T + b"), "") << "W is no argument";
  EXPECT_NE(complaint(linear, "y = x w^T + v"), "") << "v is defined nowhere";
  EXPECT_EQ(complaint(linear, "y = v; where v = x w^T"), "");
  EXPECT_NE(complaint(linear, "y = scalars.loss_sum x w^T"), "") << "it has no scalars";
}

TEST(Synopsis, StaysOutOfTheLibrary) {
  const std::string library = file_text(build_folder() + "/libreprise.a");
  ASSERT_NE(library.find("linear.forward"), std::string::npos) << "the table of kernels is there";
  ASSERT_NE(file_text(build_folder() + "/reprise").find(kSynopses[kKernelIndex<LinearForward>]), std::string::npos)
      << "a program that prints it holds it";
  for (uint32_t i = 0; i < kKernelCount; ++i) {
    const std::string synopsis = kSynopses[i];
    if (synopsis.size() <= 8) continue;  // "y = x" may be in any file
    EXPECT_EQ(library.find(synopsis), std::string::npos) << synopsis;
  }
}

TEST_F(Kernels, ListsEveryKernel) {
  const json answer = list({});
  ASSERT_EQ(answer.size(), kKernelCount);
  const ProcessResult text = reprise_command({"kernels"});
  EXPECT_EQ(text.status, 0) << text.err;
  for (uint32_t i = 0; i < kKernelCount; ++i) {
    EXPECT_EQ(answer[i]["name"], kOps[i].name);
    EXPECT_EQ(answer[i]["synopsis"], kSynopses[i]);
    EXPECT_EQ(answer[i]["arguments"].size(), kOps[i].arity());
    for (const json& argument : answer[i]["arguments"]) {
      for (const char* key : {"role", "storage"}) EXPECT_NE(argument[key], "") << kOps[i].name << ": " << argument;
    }
    EXPECT_NE(("\n" + text.out).find("\n" + std::string(kOps[i].name) + " "), std::string::npos) << kOps[i].name;
    EXPECT_NE(text.out.find(kSynopses[i]), std::string::npos);
    for (size_t backend = 0; backend < 4; ++backend) {
      const BackendRules* rules[] = {&kCpuRules, &kCudaRules, &kCudaLargeRules, &kCpuSmallRules};
      EXPECT_EQ(answer[i]["backends"][backend]["name"], rules[backend]->name);
      EXPECT_EQ(answer[i]["backends"][backend]["exists"], rules[backend]->kernels[i].exists) << kOps[i].name;
      EXPECT_TRUE(answer[i]["backends"][backend]["scratch_bytes"].is_null());
    }
  }
  EXPECT_EQ(list({"linear"}).size(), 4u);
}

TEST_F(Kernels, NamesTheLevelsOfProcessorsThatHaveThem) {
  const auto levels = [this](const char* kernel, size_t backend) {
    return one({kernel})["backends"][backend]["levels"];
  };
  for (const VectorLevel level :
       {VectorLevel::kBaseline, VectorLevel::kNeon, VectorLevel::kNeonBf16, VectorLevel::kAvx2, VectorLevel::kAvx512,
        VectorLevel::kAvx512Bf16, VectorLevel::kAvx512Amx}) {
    const std::string name = vector_level_name(level);
    const auto has = [&](const json& list) { return std::find(list.begin(), list.end(), name) != list.end(); };
    EXPECT_TRUE(has(levels("linear.forward", 0))) << name;
    EXPECT_EQ(has(levels("relu.forward", 0)), !has_products_of_bf16(level)) << name;
  }
  EXPECT_EQ(levels("linear.forward", 0).size(), 7u);
  EXPECT_EQ(levels("linear.forward", 1), json::array()) << "a card has none";
  EXPECT_NE(reprise_command({"kernels", "relu.forward"}).out.find("  cpu has it for baseline, neon, avx2, avx512\n"),
            std::string::npos);
}

TEST_F(Kernels, SaysAKernelsArguments) {
  const json kernel = one({"linear.forward"});
  EXPECT_EQ(kernel["attribute"], (json{"input_major", "scale"}));
  EXPECT_EQ(kernel["arguments"][2], (json{{"name", "w"},
                                          {"shapes", {"K,C", "C,K"}},
                                          {"role", "input"},
                                          {"storage", "weight"},
                                          {"types", kernel["arguments"][2]["types"]},
                                          {"optional", false},
                                          {"adds", false}}));
  EXPECT_EQ(kernel["arguments"][2]["types"][0], "f32");
  EXPECT_EQ(kernel["arguments"][6]["role"], "scratch");
  EXPECT_EQ(one({"relu.forward"})["in_place"], (json{"y", "x"}));
  EXPECT_TRUE(kernel["in_place"].is_null());
  const std::string page = reprise_command({"kernels", "linear.backward_weight"}).out;
  for (const char* words : {"linear.backward_weight\n", "dw = dy^T x", "dw[K,C] or [C,K]", "may be added to",
                            "may be absent", "attribute: input_major", "cpu, cuda"}) {
    EXPECT_NE(page.find(words), std::string::npos) << words << " in: " << page;
  }
}

// Returns a tensor of this shape. The test builds calls of such tensors and compares them with the
// command's calls.
Tensor shaped(std::initializer_list<uint32_t> shape, DType dtype = DType::kF32) {
  Tensor tensor{.dtype = dtype};
  for (const uint32_t dimension : shape) tensor.shape[tensor.rank++] = dimension;
  return tensor;
}

void expect_bytes(const json& kernel, const BackendRules& rules, size_t place,
                  const std::vector<const Tensor*>& tensors, const AttributePools& pools) {
  const KernelInfo* info = nullptr;
  for (const KernelInfo& each : kOps) info = kernel["name"] == each.name ? &each : info;
  KernelCall call{.op = info->op, .pass = info->pass, .attribute = 0, .accumulate = 0, .tensors = tensors};
  const ShapedKernelCall shaped_call(call, pools);
  EXPECT_EQ(info->shape_fault(shaped_call.shaped()), Fault::kNone);
  EXPECT_EQ(kernel["backends"][place]["scratch_bytes"], rules.scratch_bytes(shaped_call.shaped()))
      << kernel["name"] << " " << rules.name;
  EXPECT_EQ(kernel["backends"][place]["stack_bytes"], rules.stack_bytes(shaped_call.shaped()))
      << kernel["name"] << " " << rules.name;
}

TEST_F(Kernels, CountsScratchAndStackOfACall) {
  const Tensor x = shaped({64, 128}), w = shaped({10, 128}), y = shaped({64, 10}), b = shaped({10});
  AttributeTables tables;
  tables.intern(LinearAttribute{.input_major = 0});
  const std::vector<std::string> words = {"linear.forward", "M=64", "C=128", "K=10"};
  const json kernel = one(words);
  expect_bytes(kernel, kCpuRules, 0, {&y, &x, &w, &b, nullptr, nullptr}, tables.pools());
  expect_bytes(kernel, kCudaRules, 1, {&y, &x, &w, &b, nullptr, nullptr}, tables.pools());
  EXPECT_GT(kernel["backends"][0]["stack_bytes"], 0);

  const Tensor image = shaped({4, 32, 32, 3}, DType::kBf16), filter = shaped({16, 3, 3, 3}),
               map = shaped({4, 16, 16, 16}, DType::kBf16);
  AttributeTables windows;
  windows.intern(WindowAttribute{.kernel_h = 3, .kernel_w = 3, .stride_h = 2, .pad_top = 1});
  const json conv = one({"conv.forward", "N=4", "H=32", "W=32", "C=3", "K=16", "R=3", "S=3", "stride=2", "pad=1",
                         "--dtype", "bf16", "--without", "b", "--without", "mean of y", "--without", "rstd of y"});
  expect_bytes(conv, kCpuRules, 0, {&map, nullptr, nullptr, &image, &filter, nullptr}, windows.pools());
  expect_bytes(conv, kCudaLargeRules, 2, {&map, nullptr, nullptr, &image, &filter, nullptr}, windows.pools());
  EXPECT_GT(conv["backends"][0]["scratch_bytes"], 0);

  const json attention = one({"attention.backward", "B=2", "T=128", "C=64", "heads=4", "--without", "document_start"});
  const Tensor qkv = shaped({2, 128, 192}), out = shaped({2, 128, 64}), lse = shaped({2, 4, 128}),
               scalars = shaped({sizeof(StepScalars)}, DType::kU8);
  AttributeTables heads;
  heads.intern(AttentionAttribute{.heads = 4, .kv_heads = 4, .dropout = 0, .stream = 0});
  expect_bytes(attention, kCpuRules, 0, {&qkv, &qkv, &out, &lse, &out, nullptr, &scalars}, heads.pools());
  const std::string text = reprise_command({"kernels", "attention.backward", "B=2", "T=128", "C=64", "heads=4"}).out;
  EXPECT_NE(text.find("of scratch, "), std::string::npos) << text;
}

TEST(KernelPage, SaysHowEachBackendTakesWeights) {
  const uint32_t linear = kKernelIndex<LinearForward>, conv = kKernelIndex<ConvForward>;
  const std::vector<std::string> sizes = {"M=64", "C=128", "K=10"};
  for (const DType type : {DType::kF32, DType::kBf16, DType::kF16, DType::kQ8_0}) {
    const SizedCall call = KernelSizes(kOps[linear], sizes).call(DType::kF32, type, {});
    const json page = kernel_json(linear, &call);
    for (size_t backend = 0; backend < 4; ++backend) {
      const BackendRules* rules[] = {&kCpuRules, &kCudaRules, &kCudaLargeRules, &kCpuSmallRules};
      const bool takes = takes_weights(rules[backend]->kernels[linear].weights, type);
      const json& types = page["backends"][backend]["weights"];
      EXPECT_EQ(std::find(types.begin(), types.end(), dtype_info(type).name) != types.end(), takes)
          << rules[backend]->name << " " << dtype_info(type).name;
      EXPECT_EQ(page["backends"][backend]["stack_bytes"].is_null(), !takes);
    }
  }
  ASSERT_FALSE(takes_weights(kCpuRules.kernels[conv].weights, DType::kQ8_0));
  const SizedCall blocks =
      KernelSizes(kOps[conv], {"N=1", "H=8", "W=8", "C=32", "K=4", "R=3", "S=3"}).call(DType::kF32, DType::kQ8_0, {});
  EXPECT_TRUE(kernel_json(conv, &blocks)["backends"][0]["scratch_bytes"].is_null()) << "no convolution reads blocks";
  EXPECT_EQ(kernel_json(kKernelIndex<ReluForward>, nullptr)["backends"][0]["weights"], json::array());
  EXPECT_THROW((void)KernelSizes(kOps[linear], {"M=64", "C=100", "K=10"}).call(DType::kF32, DType::kQ8_0, {}),
               UserError)
      << "100 columns are no blocks";
}

// The command must report the sizes of every kernel that has scratch or needs more stack than one
// call frame.
TEST_F(Kernels, SizesOfEveryKernelWithScratch) {
  const std::map<std::string, std::string> defaults = {{"R", "3"}, {"S", "3"}, {"heads", "4"}, {"rotary", "8"},
                                                       {"tensors", "2"}, {"first_norm", "0"}, {"elements", "40000"}};
  for (uint32_t i = 0; i < kKernelCount; ++i) {
    const KernelInfo& kernel = kOps[i];
    const bool takes = kernel.arguments[kernel.arity() - 1].role == Role::kScratch ||
                       kCpuRules.kernels[i].stack_bytes != rules::no_bytes;
    if (!takes || !kCpuRules.kernels[i].exists) continue;
    std::vector<std::string> words;
    for (const std::string& name : KernelSizes(kernel, {}).names()) {
      const auto found = defaults.find(name);
      const bool letter = name.size() == 1 && std::isupper(static_cast<unsigned char>(name[0])) != 0;
      const bool follows =
          name == "P" || name == "Q" || (name == "W" && std::string(kernel.name).find("attention") == 0) || name == "D";
      const bool both = name == "P" && kernel.pass == Pass::kDecode;
      if (found != defaults.end()) words.push_back(name + "=" + found->second);
      if (found == defaults.end() && letter && (!follows || both)) words.push_back(name + "=32");
    }
    const SizedCall call = KernelSizes(kernel, words).call(DType::kF32, DType::kF32, {});
    EXPECT_GT(kernel_json(i, &call)["backends"][0]["stack_bytes"], 0) << kernel.name;
  }
}

TEST_F(Kernels, RefusesWithTheNearestNames) {
  expect_refusal({"kernels", "linear.forwrd"}, 2, {"linear.forwrd", "\"linear.forward\""});
  expect_refusal({"kernels", "norm"}, 2, {"\"norm_conv\"", "nearest"});
  expect_refusal({"kernels", "linear", "M=4"}, 2, {"one kernel"});
  expect_refusal({"kernels", "linear.forward", "M=4"}, 2, {"linear.forward", "is not given"});
  expect_refusal({"kernels", "linear.forward", "Z=4"}, 2, {"\"Z\"", "M, K, C"});
  expect_refusal({"kernels", "linear.forward", "M=4", "M=5"}, 2, {"M", "twice"});
  expect_refusal({"kernels", "linear.forward", "M"}, 2, {"M=64"});
  for (const char* bad : {"M=", "M=x", "M=-1", "M=1e999", "M=0", "M=1.5", "M=4294967296"}) {
    expect_refusal({"kernels", "linear.forward", bad, "C=1", "K=1"}, 2, {"M"});
  }
  expect_refusal({"kernels", "linear.forward", "M=1", "C=1", "K=1", "--dtype", "i32"}, 2,
                 {"--dtype", "\"f32\" or \"bf16\""});
  expect_refusal({"kernels", "linear.forward", "M=1", "C=1", "K=1", "--without", "x"}, 2, {"--without", "\"b\""});
  expect_refusal({"kernels", "linear.forward", "--dtype", "bf16"}, 2, {"SIZE"});
  expect_refusal({"kernels", "attention.forward", "B=1", "T=4", "C=10", "heads=4"}, 2, {"attention.forward"});
  expect_refusal({"kernels", "conv.forward", "N=1", "H=8", "W=8", "C=3", "K=4", "R=3", "S=3", "stride=0"}, 2,
                 {"conv.forward"});
  expect_refusal({"kernels", "conv.forward", "N=1", "H=8", "W=8", "C=3", "K=4", "R=3", "S=3", "pad=70000"}, 2, {"pad"});
  expect_refusal({"kernels", "sgd.update", "momentum=0.9"}, 2, {"group"});
}

}  // namespace
}  // namespace reprise::test
