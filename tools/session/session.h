// A compiled plan ready to run: workers, arena, disk, and weights in their place.
// Here because training, evaluating and predicting all begin so.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lib/reprise.h"
#include "tools/data/fingerprint.h"
#include "tools/recipes/recipe.h"
#include "tools/session/compiled_plan.h"
#include "tools/session/program_options.h"
#include "tools/session/ranks.h"
#include "tools/session/status_text.h"
#include "tools/snapshots/initial_weights.h"
#include "tools/snapshots/snapshot.h"

namespace reprise {

// A canary behind the plan's last byte: a row that wrote there would be seen.
constexpr uint64_t kGuardBytes = 64 << 10;

// Where this program lies.
std::string program_folder();
// Where a run puts what it leaves without being told where: beside the program, or beside its plan file.
std::string run_folder(const CompiledPlan& compiled);

class Session {
 public:
  // Takes what it needs and loads the weights that the options name, else those of the recipe's init, else those of its model's files, else
  // the seed's, where the recipe says so: by a family's fields, or by "init": "random". `data`: those of a training, which a snapshot's are
  // compared with; null where none are trained on, and then a snapshot's trained weights must mean what the recipe says. `ask_reference`: of a
  // recipe whose loss has one, called while the trainer holds the model that the training begins, or has begun, with: before an adapter or a
  // snapshot is taken in.
  // `ranks`: of a training; null where nothing is trained.
  using AskReference = std::function<void(Session& session)>;
  Session(const CompiledPlan& compiled, const ProgramOptions& options, const DataFingerprint* data = nullptr, const AskReference& ask_reference = nullptr,
          const Ranks* ranks = nullptr);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const Plan& plan() const { return plan_at(compiled_, number_).plan; }  // in which it runs now
  // The program's plans, and the number of the one in which it runs.
  const CompiledPlan& compiled() const { return compiled_; }
  uint32_t plan_number() const { return number_; }
  // Between steps: gives back memory that the other plan does not need, or takes what it needs more, and goes on in it; State stays where it lies.
  // Where memory cannot be had or given back the Status says so, and nothing has changed. Throws UserError where the device fails.
  Status change_plan(uint32_t number);
  const Port& port() const { return port_; }
  const Recipe& recipe() const { return recipe_; }
  const Workers& workers() const { return workers_; }
  Trainer& trainer() { return trainer_; }
  // The file that the weights come from, and what was taken of it; "": drawn from the seed, or resumed.
  const std::string& weights() const { return weights_; }
  const InitialReport& taken() const { return taken_; }
  // Where the weights come from, a line each, for a person.
  std::vector<std::string> origin_of_weights() const;
  // Beside which adapters are trained, or which is the reference of pairs; none where all of the model is the state's.
  const std::optional<BaseWeights>& base() const { return base_; }
  const std::vector<std::string>& warnings() const { return warnings_; }
  bool is_resumed() const { return !resumed_.empty(); }
  bool has_adapter() const { return !adapter_.empty(); }

  void require(const Status& status) const {
    if (!status.ok()) fail(recipe_.name, status, &plan());
  }
  uint64_t measured() const;  // bytes
  uint64_t measured_in_host() const;  // 0 of a plan that spills nothing there

 private:
  void set_up(const ProgramOptions& options, const DataFingerprint* data, const AskReference& ask_reference);
  Peers peers() const { return ranks_ != nullptr ? ranks_->peers() : lone_peers(plan()); }
  void tune();
  void take_arena();
  void require_arena(const Status& taken);
  Status resize_arena(uint64_t bytes);
  void prove_other_plans(const Resources& resources);
  void open_disk(const std::string& option);
  void take_host_memory();
  void open_streamed(const std::string& option, const std::vector<std::string>& inputs);
  void choose_weights(const ProgramOptions& options, bool takes_base);
  void choose_initial_weights(const ProgramOptions& options);
  void choose_base_of(const std::string& snapshot);
  void load_weights();
  void release();

  const CompiledPlan compiled_;
  uint32_t number_ = 0;  // of the plan, among the program's
  const Port& port_;
  const Recipe recipe_;
  const Ranks* const ranks_;
  Workers workers_;
  Arena arena_;
  const char* fixed_ = nullptr;  // why the arena keeps its size, where it does
  Disk disk_, streamed_;
  HostMemory host_memory_;
  std::optional<InputFile> streamed_file_;  // what streamed_ reads, for the host
  std::unique_ptr<WeightSource> source_;    // until the weights are loaded; null: drawn from the seed
  InitialRules rules_;                      // by which they are
  bool is_published_ = false;               // they are those of the recipe's model
  Backend backend_ = {};
  Trainer trainer_;
  std::string weights_;
  InitialReport taken_;
  std::optional<BaseWeights> base_;
  std::vector<std::string> warnings_;
  std::string resumed_, adapter_;  // the snapshot's folder, and PEFT's or llama.cpp's file; "" where none was taken in
  std::string adapter_said_;       // what was done to it
};

// Says on stderr what of the weights that are used is not trained, for whoever evaluates, predicts or asks.
void show_untrained(const Session& session);

}  // namespace reprise
