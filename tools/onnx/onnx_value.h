// What a value of an ONNX model is while its net is being made.
#pragma once

#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/onnx/known_numbers.h"
#include "tools/onnx/tensor_view.h"

namespace reprise {

// Exporters write some layers as chains of small nodes. What stands in the middle of such a chain is no value of the net. It is a form of
// its own, and becomes a value where the chain ends as the layer does.
//
//   norms        norms.h
//   gelu         x -> erf -> 1 + erf -> gelu, or x -> powers -> tanh -> 1 + tanh -> gelu
//   attention    q, k -> scores -> weights -> attention
//   masked mean  x -> x times the mask of padding -> its sum -> global_pool
//   drop path    uniform -> kept -> kept / probability -> x times it
enum class ImportForm {
  kUnknown,      // of a node that was refused
  kConstant,     // numbers of the model
  kOfParameter,  // functions of a parameter alone, which is a constant but for `functions`
  kTerms,        // the sum of constants, `terms`, of which one is a parameter
  kTensor,       // `factor` times what a node of the net writes
  kTokens,       // of the texts
  kMean,
  kCentred,
  kSquare,
  kVariance,
  kDeviation,
  kInverse,  // over the last axis of x, and 1 / deviation
  kNormed,   // (x - mean) / sqrt(variance + epsilon), over the last axis, or over `groups` of channels
  kScaled,   // the same times `gamma`
  kErf,
  kErfTerm,  // erf(factor x), or its stand-in by tanh; `times` (1 + erf)
  kPowers,   // a sum of powers of x (powers.h); whatever is no GELU's becomes nodes of its own
  kScores,
  kWeights,  // factor q k^T, and its softmax; whatever is no attention's becomes a product of its own
  kIsNan,    // whether the softmax is no number
  kMasked,
  kMaskedSum,  // factor x, where it is of a text's tokens; the sum of these
  kIsLarge,    // whether x is above 20, where softplus is the identity
  kUniform,
  kKept,  // random numbers; which samples are kept, each with probability `kept`, times factor
};
const char* form_text(ImportForm form);  // as a refusal says it

struct ImportValue {
  ImportForm form = ImportForm::kUnknown;
  TensorView view;  // of a tensor; of what a form is made of; of a constant's own numbers, without a batch
  double factor = 1;
  // Constants.
  const OnnxTensor* tensor = nullptr;         // whose numbers they are; null where they were computed
  std::shared_ptr<const KnownNumbers> known;  // where they were
  bool is_parameter = false;  // named in the model's list, and the module's; where the file does not say whose, of more than one number
  bool repeats = false;  // along the batch, as Expand makes it: the view has the batch's factor, the numbers are one sample's
  std::shared_ptr<const std::vector<double>> rows;  // of a table [V,C], which `tensor` is: the view is [rows,C], those that were taken
  TensorView table;                                 // and this the table's own
  std::vector<nlohmann::json> functions;            // nodes of one input, without name and inputs, in their order
  std::vector<int64_t> expanded;  // of a tensor that Expand made wider: its shape; only a product or a sum with a value of that shape reads it
  // Layers in the making.
  double epsilon = 0;
  bool is_centred = true;  // of a norm: the mean was taken from x before it was squared
  uint32_t groups = 0;
  std::vector<int> group_axis;  // the factors that tell one group from another
  double dropout = 0;           // of an attention's weights
  double kept = 1, times = 1;
  std::array<double, 4> powers = {};  // the numbers of x^0 to x^3
  bool by_tanh = false;               // of kErf and kErfTerm
  bool masked = false, causal = false;  // of an attention's scores and weights: what they are shut to (Sight)
  bool keeps_axis = false;              // of a masked sum
  bool is_constant() const { return form == ImportForm::kConstant || form == ImportForm::kOfParameter; }
  // Whether its shape is the view's; of what is within a chain the view is x's, or q's.
  bool has_own_shape() const {
    if (form == ImportForm::kTensor) return expanded.empty();
    return form == ImportForm::kTokens || is_constant() || form == ImportForm::kNormed || form == ImportForm::kScaled;
  }

  std::shared_ptr<const ImportValue> other;  // gamma of kScaled, k of kScores and kWeights
  std::vector<ImportValue> terms;
};

ImportValue tensor_value(const TensorView& view, double factor = 1);

// A constant's own numbers, as a view without a batch. `is_listed`: among the model's, not within one of its nodes.
ImportValue constant_value(const OnnxTensor& tensor, bool is_listed);
ImportValue constant_value(KnownNumbers numbers);
// Repeated along the batch, which its first axis becomes, or the outer part of it; and of one that repeats one sample's, another as it is.
ImportValue repeated_value(ImportValue constant, int64_t batch);
ImportValue one_sample_of(ImportValue constant);

}  // namespace reprise
