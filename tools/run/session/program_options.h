// The command line of a training program.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/run/session/command_line.h"

namespace reprise {

// The steps to trace, both ends included. Steps are counted from 1, including those before a
// resume.
struct TracedSteps {
  uint64_t first = 0, last = 0;
  uint64_t count() const { return last - first + 1; }
};

// Parses "FIRST:LAST" or a single step. Throws UserError with status kUsage.
TracedSteps parse_traced_steps(const std::string& text);

// The interval between snapshots, in steps and in seconds; 0 means that the unit is not used.
struct SaveEvery {
  uint64_t steps = 0;
  double seconds = 0;
};

// Parses a number of steps ("100") or a time ("90s", "10min", "2h"). Throws UserError with status
// kUsage.
SaveEvery parse_save_every(const std::string& text);

// The values of the options. Help and defaults are in program_options.cpp.
struct ProgramOptions {
  uint64_t steps = 0, epochs = 0, keep = 1, batches = 0;
  uint32_t threads = 0;
  std::string log, tensorboard, init, init_adapter, save, resume, disk, streamed, trace, trace_steps, manifest;
  std::string adapter;                 // folder to which the adapter is written; "": next to the program
  std::vector<std::string> init_skip;  // patterns of tensors that are not loaded, in addition to the recipe's
  std::vector<std::string> predict;    // pictures and folders of pictures, or files of texts
  std::string predict_to;              // file for the predictions, or folder for maps
  std::string save_every;
  std::string plan;                               // path of the plan file, which has been read already
  std::string command;                            // shell command that runs this program, without its options
  std::vector<std::string> arguments;             // the words of the command line after `command`
  std::string model, data, eval_data, tokenizer;  // paths that replace paths in the recipe (files_here.h)
  std::string start_budget, control, pressure_file = "/proc/pressure/memory";
  double pressure = 0;     // threshold in per cent; 0: pressure is not watched
  bool overwrite = false;  // allows replacing a snapshot of another run in `save`, although it is later
  bool go_on = false;      // resumes from the snapshot in `save` if there is one
  bool quiet = false, eager = false, no_tune = false, check_data = false, keep_best = false;
  bool evaluate = false, per_class = false, json = false;
  std::string prompt;  // text to continue, without training
  bool chat = false;   // answers messages that a user types, without training
  std::string system;  // the system message for `chat`
  uint64_t tokens = 0, seed = 0, top_k = 0;  // for answers; tokens 0: the mode's default; top_k 0: all tokens
  double temperature = 0, top_p = 1;

  // Adds all options to the parser. `disk_bytes` is the size of the plan's spill file; if it is 0,
  // there is no --disk. `streams` adds --streamed.
  void add_to(OptionParser& app, uint64_t disk_bytes, bool streams, uint32_t max_workers);
  // Returns the files and folders that the options name as inputs; an output must not replace them.
  // Some may be "".
  std::vector<std::string> inputs() const;
  // True if the run trains; false if it only checks data or uses weights.
  bool trains() const { return !check_data && !evaluate && predict.empty() && prompt.empty() && !chat; }
  // Throws UserError with status kUsage if options contradict each other, or if an option would
  // have no effect. `plans` is the number of plans in the program.
  void check(size_t plans) const;
};

}  // namespace reprise
