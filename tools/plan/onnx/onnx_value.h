// A value of an ONNX model while its net is made.
#pragma once

#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/plan/onnx/known_numbers.h"
#include "tools/plan/onnx/tensor_view.h"

namespace reprise {

// The form of a value. Exporters write some layers as chains of small nodes. A value within such a
// chain is no tensor of the net: it has a form of its own, and becomes a tensor at the end of the
// chain.
//
//   norms        norms.h
//   gelu         x -> erf -> 1 + erf -> gelu, or x -> powers -> tanh -> 1 + tanh -> gelu
//   attention    q, k -> scores -> weights -> attention
//   masked mean  x -> x times the mask of padding -> its sum -> global_pool
//   drop path    uniform -> kept -> kept / probability -> x times it
enum class ImportForm {
  kUnknown,      // the node that writes it was refused
  kConstant,     // numbers of the model
  kOfParameter,  // functions of a parameter alone: a constant with `functions`
  kTerms,        // a sum of constants (`terms`), of which one is a parameter
  kTensor,       // `factor` times the output of a node of the net
  kTokens,       // tokens of the texts, or their types
  // Statistics of x over its last axis, in this order: the mean; x - mean; (x - mean)^2; the mean
  // of the squares, which is the variance; the root of the variance; 1 / the root.
  kMean,
  kCentred,
  kSquare,
  kVariance,
  kDeviation,
  kInverse,
  kNormed,  // (x - mean) / sqrt(variance + epsilon), over the last axis or over `groups` of channels
  kScaled,  // kNormed times gamma, which is `other`
  // kErf: erf(factor x), or its approximation by tanh. kErfTerm: `times` (1 + kErf).
  kErf,
  kErfTerm,
  kPowers,  // a sum of powers of x (powers.h); becomes nodes unless it is part of a GELU
  // kScores: factor q k^T. kWeights: the softmax of kScores. Both become nodes of their own unless
  // they are part of an attention.
  kScores,
  kWeights,
  kIsNan,  // true where the softmax is NaN, because all its scores are excluded
  // kMasked: factor x at the tokens of a text, 0 at padding. kMaskedSum: the sum of kMasked over
  // the tokens.
  kMasked,
  kMaskedSum,
  kIsLarge,  // true where x is above 20; there softplus returns x
  // kUniform: random numbers. kKept: factor times the samples that are kept, each with probability
  // `kept`.
  kUniform,
  kKept,
};
const char* form_text(ImportForm form);  // Returns the form's name as refusals print it.

struct ImportValue {
  ImportForm form = ImportForm::kUnknown;
  // The layout of a tensor; within a chain the layout of x or q; for a constant the layout of its
  // own numbers, without a batch.
  TensorView view;
  double factor = 1;
  // ---- constants ----
  const OnnxTensor* tensor = nullptr;         // the tensor with the numbers; null if the numbers were computed
  std::shared_ptr<const KnownNumbers> known;  // the numbers, if they were computed
  // True for a parameter of the module: the model lists it, and the file does not state that it is
  // a buffer or a constant. If the file states nothing, a single number is no parameter.
  bool is_parameter = false;
  bool is_detached = false;   // true for a parameter through which no gradient flows
  // True for a parameter that is added to, or multiplied by, a value that is computed from the
  // input without any weight.
  bool meets_input = false;
  // True if the constant is repeated along the batch, for example by Expand: the view has the
  // batch's factor, and the numbers are one sample's.
  bool repeats = false;
  // Indices of the rows that are taken of a table [V,C], which is `tensor`. The view is then
  // [rows,C]. Null if no rows are taken.
  std::shared_ptr<const std::vector<double>> rows;
  TensorView table;                                 // the layout of the whole table, if `rows` is set
  std::vector<nlohmann::json> functions;  // kOfParameter: nodes of one input, in their order, without name and inputs
  // The shape to which Expand widened a tensor; empty for none. Only a product or a sum with a
  // value of that shape may read it.
  std::vector<int64_t> expanded;
  // ---- values within a chain ----
  double epsilon = 0;
  bool is_centred = true;  // norms: the mean was subtracted from x before it was squared
  uint32_t groups = 0;
  std::vector<int> group_axis;  // the factors that index the groups
  double dropout = 0;           // probability, for an attention's weights
  double kept = 1, times = 1;
  std::array<double, 4> powers = {};    // the coefficients of x^0 to x^3
  bool by_tanh = false;                 // kErf and kErfTerm: the approximation by tanh
  bool masked = false, causal = false;  // kScores and kWeights: the positions that they exclude (Sight)
  bool keeps_axis = false;              // kMaskedSum: the summed axis stays, with size 1
  bool is_constant() const { return form == ImportForm::kConstant || form == ImportForm::kOfParameter; }
  // True if the value's shape is the view's. Within a chain the view may be that of x or of q
  // instead.
  bool has_own_shape() const {
    if (form == ImportForm::kTensor) return expanded.empty();
    return form == ImportForm::kTokens || is_constant() || form == ImportForm::kNormed || form == ImportForm::kScaled;
  }

  std::shared_ptr<const ImportValue> other;  // gamma of kScaled, k of kScores and kWeights
  std::vector<ImportValue> terms;
};

ImportValue tensor_value(const TensorView& view, double factor = 1);

// Returns a constant whose view has no batch. `is_listed`: true for a tensor of
// OnnxModel::constants, which may be a parameter; false for one in an attribute of a node.
ImportValue constant_value(const OnnxTensor& tensor, bool is_listed);
ImportValue constant_value(KnownNumbers numbers);
// Returns the constant repeated along the batch. The batch becomes the first axis, or the outer
// part of the first axis.
ImportValue repeated_value(ImportValue constant, int64_t batch);
// Returns one sample's numbers of a constant that is repeated; any other constant unchanged.
ImportValue one_sample_of(ImportValue constant);

}  // namespace reprise
