// A compiled plan with everything that it needs to run: workers, arena, disk, and loaded weights.
// Training, evaluation and prediction all begin with a session.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lib/reprise.h"
#include "tools/plan/recipes/recipe.h"
#include "tools/run/data/fingerprint.h"
#include "tools/run/session/compiled_plan.h"
#include "tools/run/session/program_options.h"
#include "tools/run/session/ranks.h"
#include "tools/run/session/status_text.h"
#include "tools/run/snapshots/initial_weights.h"
#include "tools/run/snapshots/snapshot.h"

namespace reprise {

// Bytes of a canary after the plan's last byte. It detects a row that writes there.
constexpr uint64_t kGuardBytes = 64 << 10;

// Returns the folder that contains this program.
std::string program_folder();
// Returns the default folder for the files of a run: the folder of the program, or of its plan
// file.
std::string run_folder(const CompiledPlan& compiled);

// A plan that is ready to run.
class Session {
 public:
  using AskReference = std::function<void(Session& session)>;
  // Acquires the resources and loads the weights: from the options, else from the recipe's init,
  // else from the files of its model. If none of these names weights, they are drawn from the seed;
  // the recipe must allow this (fields of a family, or "init": "random").
  // `data`: the training set, which is compared with the snapshot's. It is null if the session does
  // not train; the snapshot's weights must then have the meaning that the recipe gives them.
  // `ask_reference`: called if the loss has a reference. The trainer then contains the model with
  // which the training begins or began; an adapter or a snapshot is loaded afterwards.
  // `ranks`: null if the session does not train.
  Session(const CompiledPlan& compiled, const ProgramOptions& options, const DataFingerprint* data = nullptr,
          const AskReference& ask_reference = nullptr, const Ranks* ranks = nullptr);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const Plan& plan() const { return plan_at(compiled_, number_).plan; }  // returns the plan in use
  // Returns the program's plans; plan_number() is the number of the plan in use.
  const CompiledPlan& compiled() const { return compiled_; }
  uint32_t plan_number() const { return number_; }
  // Continues with another plan; call it between steps. Releases memory that the plan does not
  // need, or acquires more. State keeps its addresses. If memory cannot be acquired or released,
  // returns that Status and changes nothing. Throws UserError if the device fails.
  Status change_plan(uint32_t number);
  const Port& port() const { return port_; }
  const Recipe& recipe() const { return recipe_; }
  const Workers& workers() const { return workers_; }
  Trainer& trainer() { return trainer_; }
  // Returns the file from which weights were loaded; "" if they were drawn from the seed or
  // resumed. taken() reports what was read from the file.
  const std::string& weights() const { return weights_; }
  const InitialReport& taken() const { return taken_; }
  // Returns lines for the user that state where the weights come from.
  std::vector<std::string> origin_of_weights() const;
  // Returns the identity of the weights that a snapshot does not contain: the frozen weights below
  // adapters, or the reference for pairs. Returns nothing if the whole model is in State.
  const std::optional<BaseWeights>& base() const { return base_; }
  const std::vector<std::string>& warnings() const { return warnings_; }
  bool is_resumed() const { return !resumed_.empty(); }
  bool has_adapter() const { return !adapter_.empty(); }

  void require(const Status& status) const {
    if (!status.ok()) fail(recipe_.name, status, &plan());
  }
  uint64_t measured() const;  // returns the measured bytes of the arena
  // Returns the measured bytes of host memory; 0 if the plan does not spill to the host
  uint64_t measured_in_host() const;

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
  uint32_t number_ = 0;  // number of the plan in use
  const Port& port_;
  const Recipe recipe_;
  const Ranks* const ranks_;
  Workers workers_;
  Arena arena_;
  const char* fixed_ = nullptr;  // the reason why the arena's size cannot change; null if it can
  Disk disk_, streamed_;
  HostMemory host_memory_;
  std::optional<InputFile> streamed_file_;  // the host's access to the file that streamed_ uses
  // Source of the weights, until they are loaded; null: they are drawn from the seed
  std::unique_ptr<WeightSource> source_;
  InitialRules rules_;         // rules for loading the weights
  bool is_published_ = false;  // true: the weights are those of the recipe's published model
  Backend backend_ = {};
  Trainer trainer_;
  std::string weights_;
  InitialReport taken_;
  std::optional<BaseWeights> base_;
  std::vector<std::string> warnings_;
  // resumed_: the folder of the snapshot that was loaded. adapter_: the file or folder of the
  // adapter that was loaded. "" if none was loaded.
  std::string resumed_, adapter_;
  std::string adapter_said_;  // text for the user: the conversions that the adapter needed
};

// Warns on stderr if weights in use are not trained; for evaluation, prediction and answers.
void show_untrained(const Session& session);

}  // namespace reprise
