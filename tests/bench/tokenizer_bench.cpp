// Measures MB/s of a tokenizer on one core, and its memory, once with all words new and once with
// the text's words cached. Users should not have to wait for the tokenisation of a data set.
// tests/interfaces/texts/tokenizer_golden_test.cpp judges the ids.
//
//   tokenizer_bench MODEL TEXT    a model's folder, tokenizer.json or GGUF file, and a text file
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "tests/bench/machine_load.h"
#include "tools/files/io/error.h"
#include "tools/files/io/input_file.h"
#include "tools/files/tokenizer/tokenizer.h"

namespace reprise::bench {
namespace {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double resident_mebibytes() {
  rusage usage;
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

void measure(const std::string& model, const std::string& path) {
  constexpr int kRuns = 15;
  const InputFile file(path);
  std::string text(file.bytes(), '\0');
  file.read(0, text.data(), text.size());
  const double before = resident_mebibytes(), start = seconds_now();
  const auto tokenizer = Tokenizer::open(model);
  const double opened = seconds_now();
  std::vector<double> rates;
  size_t ids = 0;
  for (int run = 0; run < kRuns; ++run) {
    const double begin = seconds_now();
    ids = tokenizer->encode(text, false).size();
    rates.push_back(static_cast<double>(text.size()) / (seconds_now() - begin) / 1e6);
  }
  const double first = rates.front();
  std::sort(rates.begin(), rates.end());
  std::printf("%s: %u tokens, opened in %.3f s; load %s\n", model.c_str(), tokenizer->vocabulary(), opened - start,
              load_average().c_str());
  std::printf(
      "  %zu bytes, %zu ids: first %.1f MB/s, best %.1f, median %.1f; resident at most %.1f MiB (%.1f before)\n",
      text.size(), ids, first, rates.back(), rates[kRuns / 2], resident_mebibytes(), before);
}

}  // namespace
}  // namespace reprise::bench

int main(int argc, char** argv) {
  if (argc != 3) {
    std::printf("tokenizer_bench: skipped; give MODEL and TEXT\n");
    return 0;
  }
  try {
    reprise::bench::measure(argv[1], argv[2]);
    return 0;
  } catch (const reprise::UserError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.status;
  }
}
