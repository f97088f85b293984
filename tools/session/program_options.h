// What the command line of a training program says.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/command_line.h"

namespace reprise {

// Steps from 1, resumed ones count; both ends are traced.
struct TracedSteps {
  uint64_t first = 0, last = 0;
  uint64_t count() const { return last - first + 1; }
};

// "FIRST:LAST", or one step. Throws UserError of status kUsage.
TracedSteps parse_traced_steps(const std::string& text);

// Between snapshots; 0: not counted.
struct SaveEvery {
  uint64_t steps = 0;
  double seconds = 0;
};

// "100", steps, or a time: "90s", "10min", "2h". Throws UserError of status kUsage.
SaveEvery parse_save_every(const std::string& text);

struct ProgramOptions {
  uint64_t steps = 0, epochs = 0, keep = 1, batches = 0;
  uint32_t threads = 0;
  std::string log, tensorboard, init, init_adapter, save, resume, disk, streamed, trace, trace_steps, manifest;
  std::string adapter;  // the folder that an adapter is written into; "": beside the program
  std::vector<std::string> init_skip;  // patterns, beside the recipe's
  std::vector<std::string> predict;    // pictures and folders of them, or files of texts
  std::string predict_to;              // the file, or of maps the folder, of what the net says of them
  std::string save_every;
  std::string plan;  // the file, which has been read by now
  std::string start_budget, control, pressure_file = "/proc/pressure/memory";
  double pressure = 0;  // per cent; 0: not looked at
  bool overwrite = false;  // a later snapshot in `save`, of another run
  bool go_on = false;   // from the snapshot in `save`, where there is one
  bool quiet = false, eager = false, no_tune = false, check_data = false, keep_best = false;
  bool evaluate = false, per_class = false, json = false;
  std::string prompt;  // what to go on with, training nothing
  bool chat = false;   // the same in turns, with what a person types
  std::string system;  // what such a conversation begins with
  uint64_t tokens = 0, seed = 0, top_k = 0;  // of an answer; no tokens: as many as the mode takes unasked
  double temperature = 0, top_p = 1;

  // `disk_bytes`: what the plan keeps on disk; without any there is no --disk. `streams`: whether there is --streamed.
  void add_to(OptionParser& app, uint64_t disk_bytes, bool streams, uint32_t most_workers);
  // Returns the files and folders that the options name as inputs, none of which may be an output. Some may be "".
  std::vector<std::string> inputs() const;
  // Returns whether the run trains, and does not only check data or use weights.
  bool trains() const { return !check_data && !evaluate && predict.empty() && prompt.empty() && !chat; }
  // Throws UserError of status kUsage where options contradict one another, or one would be passed over in silence.
  // `plans`: of the program.
  void check(size_t plans) const;
};

}  // namespace reprise
