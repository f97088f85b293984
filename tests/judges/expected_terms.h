// What a step must compute, as terms, derived from the graph alone: no links, no recomputation, no slots, one pass per
// micro-batch. Here because the replay compares a plan with the network, not with what the planner thought of it. It
// must not share code with rules.cpp, link.cpp, training_state.cpp, arrange.cpp, lower.cpp or program_builder.cpp: only
// the network (graph.nodes, made by tools/models) and the kernels' contract (lib/op.h) are common. Its chain rule is
// its own.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/judges/terms.h"
#include "tools/graph/graph.h"
#include "tools/recipes/recipe.h"

namespace reprise::testing {

struct ExpectedTensor {
  StateKind kind = StateKind::kParameter;
  InitKind init = InitKind::kConstant;
  float init_scale = 0;
  std::vector<float> numbers = {};         // of a table
  Term before = kNoTerm, after = kNoTerm;  // of a whole step
};

struct ExpectedStep {
  std::map<std::string, ExpectedTensor> state;  // by name: parameters, buffers, moments
  std::vector<Term> norms;                      // entry by entry, after the step
  Scalars scalars;                              // after the step
  Scalars evaluated;                            // after one batch of evaluation, made after the step
};

// The leaves that the host provides.
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

// Of the network as a model builds it, with the recipe's optimizer and micro-batches; the recipe's own model is asked for nothing.
ExpectedStep expected_step(const Graph& network, const Recipe& recipe, TermTable& terms);

}  // namespace reprise::testing
