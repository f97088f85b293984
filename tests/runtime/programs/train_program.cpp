// See train_program.h. Each test process compiles its programs again, because compiling a plan of
// this size takes less than a second.
#include "tests/runtime/programs/train_program.h"

#include <cstdlib>
#include <filesystem>
#include <map>
#include <sstream>
#include <stdexcept>

namespace reprise::test {

using nlohmann::json;

namespace {

std::string compiler() {
  const char* given = std::getenv("CXX");
  return given != nullptr ? given : "g++";
}

std::string proof_flags() {
  if (compiler().find("clang") != std::string::npos) return "-fconstexpr-steps=2000000000";
  return "-fconstexpr-ops-limit=4000000000 -fconstexpr-loop-limit=100000000";
}

std::string sanitizer_flags() {
#ifdef __SANITIZE_ADDRESS__
  return "-fsanitize=address,undefined -fno-sanitize-recover=all "
         "-fno-sanitize=null,nonnull-attribute,returns-nonnull-attribute";  // as PLAN_NO_SANITIZE in the Makefile
#else
  return "";
#endif
}

std::string build_program(const std::string& name, const json& recipe) {
  const std::string folder = build_folder() + "/test-programs/" + name;
  std::filesystem::create_directories(folder);
  write_text(folder + "/recipe.json", recipe.dump(1));
  const ProcessResult planned = reprise_command({"plan", folder + "/recipe.json", "-o", folder});
  if (planned.status != 0) throw std::runtime_error(name + " cannot be planned: " + planned.err);
  const std::string command = compiler() + " -std=c++20 -O1 " + proof_flags() + " " + sanitizer_flags() + " -I. -I" +
                              folder + " tools/train.cpp " + build_folder() + "/libtools.a " + build_folder() +
                              "/libreprise.a -o " + folder + "/train -lblis -lz -ljpeg -licuuc -lonig -lpthread";
  ProcessOptions options;
  options.max_seconds = 300;
  const ProcessResult compiled = run({"/bin/sh", "-c", command}, options);
  if (compiled.status != 0) throw std::runtime_error(name + " cannot be compiled: " + command + "\n" + compiled.err);
  return folder + "/train";
}

std::string big_endian(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift);
  return bytes;
}

}  // namespace

std::string train_program(const std::string& name, const json& recipe) {
  static std::map<std::string, std::string> built;
  if (built.count(name) == 0) built[name] = build_program(name, recipe);
  return built[name];
}

json with(json recipe, const json& changes) {
  recipe.merge_patch(changes);
  return recipe;
}

uint64_t smallest_budget(const json& recipe) {
  TemporaryFolder folder;
  write_text(folder.file("r.json"), recipe.dump());
  return json::parse(reprise_command({"fit", folder.file("r.json"), "--budget", "1GiB", "--json"}).out)
      .at("smallest_budget");
}

std::vector<std::string> Log::results() const {
  std::vector<std::string> texts;
  for (json line : lines) {
    for (const char* key : {"seconds", "planned_bytes", "measured_bytes"}) line.erase(key);
    texts.push_back(line.dump());
  }
  return texts;
}

Log read_log(const std::string& path) {
  Log log;
  std::istringstream text(file_text(path));
  for (std::string line; std::getline(text, line);) log.lines.push_back(json::parse(line));
  return log;
}

uint64_t saved_step(const std::string& folder) { return json::parse(file_text(folder + "/training.json")).at("step"); }

std::string snapshot_tensors(const std::string& folder) {
  const std::string model = file_text(folder + "/model.safetensors"),
                    optimizer = file_text(folder + "/optimizer.safetensors");
  return model.empty() || optimizer.empty() ? "" : model + optimizer;
}

void write_idx_data(const std::string& folder, int count) {
  std::filesystem::create_directories(folder);
  const uint32_t n = static_cast<uint32_t>(count);
  std::string images = big_endian(0x803) + big_endian(n) + big_endian(8) + big_endian(8),
              labels = big_endian(0x801) + big_endian(n);
  for (uint32_t i = 0; i < n; ++i) {
    for (uint32_t p = 0; p < 64; ++p) images += static_cast<char>((i * 37 + p * (i % 4 + 1) * 11) % 256);
    labels += static_cast<char>(i % 4);
  }
  for (const char* set : {"train", "t10k"}) {
    write_text(folder + "/" + set + "-images-idx3-ubyte", images);
    write_text(folder + "/" + set + "-labels-idx1-ubyte", labels);
  }
}

ProcessResult TrainProgram::train(const std::string& program, Arguments arguments, const ProcessOptions& options) {
  arguments.insert(arguments.begin(), program);
  return run(arguments, options);
}

void TrainProgram::quietly(const std::string& program, Arguments arguments) {
  arguments.push_back("--quiet");
  const ProcessResult result = train(program, arguments);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out + result.err, "") << json(arguments);
}

void TrainProgram::expect_refusal(const std::string& program, Arguments arguments, const Arguments& fragments,
                                  int status) {
  arguments.push_back("--quiet");
  const ProcessResult result = train(program, arguments);
  EXPECT_EQ(result.status, status) << json(arguments) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_TRUE(result.is_one_line_with(fragments))
      << json(arguments) << " wanted " << json(fragments) << ", got: " << result.err;
}

}  // namespace reprise::test
