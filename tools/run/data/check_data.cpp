// Worker threads check the files of a set; the caller's thread shows the progress.
#include "tools/run/data/check_data.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "tools/files/io/error.h"
#include "tools/files/io/exception_text.h"
#include "tools/files/progress/shown_output.h"
#include "tools/files/progress/terminal.h"
#include "tools/run/data/dataset.h"

namespace reprise {
namespace {

using BrokenFiles = std::map<uint64_t, std::string>;  // number of a file -> the reason why it is broken, one line

class FileCheck {
 public:
  FileCheck(const Dataset& data, const char* set_name)
      : data_(data), set_name_(set_name), count_(data.unread_files()) {}

  const BrokenFiles& run(uint32_t threads) {
    std::vector<std::thread> workers;
    try {
      while (workers.size() < threads && workers.size() < count_) {
        workers.emplace_back([this] { work(); });
      }
    } catch (const std::system_error&) {  // the system cannot start more threads
      if (workers.empty()) work();
    }
    show_until_done();
    for (std::thread& worker : workers) worker.join();
    return broken_;
  }

 private:
  void work() {
    for (uint64_t n = next_++; n < count_; n = next_++) {
      std::string line;
      try {
        data_.check_file(n);
      } catch (const std::exception& error) {  // an exception must not leave the function of a thread
        line = words_of(error);
      }
      const std::lock_guard lock(mutex_);
      if (!line.empty()) broken_[n] = line;
      if (++done_ == count_) finished_.notify_one();
    }
  }

  // Shows the progress until all files are checked. Prints nothing during the first second; if
  // stderr is not a terminal, nothing during the first ten seconds.
  void show_until_done() {
    const bool terminal = stderr_is_terminal();
    const std::chrono::seconds pause(terminal ? 1 : kLinePauseSeconds);
    bool drawn = false;
    std::unique_lock lock(mutex_);
    while (!finished_.wait_for(lock, pause, [this] { return done_ == count_; })) {
      std::fprintf(stderr, "%s%s set: %llu of %llu pictures decoded, %zu broken%s", terminal ? "\r" : "", set_name_,
                   static_cast<unsigned long long>(done_), static_cast<unsigned long long>(count_), broken_.size(),
                   terminal ? "" : "\n");
      drawn = true;
    }
    if (drawn && terminal) std::fputc('\n', stderr);
  }

  const Dataset& data_;
  const char* const set_name_;
  const uint64_t count_;
  std::atomic<uint64_t> next_ = 0;
  std::mutex mutex_;  // protects the members below
  std::condition_variable finished_;
  uint64_t done_ = 0;
  BrokenFiles broken_;
};

// Checks all files of a set, prints the broken ones and returns how many they are.
uint64_t check_files(const Recipe& recipe, const Dataset& data, const char* set_name, const std::string& path,
                     uint32_t threads) {
  for (const std::string& warning : data.warnings()) warn(warning);
  for (const std::string& note : data.notes()) std::cerr << set_name << " set: " << note << "\n";
  if (const std::string order = class_order(recipe, data); !order.empty())
    std::cerr << set_name << " set: classes: " << order << "\n";
  if (data.unread_files() == 0) {
    std::cerr << set_name << " set: " << data.size()
              << " samples; files, lengths, labels and tokens were checked when it was opened\n";
    return 0;
  }
  FileCheck check(data, set_name);
  const BrokenFiles& broken = check.run(threads);
  for (const auto& [n, line] : broken) std::cout << line << "\n";
  std::cout.flush();
  std::cerr << set_name << " set: " << data.unread_files() << " pictures, "
            << (broken.empty() ? "all of them can be decoded" : std::to_string(broken.size()) + " of them broken")
            << "\n";
  if (broken.size() == data.unread_files()) throw UserError(path + ": not one picture can be decoded");
  return broken.size();
}

bool skips_bad(const Recipe& recipe) { return recipe.data.bad == DataSource::Bad::kSkip; }

struct Faults {
  uint64_t files = 0, samples = 0;
};

// Prints the samples that end a training or are skipped. Called before other faults of the set are
// reported.
void name_samples(const DataLook& look, const char* set_name, bool skips) {
  for (const std::string& line : look.named) std::cout << line << "\n";
  std::cout.flush();
  if (look.faults == 0) return;
  const std::string maximum =
      look.faults > look.named.size() ? "; the first " + std::to_string(look.named.size()) + " are named" : "";
  std::cerr << set_name << " set: " << look.faults << " samples "
            << (skips ? "are skipped (data.bad is \"skip\")" : "would end a training") << maximum << "\n";
}

void check_set(const Recipe& recipe, Split split, uint32_t threads, Faults& faults) {
  const bool is_training = split == Split::kTraining;
  const char* set_name = is_training ? "training" : "evaluation";
  const bool skips = skips_bad(recipe);
  DataLook look;
  std::unique_ptr<Dataset> data;
  try {
    data = open_dataset(recipe, split, &look);
  } catch (const UserError&) {
    name_samples(look, set_name, skips);
    throw;
  }
  name_samples(look, set_name, skips);
  if (!skips) faults.samples += look.faults;
  if (data != nullptr && (look.faults == 0 || skips))
    faults.files +=
        check_files(recipe, *data, set_name, is_training ? recipe.data.path : recipe.data.eval_path, threads);
}

}  // namespace

void look_at_data(const Recipe& recipe, bool must_be_there) {
  if (recipe.data.kind == DataSource::Kind::kNone) return;
  for (const auto& [split, path] :
       {std::pair{Split::kTraining, recipe.data.path},
        {Split::kEvaluation, recipe.data.held_out > 0 ? recipe.data.path : recipe.data.eval_path}}) {
    std::error_code ignored;
    if (path.empty() || (!must_be_there && !std::filesystem::exists(path, ignored))) continue;
    DataLook look;
    look.max_bytes = uint64_t{16} << 20;
    try {
      open_dataset(recipe, split, &look);
    } catch (const UserError&) {
      if (look.faults == 0 || skips_bad(recipe)) throw;
    }
    if (look.faults == 0 || skips_bad(recipe)) continue;
    const std::string more = look.faults == 1
                                 ? ""
                                 : " (one of " + std::to_string(look.faults) +
                                       " that would end a training; reprise train RECIPE --check-data names them)";
    throw UserError(look.named.front() + more);
  }
}

std::string missing_data(const Recipe& recipe) {
  if (recipe.data.kind == DataSource::Kind::kNone) return "";
  std::string text;
  for (const auto& [field, path] :
       {std::pair{"data.path", &recipe.data.path}, {"data.eval_path", &recipe.data.eval_path}}) {
    std::error_code ignored;
    if (!path->empty() && !std::filesystem::exists(*path, ignored))
      text += (text.empty() ? "" : ", ") + std::string(field) + ": " + *path;
  }
  return text.empty() ? ""
                      : recipe.name + ": " + text +
                            ": is not there; a plan needs only the recipe's shapes, a training needs the data";
}

int check_data(const Recipe& recipe, uint32_t threads) {
  if (threads == 0) threads = std::max(1u, std::thread::hardware_concurrency());
  Faults faults;
  for (const Split split : {Split::kTraining, Split::kEvaluation}) check_set(recipe, split, threads, faults);
  const uint64_t broken = faults.files;
  if (broken == 0) return faults.samples == 0 ? 0 : 1;
  const bool skips = recipe.data.broken == DataSource::Broken::kSkip;
  const char* skipped = "training skips the broken ones (data.broken is \"skip\")\n";
  const bool may_skip =
      recipe.data.kind == DataSource::Kind::kImageFolder && describe_model(recipe.model).class_weights.empty();
  const char* refused =
      may_skip ? "training would end at the first broken one: mend or remove them, or set data.broken to \"skip\"\n"
               : "training would end at the first broken one: mend or remove them\n";
  std::cerr << (skips ? skipped : refused);
  return skips && faults.samples == 0 ? 0 : 1;
}

}  // namespace reprise
