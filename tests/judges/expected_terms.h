// Returns the results of a training step as terms, derived from the graph alone: without links,
// recomputation and slots, and each micro-batch in one pass. So the replay compares a plan with the
// network itself, and not with the planner's view of the network.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/judges/terms.h"
#include "tools/plan/graph/graph.h"
#include "tools/plan/recipes/recipe.h"

namespace reprise::testing {

struct ExpectedTensor {
  StateKind kind = StateKind::kParameter;
  InitKind init = InitKind::kConstant;
  float init_scale = 0;
  std::vector<float> numbers = {};         // the numbers of a table (kTable); empty for other tensors
  Term before = kNoTerm, after = kNoTerm;  // terms before and after a whole step
};

struct ExpectedStep {
  std::map<std::string, ExpectedTensor> state;  // by name: parameters, buffers, moments
  std::vector<Term> norms;                      // gradient norms after the step, one for each trained parameter
  Scalars scalars;                              // after the step
  Scalars evaluated;                            // after one batch of evaluation that follows the step
};

// Returns the leaf (a term without inputs) of a tensor of State. The next functions return the
// leaves of values that the host writes.
Term state_leaf(TermTable& terms, const std::string& name, const Form& form);
Term input_leaf(TermTable& terms, const std::string& batch, const Form& form);
Term document_start_leaf(TermTable& terms, const std::string& batch, const Form& form);
Term pairs_leaf(TermTable& terms, const std::string& batch, const Form& form);
Term token_types_leaf(TermTable& terms, const std::string& batch, const Form& form);
Term labels_leaf(TermTable& terms, const std::string& batch, const Form& form);
std::string training_batch(uint32_t micro_batch);
constexpr const char* kEvaluationBatch = "evaluation";
constexpr const char* kTrainingStep = "step";
constexpr const char* kEvaluationStep = "evaluation step";

// Returns the expected results of `network` with the recipe's optimizer and micro-batches. The
// network is complete, as a model builds it; the model that the recipe names is ignored.
ExpectedStep expected_step(const Graph& network, const Recipe& recipe, TermTable& terms);

}  // namespace reprise::testing
