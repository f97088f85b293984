// Compares check() with the checker for auditors, tools/check_plan.c. That program was written from
// lib/PLAN.md and shares no code with check(). Both must give the same verdict on plans of many
// recipes, on mutants of these plans, and on plans with changed bytes.
//
// check_plan.c does not know what a kernel does with its arguments. So it may accept a plan that
// check() refuses by the shape contract of a kernel or by the backend's rules: its scratch, its
// stack, the formats of its matrices. For such a plan the test asks the kernel's contract itself.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>

#include "lib/check.h"
#include "lib/cpu/cpu_rules.h"
#include "tests/interfaces/expect_user_error.h"
#include "tests/interfaces/soak.h"
#include "tests/judges/directed_mutants.h"
#include "tests/judges/mutants.h"
#include "tests/judges/sample_plans.h"
#include "tests/runtime/llama_network.h"
#include "tests/runtime/programs/process.h"
#include "tests/runtime/training_harness.h"
#include "tools/files/formats/checksum.h"
#include "tools/files/io/error.h"
#include "tools/plan/audit/manifest.h"
#include "tools/plan/writing/plan_file.h"

namespace reprise::testing {
namespace {

constexpr char kSource[] = "tools/check_plan.c";
// Trials of the suite; `make soak` with SOAK=100 makes a million of mutants and of changed files.
constexpr int kSeeds = 2, kChangedFiles = 10000;

using CheckPlanBytes = int (*)(const unsigned char*, size_t, const char*, size_t, void (*)(void*, const char*), void*);

// The C file, compiled with cc as a program and as a shared object.
class SecondChecker {
 public:
  SecondChecker() {
    if (!compiles({"-o", program()}) || !compiles({"-fPIC", "-shared", "-o", folder_.file("check_plan.so")})) return;
    void* const library = dlopen(folder_.file("check_plan.so").c_str(), RTLD_NOW);
    if (library != nullptr) check_ = reinterpret_cast<CheckPlanBytes>(dlsym(library, "check_plan_bytes"));
  }

  bool is_compiled() const { return check_ != nullptr; }
  const TemporaryFolder& folder() const { return folder_; }
  std::string program() const { return folder_.file("check_plan"); }
  // Returns true if all plans of the file are safe. Sets line() to the last line.
  bool accepts(const std::string& file, const std::string* manifest = nullptr) {
    line_.clear();
    const auto keep = [](void* line, const char* text) { *static_cast<std::string*>(line) = text; };
    return check_(reinterpret_cast<const unsigned char*>(file.data()), file.size(),
                  manifest == nullptr ? nullptr : manifest->data(), manifest == nullptr ? 0 : manifest->size(), keep,
                  &line_) == 0;
  }
  const std::string& line() const { return line_; }

 private:
  bool compiles(const std::vector<std::string>& output) const {
    std::vector<std::string> words = {"cc", "-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-O2", kSource};
    words.insert(words.end(), output.begin(), output.end());
    const test::ProcessResult result = test::run(words);
    EXPECT_EQ(result.status, 0) << result.err;
    return result.status == 0;
  }

  const TemporaryFolder folder_;
  CheckPlanBytes check_ = nullptr;
  std::string line_;
};

SecondChecker& second() {
  static SecondChecker checker;
  return checker;
}

constexpr char kRecipe[] = "{\"name\": \"of nothing\"}\n";

std::string file_of(const OwnedPlan& plan) {
  FiledPlan filed{plan, kRecipe, "", "0123456789abcdef"};
  filed.plan.recipe_hash = text_hash(kRecipe);
  return plan_file({filed});
}

Verdict verdict_of(const OwnedPlan& owned, const BackendRules& rules) {
  const Plan plan = owned.view();
  std::vector<CheckMark> marks(check_marks(plan));
  return check(plan, marks.data(), rules);
}

// True if `verdict` is a rule that only the kernel's code can judge: its shape contract, or what
// the backend requires for the call.
bool is_of_kernel(const OwnedPlan& owned, const Verdict& verdict, const BackendRules& rules) {
  if (verdict.fault == Fault::kScratch || verdict.fault == Fault::kStack) return true;
  if (verdict.program >= kProgramCount) return false;
  const Plan plan = owned.view();
  const Program& program = plan.programs[verdict.program];
  if (verdict.row >= program.rows.count) return false;
  const Row& row = program.rows[verdict.row];
  const KernelInfo& kernel = kernel_info(row.op, row.pass);
  const Tensor* tensors[kMaxArguments] = {};
  uint32_t present = 0;
  bool is_plain = true;
  for (uint32_t i = 0; i < kernel.arity(); ++i) {
    const Ref ref = program.arguments[row.first_argument + i];
    if (ref == kNoRef && !kernel.arguments[i].optional) return false;
    if (ref == kNoRef) continue;
    tensors[i] = &tensor_of(plan, program, ref);
    present |= 1u << i;
    is_plain = is_plain && (kernel.arguments[i].storage != Storage::kWeight ||
                            takes_weights(rules.kernels[kernel_index(row.op, row.pass)].weights, tensors[i]->dtype));
  }
  const AttributePools pools = owned.attributes.pools();
  const ShapedCall call = {row.op, row.pass, tensors, present, &pools, row.attribute};
  return (verdict.fault == Fault::kDType && !is_plain) || kernel.shape_fault(call) == verdict.fault;
}

// Numbers of plans on which the checkers agreed; `of_kernels`: of which only the kernels can judge.
struct Tally {
  uint64_t safe = 0, unsafe = 0, of_kernels = 0, disagreed = 0;
};

// Requires that both checkers agree on the plan.
void compare(const OwnedPlan& plan, const std::string& file, const BackendRules& rules, const std::string& what,
             Tally& tally) {
  const Verdict verdict = verdict_of(plan, rules);
  const bool accepted = second().accepts(file);
  if (verdict.ok() == accepted) {
    ++(accepted ? tally.safe : tally.unsafe);
    return;
  }
  if (!verdict.ok() && is_of_kernel(plan, verdict, rules)) {
    ++tally.of_kernels;
    return;
  }
  ++tally.disagreed;
  if (tally.disagreed > 40) return;
  ADD_FAILURE() << what << "\ncheck: " << fault_text(verdict.fault) << " (fault " << static_cast<int>(verdict.fault)
                << ", program " << verdict.program << " row " << verdict.row << " slot " << verdict.slot
                << ")\nsecond checker: " << second().line();
}

struct Sample {
  std::string name;
  OwnedPlan plan;
  const BackendRules* rules;
};

// Plans made by hand, and plans of recipes with all that a recipe can ask of a plan's memory.
const std::vector<Sample>& samples() {
  static const std::vector<Sample> made = [] {
    std::vector<Sample> list = {{"conv net", SampleConvNet().make(), &kSampleRules},
                                {"transformer", SampleTransformer().make(), &kSampleRules},
                                {"released", SampleReleased().make(), &kSampleRules}};
    const auto gpt = [](const std::string& size, const std::string& rest) {
      return R"({"name": "some-gpt", "model": {"family": "gpt2", "n_positions": 16, "n_head": 2, "resid_pdrop": 0,
                 "embd_pdrop": 0, "attn_pdrop": 0.1, )" +
             size + R"(}, "batch": 2, "sequence": 5, )" + rest + "}";
    };
    const std::string wide = R"("vocab_size": 40, "n_embd": 32, "n_layer": 3, "tie_word_embeddings": false)",
                      widest = R"("vocab_size": 1200, "n_embd": 72, "n_layer": 2)",
                      sgd = R"("optimizer": {"name": "sgd", "lr": 0.1})", thrice = R"(, "accumulate": 3)";
    const std::string llama = R"({"name": "decoder", "model": {"family": "mistral", "vocab_size": 31,
        "hidden_size": 16, "intermediate_size": 20, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 32, "sliding_window": 5},
        "batch": 2, "sequence": 11, "optimizer": {"name": "adamw"}, "accumulate": 3})";
    const std::pair<const char*, std::string> recipes[] = {
        {"resnet", resnet_recipe()},
        {"resnet released", resnet_recipe(R"(, "gradient_release": true)")},
        {"resnet of three ranks, clipped",
         resnet_recipe(R"(, "accumulate": 2, "clip_norm": 1.0, "parallel": {"ranks": 3})")},
        {"resnet of two ranks in two levels",
         resnet_recipe(R"(, "accumulate": 2, "parallel": {"ranks": 2, "order": "two-level"})")},
        {"resnet of three ranks that own momenta",
         resnet_recipe(R"(, "clip_norm": 1.0, "parallel": {"ranks": 3, "shard_optimizer": true})")},
        {"gpt of two ranks in two levels, thrice",
         gpt_recipe(thrice + R"(, "parallel": {"ranks": 2, "order": "two-level"})")},
        {"gpt of three ranks that own moments of matrices",
         gpt(wide, R"("parallel": {"ranks": 3, "shard_optimizer": true},
                      "optimizer": {"name": "muon", "states": "bf16"})")},
        {"resnet, every batch-norm frozen", resnet_recipe(thrice + R"(, "freeze": ["*bn*", "*downsample.1*"])")},
        {"gpt, only biases train", gpt_recipe(R"(, "freeze": ["*.weight"])")},
        {"gpt, bf16", gpt_recipe(R"(, "dtype": "bf16")")},
        {"gpt released", gpt_recipe(R"(, "gradient_release": true)")},
        {"gpt by Adafactor", gpt(wide, R"("optimizer": {"name": "adafactor"})" + thrice)},
        {"gpt by APOLLO-Mini, released", gpt(wide, R"("gradient_release": true, "trained": {"storage": "bf16"},
                                                      "optimizer": {"name": "apollo_mini"})")},
        {"gpt by Muon in codes", gpt(wide, R"("optimizer": {"name": "muon", "states": "8bit", "adamw_lr": 0.01})")},
        {"gpt, DoRA", gpt(wide, R"("lora": {"r": 2, "dora": true, "modules_to_save": ["ln_?"]}, )" + sgd + thrice)},
        {"gpt, adapters beside streamed weights",
         gpt(wide, R"("weights": {"stream": true}, "lora": {"r": 2, "dropout": 0.1}, )" + sgd + thrice)},
        {"gpt, embeddings from the file, released",
         gpt(wide, R"("weights": {"stream": true, "embedding": "from_file"}, "gradient_release": true,
                      "lora": {"r": 2}, )" +
                       sgd)},
        {"gpt of two ranks beside streamed weights",
         gpt(wide, R"("weights": {"stream": true}, "parallel": {"ranks": 2, "shard_weights": true},
                      "lora": {"r": 2}, )" +
                       sgd)},
        {"gpt, offloaded moments", gpt(widest, R"("optimizer": {"name": "adamw", "offload": true})")},
        {"mistral", llama}};
    constexpr std::pair<const char*, double> kChoices[] = {{"none", -1}, {"optimal", 0.3}, {"multistage", 0}};
    for (const auto& [name, recipe] : recipes) {
      for (const auto& [strategy, share] : kChoices) {
        try {
          list.push_back({std::string(name) + ", " + strategy,
                          plan_run(recipe_from(recipe), strategy, share).planned.plan, &kCpuRules});
        } catch (const std::exception& error) {
          if (strategy == std::string("none")) ADD_FAILURE() << name << ": " << error.what();
        }
      }
    }
    const std::pair<const char*, Graph> networks[] = {
        {"llama that generates", LlamaNetwork{.documents = true}.build()},
        {"llama of pairs",
         LlamaNetwork{.tied = false, .documents = true, .preference = PreferenceAttribute{0, 0.1, 0.25}}.build()}};
    for (const auto& [name, network] : networks) {
      for (const auto& [strategy, share] : kChoices) {
        list.push_back({std::string(name) + ", " + strategy,
                        plan_run(llama_recipe("llama"), network, strategy, share).planned.plan, &kCpuRules});
      }
    }
    return list;
  }();
  return made;
}

void print(const char* what, const Tally& tally) {
  std::printf("%s: %s safe, %s unsafe, %s of which only kernels can judge, %s disagreements\n", what,
              std::to_string(tally.safe).c_str(), std::to_string(tally.unsafe).c_str(),
              std::to_string(tally.of_kernels).c_str(), std::to_string(tally.disagreed).c_str());
}

class SecondCheckerTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(second().is_compiled()) << "cc cannot compile " << kSource; }
};

// Returns the table of contracts that check_plan.c must contain, from lib/op.h.
std::string kernel_table() {
  std::string table, line;
  const auto end_line = [&] { table += "    \"" + line + "\"", line.clear(); };
  for (uint32_t i = 0; i < kKernelCount; ++i) {
    const KernelInfo& k = kOps[i];
    const uint32_t pool = k.attribute == kNoAttribute ? AttributeTypes::kCount : k.attribute;
    std::string entry = std::to_string(static_cast<int>(k.op)) + " " + std::to_string(static_cast<int>(k.pass)) + " " +
                        std::to_string(pool) + " " + std::to_string(k.updates);
    for (int a = 0; a < static_cast<int>(k.arity()); ++a) {
      const ArgumentInfo& argument = k.arguments[a];
      entry += std::string(" ") + "-ouis"[static_cast<int>(argument.role)];
      if (argument.optional) entry += '?';
      if (argument.may_accumulate) entry += '+';
      if (argument.group) entry += '*';
      if (a == k.in_place_output || a == k.in_place_input) entry += '=';
      if (k.moves && a == 0) entry += '~';
      if (k.asynchronous()) entry += "-pwr"[static_cast<int>(k.carrier)];
      if (argument.host != HostSlot::kAny) entry += std::to_string(static_cast<int>(argument.host));
      entry += static_cast<char>('A' + static_cast<int>(argument.storage));
    }
    entry += ";";
    if (line.size() + entry.size() > 112) end_line(), table += "\n";
    line += entry;
  }
  end_line();
  return table + ";\n";
}

TEST_F(SecondCheckerTest, HasTheContractsOfTheKernels) {
  std::ifstream file(kSource);
  const std::string source{std::istreambuf_iterator<char>(file), {}};
  EXPECT_NE(source.find("\n" + kernel_table()), std::string::npos) << "kKernels of " << kSource << " must be\n"
                                                                   << kernel_table();
  EXPECT_NE(source.find("kContract[] = \"" + contract_of_kernels() + "\""), std::string::npos)
      << "kContract of " << kSource << " must be " << contract_of_kernels();
}

TEST_F(SecondCheckerTest, AcceptsWhatCheckAccepts) {
  for (const Sample& sample : samples()) {
    EXPECT_TRUE(verdict_of(sample.plan, *sample.rules).ok()) << sample.name;
    EXPECT_TRUE(second().accepts(file_of(sample.plan))) << sample.name << ": " << second().line();
  }
}

TEST_F(SecondCheckerTest, AgreesOnEveryMutant) {
  Tally tally;
  for (const Sample& sample : samples()) {
    for (const PlanMutant& mutant : make_directed_mutants(sample.plan))
      compare(mutant.plan, file_of(mutant.plan), *sample.rules, sample.name + ": " + mutant.name, tally);
    for (int seed = 0; seed < soaked(kSeeds); ++seed) {
      for (const PlanMutant& mutant : make_mutants(sample.plan, static_cast<uint64_t>(seed))) {
        compare(mutant.plan, file_of(mutant.plan), *sample.rules,
                sample.name + ": seed " + std::to_string(seed) + " " + mutant.name, tally);
      }
    }
  }
  print("mutants", tally);
  EXPECT_EQ(tally.disagreed, 0u);
  EXPECT_GT(tally.unsafe, 1000u);
}

// Two faults that check() accepted before the second checker found them.
TEST_F(SecondCheckerTest, BothRefuseAnOwnerOutsideTheArenaAndAWaitOfAnotherOp) {
  uint32_t owned = 0, waits = 0;
  for (const Sample& sample : samples()) {
    OwnedPlan plan = sample.plan;
    for (StateTensor& state : plan.state) {
      if (lies_in_arena(state.kind)) continue;
      state.owner = 0;
      EXPECT_EQ(verdict_of(plan, *sample.rules).fault, Fault::kRanks) << sample.name;
      EXPECT_FALSE(second().accepts(file_of(plan))) << sample.name;
      ++owned;
      break;
    }
    plan = sample.plan;
    for (Row& row : plan.program(ProgramId::kMicroFirst).rows) {
      if (row.op != Op::kShare || row.pass != Pass::kWait) continue;
      row.op = Op::kTransfer;
      EXPECT_EQ(verdict_of(plan, *sample.rules).fault, Fault::kInFlight) << sample.name;
      EXPECT_FALSE(second().accepts(file_of(plan))) << sample.name;
      ++waits;
      break;
    }
  }
  EXPECT_GT(owned, 0u);
  EXPECT_GT(waits, 0u);
}

TEST_F(SecondCheckerTest, ComparesTheManifest) {
  const PlannedRun run = plan_run(recipe_from(gpt_recipe(R"(, "accumulate": 2)")), "optimal", 0.3);
  const nlohmann::json good = manifest_of(run.model, run.planned);
  FiledPlan filed{run.planned.plan, kRecipe, "", good.at("plan_hash").get<std::string>()};
  filed.plan.recipe_hash = text_hash(kRecipe);
  const std::string file = plan_file({filed});
  const auto accepts = [&](const nlohmann::json& manifest) {
    const std::string text = manifest.dump(1) + "\n";
    return second().accepts(file, &text);
  };
  EXPECT_TRUE(accepts(good)) << second().line();
  const auto refuses = [&](const char* what, const std::function<void(nlohmann::json&)>& change) {
    nlohmann::json changed = good;
    change(changed);
    EXPECT_FALSE(accepts(changed)) << what;
  };
  refuses("arena", [](nlohmann::json& m) { m["planned_bytes"] = m["planned_bytes"].get<uint64_t>() + 256; });
  refuses("hash", [](nlohmann::json& m) { m["plan_hash"] = "0123456789abcdef"; });
  for (const char* list : {"state", "carried", "slots"}) {
    for (const char* key : {"offset", "bytes"})
      refuses(key, [&](nlohmann::json& m) { m[list].back()[key] = m[list].back()[key].get<uint64_t>() + 1; });
    refuses("dtype", [&](nlohmann::json& m) { m[list].back()["dtype"] = "q4_0"; });
    refuses("shape", [&](nlohmann::json& m) { m[list].back()["shape"].push_back(1); });
    refuses("an entry more", [&](nlohmann::json& m) { m[list].push_back(m[list].back()); });
    refuses("an entry less", [&](nlohmann::json& m) { m[list].erase(m[list].size() - 1); });
  }
  for (const char* key : {"id", "first_row", "last_row"})
    refuses(key, [&](nlohmann::json& m) { m["slots"][2][key] = m["slots"][2][key].get<uint64_t>() + 1; });
  refuses("kind", [](nlohmann::json& m) { m["state"][2]["kind"] = "buffer"; });
  refuses("name", [](nlohmann::json& m) { m["state"][2]["name"] = "another"; });
  const std::string text = good.dump(1);
  for (size_t size = 0; size < text.size(); size += 1 + size / 9) {
    const std::string part = text.substr(0, size);
    EXPECT_FALSE(second().accepts(file, &part)) << size << " bytes";
  }
}

TEST_F(SecondCheckerTest, TheProgramPrintsALineForAPlan) {
  const std::string file = second().folder().file("plan.bin");
  const auto run = [&](const std::vector<std::string>& files) {
    std::vector<std::string> words = {second().program()};
    words.insert(words.end(), files.begin(), files.end());
    const test::ProcessResult result = test::run(words);
    return result.out + result.err + std::to_string(result.status);
  };
  OwnedPlan plan = SampleConvNet().make();
  std::ofstream(file, std::ios::binary) << file_of(plan);
  EXPECT_EQ(run({file}), file + ": plan 0 of : safe: 4 programs, 42 rows, 12032 bytes\n0");
  plan.program(ProgramId::kMicroFirst).slots[3].tensor.offset += 4;
  std::ofstream(file, std::ios::binary) << file_of(plan);
  EXPECT_EQ(run({file}), file + ": plan 0: unsafe: kMisaligned, program micro_first, slot 3\n1");
  std::remove(file.c_str());
  EXPECT_EQ(run({file}), file + ": cannot be read, or is larger than 128 MiB\n1");
  EXPECT_EQ(run({}), "usage: check_plan PLAN.bin [MANIFEST.json]\n2");
}

// Changes bytes of plan files and repairs the checksum. Each change makes another number in the
// tables, sensible or not.
TEST_F(SecondCheckerTest, AgreesOnChangedBytes) {
  Tally tally;
  std::mt19937_64 random(3);
  uint64_t unread = 0;
  std::vector<std::string> files;
  for (const Sample& sample : samples()) files.push_back(file_of(sample.plan));
  for (int trial = 0; trial < soaked(kChangedFiles); ++trial) {
    const size_t which = random() % files.size();
    const std::string& file = files[which];
    size_t begin = 0;
    for (int line = 0; line < 4; ++line) begin = file.find('\n', begin) + 1;
    std::string tables = file.substr(begin);
    std::string changes;
    for (uint64_t count = 1 + random() % 2; count > 0; --count) {
      const size_t at = random() % tables.size();
      const char old = tables[at];
      const char values[] = {0,
                             1,
                             2,
                             static_cast<char>(random()),
                             static_cast<char>(old + 1),
                             static_cast<char>(old - 1),
                             static_cast<char>(old ^ 1 << random() % 8)};
      tables[at] = values[random() % std::size(values)];
      changes += " byte " + std::to_string(at);
    }
    const size_t contract_end = file.find('\n', file.find('\n') + 1) + 1;
    const std::string changed =
        file.substr(0, contract_end) + std::to_string(tables.size()) + "\n" + checksum_of(tables) + "\n" + tables;
    try {
      const std::vector<FiledPlan> read = parse_plan_file(changed, "plan.bin");
      if (read.size() == 1)
        compare(read[0].plan, changed, *samples()[which].rules, samples()[which].name + ":" + changes, tally);
    } catch (const UserError&) {
      ++unread;
      EXPECT_FALSE(second().accepts(changed)) << samples()[which].name << ":" << changes;
    }
  }
  print("changed files", tally);
  std::printf("changed files that cannot be read: %s\n", std::to_string(unread).c_str());
  EXPECT_EQ(tally.disagreed, 0u);
  EXPECT_GT(tally.safe, 1000u);
  EXPECT_GT(tally.unsafe, 1000u);
}

}  // namespace
}  // namespace reprise::testing
