// Tests the builders of networks. A refusal must be one line that names the node, its op and the
// correct value. An accepted node must satisfy the kernels' own contracts. A network with an op
// that no family has must train, because graphs may come from other sources than this repository's
// models.
#include "tools/plan/graph/graph.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/interfaces/expect_user_error.h"
#include "tests/planner/deep_resnet.h"
#include "tests/runtime/expect_gradients.h"
#include "tests/runtime/skip_network.h"
#include "tests/runtime/small_recipe.h"
#include "tests/runtime/squeeze_network.h"
#include "tools/plan/graph/link.h"
#include "tools/plan/graph/rules.h"

namespace reprise {
namespace {

constexpr WindowAttribute kThree = {3, 3, 1, 1};

// A graph with values from which nodes can be built: images, rows, sequences and tokens.
struct Values {
  Graph graph;
  ValueId image, rows, sequence, wide, tokens, starts, table, bias;

  explicit Values(DType stored = DType::kF32) : graph(stored) {
    image = graph.add_value("image", ValueKind::kInput, {2, 8, 8, 4});
    rows = graph.add_value("rows", ValueKind::kActivation, {6, 12});
    sequence = graph.add_value("sequence", ValueKind::kActivation, {2, 3, 12});
    wide = graph.add_value("wide", ValueKind::kActivation, {1, 2, 1000});
    tokens = graph.add_value("tokens", ValueKind::kInput, {2, 3}, DType::kI32);
    starts = graph.add_value("starts", ValueKind::kInput, {2, 3}, DType::kI32);
    table = graph.parameter("table", {7, 12}, InitKind::kNormal, 1);
    bias = graph.parameter("table.bias", {7}, InitKind::kNormal, 1);
    graph.input = image;
    graph.labels = graph.add_value("labels", ValueKind::kLabels, {2, 3}, DType::kI32);
  }
};

struct Refusal {
  std::function<void(Values&)> build;
  std::vector<std::string> said;
};

const RopeAttribute kRope = {.heads = 2, .kv_heads = 1, .rotary = 4, .neighbours = 0, .theta = 10000};

TEST(Graph, RefusesWhatItsKernelsCouldNotTake) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<Refusal> refusals = {
      {[](Values& v) { v.graph.conv(v.rows, "c", 4, kThree); },
       {"c (conv): x is rows [6,12] of f32; must be images, [N,H,W,C]"}},
      {[](Values& v) { v.graph.conv(v.tokens, "c", 4, kThree); },
       {"c (conv): x is tokens [2,3] of i32; must be of f32"}},
      {[](Values& v) { v.graph.conv(999, "c", 4, kThree); }, {"c (conv): x is no value of this graph"}},
      {[](Values& v) { v.graph.conv(kNoValue, "c", 4, kThree); }, {"c (conv): x is no value of this graph"}},
      {[](Values& v) { v.graph.conv(v.image, "", 4, kThree); }, {"a node (conv): has no name"}},
      {[](Values& v) { v.graph.conv(v.image, "c", 0, kThree); }, {"c (conv): has 0 output channels"}},
      {[](Values& v) {
         v.graph.conv(v.image, "c", 4, {3, 3, 0, 1});
       },
       {"c (conv): is given kernel_h 3, kernel_w 3, stride 0, pad 1", "WindowAttribute"}},
      {[](Values& v) {
         v.graph.conv(v.image, "c", 4, {11, 3, 1, 1});
       },
       {"c (conv): its window of 11 x 3 is larger", "at most 10 x 10"}},
      {[](Values& v) {
         v.graph.conv(v.image, "c", 4, {3, 11, 1, 1});
       },
       {"c (conv): its window of 3 x 11 is larger", "at most 10 x 10"}},
      {[](Values& v) { v.graph.conv(v.table, "c", 4, kThree); },
       {"c (conv): x is table [7,12] of f32; must be what a node writes, or the input"}},
      {[](Values& v) {
         v.graph.conv(v.image, "c", 4, {.kernel_h = 3, .kernel_w = 3, .stride_h = 1, .pad_top = 1, .groups = 3});
       },
       {"c (conv): has 3 groups; they must divide the 4 channels of x and the 4 output channels"}},
      {[](Values& v) {
         v.graph.conv(v.image, "c", 6, {.kernel_h = 3, .kernel_w = 3, .stride_h = 1, .pad_top = 1, .groups = 4});
       },
       {"c (conv): has 4 groups", "the 6 output channels"}},
      {[](Values& v) {
         v.graph.conv(v.image, "c", 4, {.kernel_h = 3, .kernel_w = 3, .stride_h = 1, .pad_top = 1, .dilation_h = 5});
       },
       {"c (conv): its window of 11 x 11 is larger", "at most 10 x 10"}},
      {[](Values& v) { v.graph.conv_transpose(v.rows, "t", 4, kThree); }, {"t (conv_transpose): x is rows"}},
      {[](Values& v) { v.graph.conv_transpose(v.image, "t", 0, kThree); },
       {"t (conv_transpose): has 0 output channels"}},
      {[](Values& v) {
         v.graph.conv_transpose(v.image, "t", 4, {3, 3, 2, 1}, 2);
       },
       {"t (conv_transpose): writes 2 more rows or columns; must be fewer than its stride of 2"}},
      {[](Values& v) {
         v.graph.conv_transpose(v.image, "t", 4, {1, 1, 1, 9});
       },
       {"t (conv_transpose): would write -10 rows or columns"}},
      {[](Values& v) {
         v.graph.conv_transpose(v.image, "t", 3,
                                {.kernel_h = 3, .kernel_w = 3, .stride_h = 1, .pad_top = 1, .groups = 2});
       },
       {"t (conv_transpose): has 2 groups", "the 3 output channels"}},
      {[](Values& v) { v.graph.batch_norm(v.rows, "n"); }, {"n (batch_norm): x is rows [6,12] of f32; must be images"}},
      {[](Values& v) { v.graph.batch_norm(v.image, "n", 0.0f); },
       {"n (batch_norm): is given epsilon 0", "NormAttribute"}},
      {[](Values& v) { v.graph.batch_norm(v.image, "n", 1e-5f, 2.0f); }, {"n (batch_norm): is given", "momentum 2"}},
      {[](Values& v) { v.graph.group_norm(v.rows, "n", 1); },
       {"n (group_norm): x is rows [6,12] of f32; must be images"}},
      {[](Values& v) { v.graph.group_norm(v.image, "n", 3); },
       {"n (group_norm): has 3 groups; they must be 1 or more and divide the 4 channels of x"}},
      {[](Values& v) { v.graph.group_norm(v.image, "n", 0); }, {"n (group_norm): has 0 groups"}},
      {[](Values& v) { v.graph.group_norm(v.image, "n", 2, 0.0f); },
       {"n (group_norm): is given epsilon 0", "NormAttribute"}},
      {[](Values& v) { v.graph.relu(v.tokens, "r"); }, {"r (relu): x is tokens [2,3] of i32; must be of f32"}},
      {[](Values& v) { v.graph.gelu(v.tokens, "g", true); }, {"g (gelu): x is tokens"}},
      {[](Values& v) { v.graph.multiply(v.rows, v.sequence, "m"); },
       {"m (multiply): b is sequence [2,3,12] of f32; must be [6,12], or its last dimensions"}},
      {[](Values& v) { v.graph.multiply(v.rows, v.table, "m"); },
       {"m (multiply): b is table [7,12] of f32; must be what a node writes, or the input"}},
      {[](Values& v) { v.graph.multiply(v.tokens, v.rows, "m"); }, {"m (multiply): a is tokens"}},
      {[](Values& v) { v.graph.multiply(v.rows, kNoValue, "m"); }, {"m (multiply): b is no value of this graph"}},
      {[](Values& v) { v.graph.add(v.sequence, v.bias, "a"); },
       {"a (add): b is table.bias [7] of f32; must be what a node writes, or the input"}},
      {[](Values& v) { v.graph.learned("w", {}, InitKind::kConstant, 1); }, {"w (learned): has no dimension"}},
      {[](Values& v) {
         v.graph.learned("w", {2, 0}, InitKind::kConstant, 1);
       },
       {"w: a tensor of [2,0]; must have no dimension of 0"}},
      {[](Values& v) { v.graph.learned("table", {2}, InitKind::kConstant, 1); },
       {"table: a second tensor of that name"}},
      {[](Values& v) { v.graph.learned("w", {2}, InitKind::kTable, 1); }, {"w (learned): begins as a table's numbers"}},
      {[](Values& v) { v.graph.drop_path(v.rows, "d", 1.0f); },
       {"d (dropout): is given probability 1", "DropoutAttribute"}},
      {[](Values& v) { v.graph.drop_path(v.tokens, "d", 0.5f); }, {"d (dropout): x is tokens"}},
      {[](Values& v) { v.graph.unary(v.tokens, "u", {}); }, {"u (unary): x is tokens"}},
      {[](Values& v) { v.graph.unary(v.rows, "u", {kUnaryFunctionCount}); },
       {"u (unary): is given function " + std::to_string(kUnaryFunctionCount) + ", parameter 0", "UnaryAttribute"}},
      {[](Values& v) {
         v.graph.unary(v.rows, "u", {static_cast<uint32_t>(UnaryFunction::kTanh), 1});
       },
       {"u (unary): is given function 7, parameter 1"}},
      {[nan](Values& v) {
         v.graph.unary(v.rows, "u", {static_cast<uint32_t>(UnaryFunction::kElu), nan});
       },
       {"u (unary): is given", "parameter nan"}},
      {[](Values& v) { v.graph.add(v.rows, v.sequence, "a"); },
       {"a (add): b is sequence [2,3,12] of f32; must be [6,12]"}},
      {[](Values& v) { v.graph.swiglu(v.rows, v.sequence, "s"); },
       {"s (swiglu): up is sequence [2,3,12] of f32; must be [6,12]"}},
      {[](Values& v) { v.graph.max_pool(v.rows, "p", kThree); }, {"p (max_pool): x is rows"}},
      {[](Values& v) {
         v.graph.max_pool(v.image, "p", {2, 2, 2, 2});
       },
       {"p (max_pool): is padded by 2, 2, 2 and 2", "must be by less"}},
      {[](Values& v) {
         v.graph.max_pool(v.image, "p", {20, 20, 1, 10});
       },
       {"p (max_pool): its window has 400 places; must have at most 256"}},
      {[](Values& v) {
         v.graph.max_pool(v.image, "p", {.kernel_h = 2, .kernel_w = 2, .stride_h = 2, .pad_top = 0, .pad_bottom = 3});
       },
       {"p (max_pool): is padded by 0, 0, 3 and 0"}},
      {[](Values& v) { v.graph.avg_pool(v.rows, "p", kThree); }, {"p (avg_pool): x is rows"}},
      {[](Values& v) {
         v.graph.avg_pool(v.image, "p", {2, 2, 2, 2});
       },
       {"p (avg_pool): is padded by 2"}},
      {[](Values& v) {
         v.graph.avg_pool(v.image, "p", {.kernel_h = 2, .kernel_w = 2, .stride_h = 2, .pad_top = 0, .groups = 2});
       },
       {"p (avg_pool): has 2 groups"}},
      {[](Values& v) { v.graph.global_pool(v.rows, "p"); },
       {"p (global_pool): x is rows [6,12] of f32; must be images, [N,H,W,C], or sequences, [N,T,C]"}},
      {[](Values& v) { v.graph.linear(v.tokens, "l", 4, false, false, 1); }, {"l (linear): x is tokens"}},
      {[](Values& v) { v.graph.linear(v.rows, "l", 0, false, false, 1); }, {"l (linear): has 0 output features"}},
      {[](Values& v) { v.graph.linear(v.rows, "l", 4, false, false, 1, kNoValue, v.table); },
       {"l (linear): has half an adapter"}},
      {[](Values& v) { v.graph.linear(v.rows, "l", 7, false, false, 1, v.sequence, v.table); },
       {"l (linear): hidden is sequence; must be what low_rank() wrote"}},
      {[](Values& v) {
         const ValueId hidden = v.graph.low_rank(v.wide, "l", 12, 1);
         v.graph.linear(v.rows, "l", 7, false, false, 1, hidden, v.table);
       },
       {"l (linear): hidden has 2 rows; must have the 6 of x"}},
      {[](Values& v) {
         const ValueId hidden = v.graph.low_rank(v.rows, "l", 5, 1);
         v.graph.linear(v.rows, "l", 7, false, false, 1, hidden, v.table);
       },
       {"l (linear): up is table [7,12] of f32; must be [7,5]"}},
      {[](Values& v) { v.graph.low_rank(v.rows, "l", 0, 1); }, {"l.lora_A (linear): has rank 0"}},
      {[](Values& v) { v.graph.dora(v.rows, "l", false); },
       {"l.dora (dora): z is rows", "must be what a linear layer with an adapter and without a bias wrote"}},
      {[nan](Values& v) { v.graph.low_rank(v.rows, "l", 2, nan); },
       {"l.lora_A (linear): is given input_major 0, scale nan", "LinearAttribute"}},
      {[](Values& v) { v.graph.layer_norm(v.tokens, "n", 1e-5f); }, {"n (layer_norm): x is tokens"}},
      {[nan](Values& v) { v.graph.layer_norm(v.rows, "n", nan); }, {"n (layer_norm): is given epsilon nan"}},
      {[](Values& v) { v.graph.rms_norm(v.rows, "n", 2.0f); }, {"n (rms_norm): is given epsilon 2"}},
      {[](Values& v) { v.graph.rms_norm(v.rows, "n", 1e-5f, 5); },
       {"n (rms_norm): normalises 5 columns; they must divide the 12 of x"}},
      {[](Values& v) { v.graph.embedding(v.rows, "e", v.table, kNoValue); },
       {"e (embedding): tokens is rows [6,12] of f32; must be of i32"}},
      {[](Values& v) { v.graph.embedding(v.tokens, "e", v.bias, kNoValue); },
       {"e (embedding): table is [7]; must be [V,C]"}},
      {[](Values& v) { v.graph.embedding(v.tokens, "e", kNoValue, kNoValue); }, {"e (embedding): table is no value"}},
      {[](Values& v) {
         const ValueId few = v.graph.parameter("few", {2, 12}, InitKind::kNormal, 1);
         v.graph.embedding(v.tokens, "e", v.table, few);
       },
       {"e (embedding): positions are [2,12]; must be [3 or more,12]"}},
      {[](Values& v) {
         v.graph.attention(v.rows, "t", {2, 2, 0, 0});
       },
       {"t (attention): qkv is rows [6,12] of f32; must be sequences of channels, [B,T,C]"}},
      {[](Values& v) {
         v.graph.attention(v.sequence, "t", {0, 1, 0, 0});
       },
       {"t (attention): is given heads 0", "AttentionAttribute"}},
      {[](Values& v) {
         v.graph.attention(v.sequence, "t", {3, 2, 0, 0});
       },
       {"t (attention): is given heads 3, kv_heads 2"}},
      {[](Values& v) {
         v.graph.attention(v.sequence, "t", {2, 2, 1.0f, 0});
       },
       {"t (attention): is given", "dropout 1"}},
      {[](Values& v) {
         v.graph.attention(v.sequence, "t", {3, 1, 0, 0});
       },
       {"t (attention): qkv has 12 columns", "its 5 heads"}},
      {[](Values& v) {
         v.graph.attention(v.wide, "t", {1, 1, 0, 0});
       },
       {"t (attention): qkv has 1000 columns", "its 3 heads"}},
      {[](Values& v) {
         v.graph.attention(v.graph.add_value("w", ValueKind::kActivation, {1, 2, 900}), "t", {1, 1, 0, 0});
       },
       {"t (attention): has heads of 300 columns; must be of at most 256"}},
      {[](Values& v) {
         v.graph.attention(v.sequence, "t", {2, 2, 0, 0}, v.rows);
       },
       {"t (attention): document_start is rows [6,12] of f32; must be of i32"}},
      {[](Values& v) {
         v.graph.attention(v.wide, "t", {498, 1, 0, 0}, v.starts);
       },
       {"t (attention): document_start is starts [2,3] of i32; must be [1,2]"}},
      {[](Values& v) { v.graph.rope(v.rows, v.rows, v.rows, "o", kRope); }, {"o (rope): q is rows"}},
      {[](Values& v) { v.graph.rope(v.sequence, v.sequence, v.sequence, "o", kRope); },
       {"o (rope): k is sequence [2,3,12] of f32; must be [2,3,6]"}},
      {[](Values& v) {
         v.graph.rope(v.sequence, v.sequence, v.sequence, "o", {5, 1, 2, 0, 10000});
       },
       {"o (rope): q has 12 columns", "its 5 heads"}},
      {[](Values& v) {
         v.graph.rope(v.sequence, v.sequence, v.sequence, "o", {1, 1, 14, 0, 10000});
       },
       {"o (rope): turns 14 columns of a head; must be at most its 12"}},
      {[](Values& v) {
         v.graph.rope(v.sequence, v.sequence, v.sequence, "o", {1, 1, 3, 0, 10000});
       },
       {"o (rope): is given heads 1", "RopeAttribute"}},
      {[](Values& v) {
         v.graph.rope(v.sequence, v.sequence, v.sequence, "o", {1, 1, 4, 0, 10000}, v.starts, v.bias);
       },
       {"o (rope): frequencies is table.bias [7] of f32; must be [2]"}},
      {[](Values& v) { v.graph.dropout(v.rows, "d", 1.0f); },
       {"d (dropout): is given probability 1", "DropoutAttribute"}},
      {[](Values& v) { v.graph.dropout(v.tokens, "d", 0.5f); }, {"d (dropout): x is tokens"}},
      {[](Values& v) { v.graph.loss_head(v.sequence, "h", v.bias, kNoValue); },
       {"h (loss_head): weight is table.bias [7] of f32; must be [7,12]"}},
      {[](Values& v) { v.graph.loss_head(v.sequence, "h", v.table, v.table); },
       {"h (loss_head): bias is table [7,12] of f32; must be [7]"}},
      {[](Values& v) {
         v.graph.labels = kNoValue;
         v.graph.loss_head(v.sequence, "h", v.table, kNoValue);
       },
       {"h (loss_head): the graph has no labels"}},
      {[](Values& v) {
         v.graph.labels = v.graph.add_value("five", ValueKind::kLabels, {5}, DType::kI32);
         v.graph.loss_head(v.sequence, "h", v.table, kNoValue);
       },
       {"h (loss_head): there are 5 labels; must be one for each of the 6 rows of x"}},
      {[](Values& v) {
         v.graph.loss_head(v.sequence, "h", v.table, kNoValue);
         v.graph.relu(v.sequence, "r");
       },
       {"r (relu): stands behind the loss"}},
      {[](Values& v) {
         v.graph.linear(v.rows, "l", 4, false, false, 1);
         v.graph.linear(v.rows, "l", 4, false, false, 1);
       },
       {"l.weight: a second tensor of that name"}},
      {[](Values& v) {
         v.graph.add_value("deep", ValueKind::kActivation, {1, 2, 3, 4, 5});
       },
       {"deep: a tensor of [1,2,3,4,5]; must have at most four dimensions"}},
      {[](Values& v) {
         v.graph.add_value("none", ValueKind::kActivation, {3, 0});
       },
       {"none: a tensor of [3,0]; must have no dimension of 0"}},
      {[](Values& v) {
         v.graph.linear(v.rows, "l", 1u << 31, false, false, 1),
             v.graph.add_value("huge", ValueKind::kActivation, {1u << 31, 1u << 10});
       },
       {"huge: a tensor of [2147483648,1024]; must have at most 2^40 elements"}},
      {[](Values& v) { v.graph.columns(v.rows, "c", 10, 3); }, {"c (columns): takes 3 columns from 10 on; x has 12"}},
      {[](Values& v) { v.graph.columns(v.rows, "c", 0, 0); }, {"c (columns): takes 0 columns"}},
      {[](Values& v) { v.graph.slice(v.sequence, "s", 0, 0, 1); },
       {"s (columns): works along dimension 0; must be 1 to 2 (dimension 0 counts samples)"}},
      {[](Values& v) { v.graph.slice(v.sequence, "s", 3, 0, 1); },
       {"s (columns): works along dimension 3; must be 1 to 2"}},
      {[](Values& v) { v.graph.slice(v.sequence, "s", 1, 2, 2); },
       {"s (columns): takes 2 places from 2 on along dimension 1; x has 3"}},
      {[](Values& v) {
         v.graph.slice(v.sequence, "s", {0, 0}, {2, 3});
       },
       {"s (columns): begins at [0,0] and takes [2,3]; must have a number for each dimension of x, [2,3,12]"}},
      {[](Values& v) {
         v.graph.slice(v.sequence, "s", {1, 0, 0}, {1, 3, 12});
       },
       {"s (columns): takes 1 samples from 1 on; must take all 2, dimension 0 of x"}},
      {[](Values& v) { v.graph.slice(v.bias, "s", 1, 0, 1); },
       {"s (columns): x is table.bias [7] of f32; must be what a node writes"}},
      {[](Values& v) {
         v.graph.pad(v.image, "p", {0, 1}, {0, 1});
       },
       {"p (pad): is padded by [0,1] before and [0,1] behind; must have a number for each dimension"}},
      {[](Values& v) {
         v.graph.pad(v.image, "p", {1, 1, 1, 0}, {0, 0, 0, 0});
       },
       {"p (pad): pads dimension 0, which counts samples"}},
      {[](Values& v) {
         v.graph.pad(v.rows, "p", {0, 0xffffffffu}, {0, 1});
       },
       {"p (pad): pads dimension 1 to more than 2^32 places"}},
      {[](Values& v) { v.graph.concat({v.rows}, "c", 1); }, {"c (concat): joins 1 values; must join at least two"}},
      {[](Values& v) {
         v.graph.concat({v.rows, v.rows}, "c", 0);
       },
       {"c (concat): works along dimension 0; must be 1 to 1"}},
      {[](Values& v) {
         v.graph.concat({v.image, v.sequence}, "c", 1);
       },
       {"c (concat): part 1 is sequence [2,3,12] of f32; must be [2,3,8,4]"}},
      {[](Values& v) {
         v.graph.concat({v.sequence, v.wide}, "c", 1);
       },
       {"c (concat): part 1 is wide [1,2,1000] of f32; must be [2,2,12]"}},
      {[](Values& v) {
         v.graph.concat({v.sequence, v.tokens}, "c", 1);
       },
       {"c (concat): part 1 is tokens [2,3] of i32; must be of f32"}},
      {[](Values& v) {
         v.graph.reshape(v.sequence, "r", {2, 35});
       },
       {"r (reshape): becomes [2,35]; must have the 72 elements of x, [2,3,12]"}},
      {[](Values& v) {
         v.graph.reshape(v.sequence, "r", {2, 3, 2, 3, 2});
       },
       {"r (reshape): becomes [2,3,2,3,2]; must have one to four dimensions"}},
      {[](Values& v) { v.graph.reshape(v.sequence, "r", {}); },
       {"r (reshape): becomes []; must have one to four dimensions"}},
      {[](Values& v) {
         v.graph.transpose(v.sequence, "t", {1, 0, 2});
       },
       {"t (transpose): has the order [1,0,2]; must begin with 0"}},
      {[](Values& v) {
         v.graph.transpose(v.sequence, "t", {0, 1, 1});
       },
       {"t (transpose): has the order [0,1,1]", "each of the 3 dimensions of x once"}},
      {[](Values& v) {
         v.graph.transpose(v.sequence, "t", {0, 1});
       },
       {"t (transpose): has the order [0,1]", "each of the 3 dimensions of x once"}},
      {[](Values& v) { v.graph.softmax(v.tokens, "s"); }, {"s (softmax): x is tokens [2,3] of i32; must be of f32"}},
      {[](Values& v) { v.graph.product(v.sequence, v.sequence, "p"); },
       {"p (product): b is sequence [2,3,12] of f32; must be [2,12,12]"}},
      {[](Values& v) {
         v.graph.product(v.sequence, v.rows, "p", {0, 1});
       },
       {"p (product): b is rows"}},
      {[](Values& v) {
         v.graph.product(v.sequence, v.sequence, "p", {0, 2});
       },
       {"p (product): is given", "turned_b 2"}},
      {[](Values& v) { v.graph.learned_rows("r", {4}, {0}, InitKind::kConstant, 1); },
       {"r (learned_rows): is [4]; must be [rows,columns]"}},
      {[](Values& v) {
         v.graph.learned_rows("r", {4, 2}, {}, InitKind::kConstant, 1);
       },
       {"r (learned_rows): names no row"}},
      {[](Values& v) {
         v.graph.learned_rows("r", {4, 2}, {0, 4}, InitKind::kConstant, 1);
       },
       {"r (learned_rows): names row 4", "of 4"}},
      {[](Values& v) {
         v.graph.learned_rows("r", {4, 2}, {0.5f}, InitKind::kConstant, 1);
       },
       {"r (learned_rows): names row 0.5", "of 4"}},
      {[](Values& v) { v.graph.resize(v.sequence, "z", 4, 4, ResizeKind::kNearest); },
       {"z (resize): x is sequence [2,3,12] of f32; must be images"}},
      {[](Values& v) { v.graph.resize(v.image, "z", 0, 4, ResizeKind::kNearest); },
       {"z (resize): makes 0 x 4 of 8 x 8; each must be 1 to 1048576"}},
      {[](Values& v) { v.graph.resize(v.image, "z", 4, 4, static_cast<ResizeKind>(3)); },
       {"z (resize): is given kind 3", "ResizeAttribute"}},
      {[](Values& v) { v.graph.geglu(v.rows, v.wide, "g"); }, {"g (geglu): up is wide"}},
      {[](Values& v) { v.graph.rms_norm(v.rows, "n", 1e-5f, 0, 0.5f); }, {"n (rms_norm): is given", "offset 0.5"}},
      {[](Values& v) {
         v.graph.attention(v.sequence, "t", {.heads = 2, .kv_heads = 2, .dropout = 0, .stream = 0, .softcap = -1});
       },
       {"t (attention): is given", "softcap -1"}},
      {[](Values& v) {
         v.graph.attention(v.sequence, "t",
                           {.heads = 2, .kv_heads = 2, .dropout = 0, .stream = 0, .window = 2, .causal = 0});
       },
       {"t (attention): has a window of 2 and is not causal; must be causal, or have none"}},
      {[](Values& v) {
         v.graph.attention(v.sequence, "t", {.heads = 2, .kv_heads = 2, .dropout = 0, .stream = 0, .causal = 2});
       },
       {"t (attention): is given", "causal 2"}},
      {[](Values& v) { v.graph.cut(v.image); }, {"a cut: image is no node's main output"}},
      {[](Values& v) { v.graph.cut(999); }, {"a cut: it is no node's main output"}},
  };
  for (size_t i = 0; i < refusals.size(); ++i) {
    SCOPED_TRACE(i);
    Values values;
    try {
      refusals[i].build(values);
      ADD_FAILURE() << "accepted; expected " << refusals[i].said[0];
    } catch (const UserError& error) {
      const std::string line = error.what();
      EXPECT_EQ(line.find('\n'), std::string::npos);
      for (const std::string& said : refusals[i].said)
        EXPECT_NE(line.find(said), std::string::npos) << "no " << said << " in: " << line;
    }
  }
}

// A concat has at most eight parts. So twenty parts need three concats, and a fourth that joins
// their outputs. The second part is a copy of the first, because a row may not name a value twice.
TEST(Graph, ConcatTakesAnyNumberOfParts) {
  Values v;
  std::vector<ValueId> parts = {v.rows, v.rows};
  while (parts.size() < 20)
    parts.push_back(v.graph.columns(v.rows, "part" + std::to_string(parts.size()), 0,
                                    std::min(12u, static_cast<uint32_t>(parts.size() - 1))));
  const size_t before = v.graph.nodes.size();
  const ValueId y = v.graph.concat(parts, "all", 1);
  EXPECT_EQ(shape_of(v.graph.tensor(y)), (Shape{6, 24 + 12 * 13 / 2 + 12 * 6}));
  std::vector<size_t> joined;
  for (size_t i = before; i < v.graph.nodes.size(); ++i) {
    if (v.graph.nodes[i].op == Op::kConcat) joined.push_back(v.graph.nodes[i].inputs.size());
  }
  EXPECT_EQ(joined, (std::vector<size_t>{8, 8, 4, 3}));
  EXPECT_EQ(v.graph.nodes.size(), before + 5) << "a copy of rows beside four of concat";
}

TEST(Graph, ActivationsAreStoredAlike) {
  Values values(DType::kBf16);
  const ValueId narrow = values.graph.add_value("narrow", ValueKind::kActivation, {6, 12}, DType::kF32);
  expect_user_error([&] { values.graph.relu(narrow, "r"); }, {"r (relu): x is narrow [6,12] of f32; must be of bf16"});
  EXPECT_NO_THROW(values.graph.relu(values.rows, "r"));
}

// A value that crosses a cut in addition to the boundary is kept until its last reader, and so are
// the other outputs of its node. Such values are not in the chain.
TEST(Graph, AValueThatCrossesACutIsASkip) {
  Graph graph = SkipNetwork::build();
  ChainBodies bodies = cut_into_links(graph);
  std::vector<std::string> held;
  size_t gradients = 0;
  for (const Value& value : graph.values) {
    if (value.kind == ValueKind::kSkip) held.push_back(value.name);
    gradients += value.kind == ValueKind::kSkipGradient ? 1 : 0;
  }
  EXPECT_EQ(held, (std::vector<std::string>{"twin", "top", "down", "pool2", "pool2.index"}));
  EXPECT_EQ(gradients, 4u) << "indices have none";
  solve_links(graph, bodies.links, kNoScratch, convolution_flops);
  const Chain chain = chain_of(graph, bodies.links);
  EXPECT_EQ(chain.boundary_bytes(1), 0u) << "top is held";
  EXPECT_EQ(chain.boundary_bytes(2), graph.tensor(bodies.links[1].output).bytes);
  std::vector<std::string> repeats;
  for (const Call& call : bodies.links[0].forward) {
    if (repeated(call)) repeats.push_back(kernel_info(call.op, call.pass).name);
  }
  EXPECT_EQ(repeats, (std::vector<std::string>{"conv.forward", "conv.forward"}))
      << "what backwards read; all else is held, or computed for that alone";
}

// Tests which ops node_that_sees_ahead() reports because they mix positions. If a language model
// contains such an op, its output may depend on the token that it must predict.
TEST(Graph, AnOpThatDoesNotKeepPositionsApartSeesAhead) {
  using Append = std::function<void(Graph&, ValueId)>;
  const std::pair<const char*, Append> all[] = {
      {"", [](Graph& g, ValueId x) { g.layer_norm(g.linear(x, "fc", 12, false, true, 1), "ln", 1e-5f); }},
      {"", [](Graph& g, ValueId x) { g.add(x, g.learned("p", {4, 12}, InitKind::kNormal, 1), "sum"); }},
      {"", [](Graph& g, ValueId x) { g.slice(g.reshape(x, "heads", {1, 4, 3, 4}), "part", 2, 1, 2); }},
      {"turn", [](Graph& g, ValueId x) { g.transpose(x, "turn", {0, 2, 1}); }},
      {"shift", [](Graph& g, ValueId x) { g.slice(x, "shift", 1, 1, 3); }},
      {"pad", [](Graph& g, ValueId x) { g.pad(x, "pad", {0, 1, 0}, {0, 0, 0}); }},
      {"mix", [](Graph& g, ValueId x) { g.reshape(x, "mix", {1, 12, 4}); }},
      {"mean", [](Graph& g, ValueId x) { g.global_pool(x, "mean"); }},
      {"all", [](Graph& g, ValueId x) { g.product(x, x, "all", {1, 0}); }},
      {"double", [](Graph& g, ValueId x) { g.concat({x, g.relu(x, "r")}, "double", 1); }},
  };
  for (const auto& [name, append] : all) {
    Graph graph;
    graph.input = graph.add_value("tokens", ValueKind::kInput, {1, 4}, DType::kI32);
    append(graph,
           graph.embedding(graph.input, "wte", graph.parameter("wte.weight", {9, 12}, InitKind::kNormal, 1), kNoValue));
    const Node* node = node_that_sees_ahead(graph);
    EXPECT_EQ(node == nullptr ? "" : node->name, name);
  }
}

TEST(Graph, WhatSeesAheadGeneratesNothing) {
  for (const uint32_t causal : {1u, 0u}) {
    Graph graph;
    graph.input = graph.add_value("tokens", ValueKind::kInput, {1, 4}, DType::kI32);
    const ValueId x =
        graph.embedding(graph.input, "wte", graph.parameter("wte.weight", {9, 12}, InitKind::kNormal, 1), kNoValue);
    graph.attention(x, "core", {.heads = 2, .kv_heads = 2, .dropout = 0, .stream = 0, .causal = causal});
    EXPECT_EQ(node_that_sees_ahead(graph) == nullptr, causal == 1);
    if (causal == 1) {
      EXPECT_EQ(generation_calls(graph, 8).caches.size(), 2u);
    } else {
      expect_user_error([&] { generation_calls(graph, 8); },
                        {"core (attention): reads what stands behind", "must be causal"});
    }
  }
}

TEST(Graph, WithoutAnInputOrALossThereIsNoChain) {
  Values v;
  v.graph.relu(v.image, "a");
  expect_user_error([&] { cut_into_links(v.graph); }, {"the graph has no loss"});
  v.graph.input = kNoValue;
  expect_user_error([&] { cut_into_links(v.graph); }, {"the graph has no input"});
}

// Requires that each kernel of these calls accepts its call by its own contract, which shares no
// code with the builders' rules.
void expect_kernels_take(const Graph& graph, const std::vector<Call>& calls) {
  const AttributePools pools = graph.attributes.pools();
  for (const Call& call : calls) {
    const KernelInfo& kernel = kernel_info(call.op, call.pass);
    const ShapedKernelCall shaped(kernel_call(graph, call), pools);
    EXPECT_EQ(kernel.shape_fault(shaped.shaped()), Fault::kNone) << kernel.name;
    for (size_t a = 0; a < call.arguments.size(); ++a) {
      if (call.arguments[a] == kNoValue) {
        EXPECT_TRUE(kernel.arguments[a].optional) << kernel.name << ' ' << kernel.arguments[a].name;
      } else {
        EXPECT_TRUE(may_store(kernel.arguments[a].storage, graph.tensor(call.arguments[a]).dtype))
            << kernel.name << ' ' << kernel.arguments[a].name;
      }
    }
  }
}

// Adds random nodes over random values. A node must either be refused in one line that names it, or
// its kernels must accept it.
class RandomNode {
 public:
  RandomNode(Graph& graph, uint64_t seed) : graph_(graph), random_(seed) {
    for (int i = 0; i < 6; ++i) add_value(i);
    graph_.input = 1;
    graph_.labels = graph_.add_value("labels", ValueKind::kLabels, {below(4) + 1}, DType::kI32);
  }

  void build() {
    WindowAttribute window = {small(), small(), small(), small()};
    if (below(2) == 0) {
      window.stride_w = small(), window.pad_left = small(), window.pad_bottom = small(), window.pad_right = small();
      window.dilation_h = small(), window.dilation_w = small(), window.groups = below(4);
    }
    const RopeAttribute rope = {below(4), below(4), below(6), 0, 10000};
    const std::string name = "node";
    switch (below(34)) {
      case 0: graph_.conv(any(), name, below(4), window, below(2) == 0); break;
      case 1: graph_.batch_norm(any(), name); break;
      case 2: graph_.relu(any(), name); break;
      case 3: graph_.add(any(), any(), name); break;
      case 4: graph_.max_pool(any(), name, window); break;
      case 5: graph_.global_pool(any(), name); break;
      case 6: graph_.linear(any(), name, below(5), below(2) == 0, below(2) == 0, 1); break;
      case 7: graph_.layer_norm(any(), name, 1e-5f); break;
      case 8: graph_.rms_norm(any(), name, 1e-5f, below(4)); break;
      case 9: graph_.swiglu(any(), any(), name); break;
      case 10: graph_.embedding(any(), name, any(), below(2) == 0 ? kNoValue : any()); break;
      case 11:
        graph_.attention(any(), name, {below(4), below(4), 0, 0, below(4), 0, 0, below(2)},
                         below(2) == 0 ? kNoValue : any());
        break;
      case 12: {
        const ValueId q = any(), k = below(2) == 0 ? q : any();
        graph_.rope(q, k, k, name, rope, below(2) == 0 ? kNoValue : any(), below(2) == 0 ? kNoValue : any());
        break;
      }
      case 13:
        graph_.linear(any(), name, below(5), false, false, 1,
                      below(2) == 0 ? kNoValue : graph_.low_rank(any(), name, below(3), 1), any());
        break;
      case 14: graph_.group_norm(any(), name, below(5)); break;
      case 15: graph_.geglu(any(), any(), name); break;
      case 16: graph_.columns(any(), name, below(3), below(5)); break;
      case 17: graph_.unary(any(), name, {below(std::size(kUnaryFunctions)), below(2) == 0 ? 0.0f : 1.0f}); break;
      case 18: graph_.slice(any(), name, below(4), below(3), below(4)); break;
      case 19: graph_.pad(any(), name, {0, below(3), below(2)}, {0, below(2), below(3)}); break;
      case 20: {
        std::vector<ValueId> parts(1 + below(10), any());
        if (below(2) == 0) parts.push_back(any());
        graph_.concat(parts, name, below(4));
        break;
      }
      case 21: graph_.reshape(any(), name, {below(4) + 1, below(4) + 1, below(4) + 1}); break;
      case 22: graph_.transpose(any(), name, {0, 1 + below(3), 1 + below(3)}); break;
      case 23: graph_.resize(any(), name, below(4), below(4), static_cast<ResizeKind>(below(4))); break;
      case 24: graph_.avg_pool(any(), name, window); break;
      case 25: graph_.conv_transpose(any(), name, below(4), window, below(2), below(2), below(2) == 0); break;
      case 26: graph_.multiply(any(), any(), name); break;
      case 27: graph_.drop_path(any(), name, 0.5f); break;
      case 28: graph_.add(any(), graph_.learned(name, {below(4) + 1}, InitKind::kConstant, 1), name); break;
      case 29: graph_.softmax(any(), name); break;
      case 30: graph_.product(any(), any(), name, {below(3), below(2)}); break;
      case 31:
        graph_.add(any(),
                   graph_.learned_rows(name, {below(4) + 1, below(4) + 1}, {0, static_cast<float>(below(3))},
                                       InitKind::kConstant, 1),
                   name);
        break;
      case 32: graph_.detach(any(), name); break;
      default: graph_.loss_head(any(), name, any(), below(2) == 0 ? kNoValue : any()); break;
    }
  }

 private:
  uint32_t below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }
  uint16_t small() { return static_cast<uint16_t>(below(4)); }
  ValueId any() { return 1 + below(static_cast<uint32_t>(graph_.values.size()) - 1); }
  void add_value(int i) {
    Shape shape;
    for (uint32_t rank = below(4) + 1; rank > 0; --rank) shape.push_back(below(4) + 1);
    const ValueKind kinds[] = {ValueKind::kActivation, ValueKind::kActivation, ValueKind::kParameter,
                               ValueKind::kInput};
    const ValueKind kind = kinds[below(4)];
    graph_.add_value("v" + std::to_string(i), kind, shape,
                     kind == ValueKind::kInput && below(2) == 0 ? DType::kI32 : DType::kF32);
  }

  Graph& graph_;
  std::mt19937_64 random_;
};

TEST(Graph, WhatItTakesItsKernelsTake) {
  std::map<Op, int> taken;
  for (uint64_t seed = 0; seed < 60000; ++seed) {
    SCOPED_TRACE(seed);
    Graph graph;
    RandomNode node(graph, seed);
    try {
      node.build();
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find("node"), std::string::npos) << error.what();
      continue;
    }
    expect_kernels_take(graph, evaluation_calls(graph));
    expect_kernels_take(graph, graph.nodes.back().op == Op::kLossHead ? std::vector<Call>{}
                                                                      : forward_calls(graph, graph.nodes.back()));
    ++taken[graph.nodes.back().op];
    if (HasFailure()) return;
  }
  EXPECT_EQ(taken.size(), 30u) << "every op's rules must let something pass";
}

// ---- group-norm in a network ----

using Numbers = std::vector<double>;

// A network with group-norms: images, then a residual unit that begins with a norm, so that x has
// two readers, and a last norm before the head.
struct GroupNormNetwork {
  static constexpr uint32_t kN = 3, kH = 5, kW = 4, kIn = 3, kC = 6, kClasses = 4, kGroups = 2;
  static constexpr size_t kPixels = size_t{kN} * kH * kW;
  static constexpr float kEpsilon = 1e-3f;

  static Graph build(DType stored) {
    Graph g(stored);
    g.input = g.add_value("images", ValueKind::kInput, {kN, kH, kW, kIn});
    g.labels = g.add_value("labels", ValueKind::kLabels, {kN}, DType::kI32);
    const WindowAttribute pointwise = {1, 1, 1, 0};
    const ValueId x = g.conv(g.input, "stem", kC, pointwise);
    g.cut(x);
    const ValueId y = g.conv(g.group_norm(x, "norm1", kGroups, kEpsilon), "conv", kC, pointwise),
                  unit = g.add(x, y, "unit");
    g.cut(unit);
    const ValueId z = g.relu(g.group_norm(unit, "norm2", 3, kEpsilon), "relu"), pooled = g.global_pool(z, "pool");
    g.loss_head(pooled, "head", g.parameter("head.weight", {kClasses, kC}, InitKind::kNormal, 0.5f), kNoValue);
    return g;
  }

  // Returns the images, which are the same in every step.
  static std::vector<float> images() {
    std::mt19937 random(3);
    std::uniform_real_distribution<float> uniform(-1, 1);
    std::vector<float> pixels(kPixels * kIn);
    for (float& pixel : pixels) pixel = uniform(random);
    return pixels;
  }
  static BatchSource source() {
    return {nullptr, [](void*, uint64_t, uint32_t, BatchSink& sink) {
              const std::vector<float> pixels = images();
              const std::vector<Bf16> rounded(pixels.begin(), pixels.end());
              const int32_t labels[kN] = {2, 0, 3};
              const bool is_f32 = sink.input_bytes() == pixels.size() * sizeof(float);
              sink.add(is_f32 ? static_cast<const void*>(pixels.data()) : rounded.data(), sink.input_bytes(), labels,
                       kN);
              return ok_status();
            }};
  }
};

// Computes the loss of this network in double, from the equations of Wu & He.
class GroupNormReference {
 public:
  explicit GroupNormReference(const std::map<std::string, Numbers>& parameters) : parameters_(parameters) {}

  double loss() const {
    const std::vector<float> images = N::images();
    const Numbers x = conv(Numbers(images.begin(), images.end()), "stem");
    Numbers unit = conv(norm(x, "norm1", N::kGroups), "conv");
    for (size_t i = 0; i < x.size(); ++i) unit[i] += x[i];
    const Numbers z = norm(unit, "norm2", 3);
    const int32_t labels[N::kN] = {2, 0, 3};
    double total = 0;
    for (size_t n = 0; n < N::kN; ++n) {
      Numbers pooled(N::kC), logits(N::kClasses);
      for (size_t i = 0; i < kSample; ++i) pooled[i % N::kC] += std::max(z[n * kSample + i], 0.0) / (N::kH * N::kW);
      double sum = 0;
      for (size_t k = 0; k < N::kClasses; ++k) {
        for (size_t c = 0; c < N::kC; ++c) logits[k] += pooled[c] * parameters_.at("head.weight")[k * N::kC + c];
        sum += std::exp(logits[k]);
      }
      total += std::log(sum) - logits[static_cast<size_t>(labels[n])];
    }
    return total / N::kN;
  }

 private:
  using N = GroupNormNetwork;
  static constexpr size_t kSample = size_t{N::kH} * N::kW * N::kC;

  Numbers conv(const Numbers& x, const std::string& name) const {
    const Numbers& w = parameters_.at(name + ".weight");
    const size_t in = w.size() / N::kC;
    Numbers y(N::kPixels * N::kC);
    for (size_t i = 0; i < y.size(); ++i) {
      for (size_t c = 0; c < in; ++c) y[i] += x[i / N::kC * in + c] * w[i % N::kC * in + c];
    }
    return y;
  }
  Numbers norm(const Numbers& x, const std::string& name, size_t groups) const {
    const auto group = [&](size_t i) { return i / kSample * groups + i % N::kC * groups / N::kC; };
    const double count = static_cast<double>(kSample / groups);
    Numbers mean(N::kN * groups), variance(N::kN * groups), y(x.size());
    for (size_t i = 0; i < x.size(); ++i) mean[group(i)] += x[i] / count;
    for (size_t i = 0; i < x.size(); ++i)
      variance[group(i)] += (x[i] - mean[group(i)]) * (x[i] - mean[group(i)]) / count;
    for (size_t i = 0; i < x.size(); ++i) {
      const double z = (x[i] - mean[group(i)]) / std::sqrt(variance[group(i)] + static_cast<double>(N::kEpsilon));
      y[i] = z * parameters_.at(name + ".weight")[i % N::kC] + parameters_.at(name + ".bias")[i % N::kC];
    }
    return y;
  }

  const std::map<std::string, Numbers>& parameters_;
};

Recipe group_norm_recipe(DType stored) {
  Recipe recipe;
  recipe.name = "group-norm";
  recipe.accumulate = 2;
  recipe.clip_norm = 100;
  recipe.seed = 5;
  recipe.dtype = stored == DType::kBf16 ? Recipe::Dtype::kBf16 : Recipe::Dtype::kF32;
  recipe.optimizer.update = Op::kAdamW;
  recipe.optimizer.lr = 0.02;
  return recipe;
}

TEST(GroupNorm, GradientsAreThoseOfTheWholeNetwork) {
  expect_gradients_of_the_loss(
      group_norm_recipe(DType::kF32), GroupNormNetwork::build(DType::kF32), GroupNormNetwork::source(),
      [](const ParametersInDouble& parameters) { return GroupNormReference(parameters).loss(); }, 7);
}

TEST(GroupNorm, TrainsWithTheSameBitsUnderEverySchedule) {
  for (const DType stored : {DType::kF32, DType::kBf16}) {
    expect_same_bits_under_every_schedule(group_norm_recipe(stored), GroupNormNetwork::build(stored),
                                          GroupNormNetwork::source());
  }
}

// ---- batch-norms by running statistics in a network ----

// A network with three norms. bn1 is frozen. bn2 trains only its beta, after a frozen convolution.
// bn3 is trained and so uses the statistics of the batch. The initial running statistics differ
// from the statistics of every batch.
struct FixedNormNetwork {
  static constexpr uint32_t kN = 3, kH = 5, kW = 4, kIn = 3, kC = 6, kClasses = 4;
  static constexpr size_t kPixels = size_t{kN} * kH * kW;
  static constexpr float kEpsilon = 1e-3f, kMean = 0.125f, kVariance = 0.375f;

  static Graph build(DType stored) {
    Graph g(stored);
    g.input = g.add_value("images", ValueKind::kInput, {kN, kH, kW, kIn});
    g.labels = g.add_value("labels", ValueKind::kLabels, {kN}, DType::kI32);
    const auto layer = [&g](ValueId x, const std::string& n) {
      return g.relu(g.batch_norm(g.conv(x, "conv" + n, kC, {1, 1, 1, 0}), "bn" + n, kEpsilon), "relu" + n);
    };
    const ValueId x = layer(g.input, "1");
    g.cut(x);
    const ValueId y = g.add(layer(x, "2"), x, "unit");
    g.cut(y);
    const ValueId pooled = g.global_pool(layer(y, "3"), "pool");
    g.loss_head(pooled, "head", g.parameter("head.weight", {kClasses, kC}, InitKind::kNormal, 0.5f), kNoValue);
    const std::set<std::string> frozen = {"bn1.weight", "bn1.bias", "conv2.weight", "bn2.weight"};
    for (Value& value : g.values) {
      value.trainable = value.trainable && frozen.count(value.name) == 0;
      if (value.name.ends_with("running_mean")) value.init_scale = kMean;
      if (value.name.ends_with("running_var")) value.init_scale = kVariance;
    }
    return g;
  }
};

// Computes the loss of this network in double. bn1 and bn2 use constant statistics, bn3 those of
// the batch.
class FixedNormReference {
 public:
  explicit FixedNormReference(const ParametersInDouble& parameters) : parameters_(parameters) {}

  double loss() const {
    const std::vector<float> images = GroupNormNetwork::images();
    const Numbers x = layer(Numbers(images.begin(), images.end()), "1", true);
    Numbers unit = layer(x, "2", true);
    for (size_t i = 0; i < x.size(); ++i) unit[i] += x[i];
    const Numbers z = layer(unit, "3", false);
    const int32_t labels[N::kN] = {2, 0, 3};
    const size_t sample = z.size() / N::kN;
    double total = 0;
    for (size_t n = 0; n < N::kN; ++n) {
      Numbers logits(N::kClasses);
      double sum = 0;
      for (size_t k = 0; k < N::kClasses; ++k) {
        for (size_t i = 0; i < sample; ++i)
          logits[k] += z[n * sample + i] / (N::kH * N::kW) * parameters_.at("head.weight")[k * N::kC + i % N::kC];
        sum += std::exp(logits[k]);
      }
      total += std::log(sum) - logits[static_cast<size_t>(labels[n])];
    }
    return total / N::kN;
  }

 private:
  using N = FixedNormNetwork;

  Numbers layer(const Numbers& x, const std::string& n, bool is_skip) const {
    const Numbers &w = parameters_.at("conv" + n + ".weight"), &gamma = parameters_.at("bn" + n + ".weight"),
                  &beta = parameters_.at("bn" + n + ".bias");
    const size_t in = w.size() / N::kC;
    Numbers y(N::kPixels * N::kC), mean(N::kC, is_skip ? double{N::kMean} : 0),
        variance(N::kC, is_skip ? double{N::kVariance} : 0);
    for (size_t i = 0; i < y.size(); ++i) {
      for (size_t c = 0; c < in; ++c) y[i] += x[i / N::kC * in + c] * w[i % N::kC * in + c];
    }
    for (size_t i = 0; i < y.size() && !is_skip; ++i) mean[i % N::kC] += y[i] / N::kPixels;
    for (size_t i = 0; i < y.size() && !is_skip; ++i)
      variance[i % N::kC] += std::pow(y[i] - mean[i % N::kC], 2) / N::kPixels;
    for (size_t i = 0; i < y.size(); ++i) {
      const size_t c = i % N::kC;
      y[i] = std::max(0.0, (y[i] - mean[c]) / std::sqrt(variance[c] + double{N::kEpsilon}) * gamma[c] + beta[c]);
    }
    return y;
  }

  const ParametersInDouble& parameters_;
};

TEST(FixedNorm, GradientsAreThoseOfTheWholeNetwork) {
  expect_gradients_of_the_loss(
      group_norm_recipe(DType::kF32), FixedNormNetwork::build(DType::kF32), GroupNormNetwork::source(),
      [](const ParametersInDouble& parameters) { return FixedNormReference(parameters).loss(); }, 10);
}

TEST(FixedNorm, TrainsWithTheSameBitsUnderEveryScheduleAndKeepsItsStatistics) {
  for (const DType stored : {DType::kF32, DType::kBf16}) {
    const Recipe recipe = group_norm_recipe(stored);
    const Graph network = FixedNormNetwork::build(stored);
    expect_same_bits_under_every_schedule(recipe, network, GroupNormNetwork::source());
    const PlannedRun run = plan_run(recipe, network, "optimal", 0);
    const RunResult after = train_plan(run.planned.plan, GroupNormNetwork::source(), {.steps = 3});
    for (const char* name : {"bn1", "bn2", "bn3"}) {
      const bool is_skip = name != std::string("bn3");
      const std::vector<float> mean(FixedNormNetwork::kC, FixedNormNetwork::kMean),
          variance(FixedNormNetwork::kC, FixedNormNetwork::kVariance);
      EXPECT_EQ(state_values(run.planned.plan, after, name + std::string(".running_mean")) == mean, is_skip) << name;
      EXPECT_EQ(state_values(run.planned.plan, after, name + std::string(".running_var")) == variance, is_skip) << name;
    }
  }
}

// ---- windows of every kind in a network ----

// A network of convolutions with a bias, with groups, with one channel per group, with dilation,
// and with unequal strides and paddings; and with both kinds of pools.
struct WindowNetwork {
  static constexpr uint32_t kN = 3, kH = 13, kW = 11, kIn = 3, kC = 8, kClasses = 4;

  static Graph build(DType stored) {
    Graph g(stored);
    g.input = g.add_value("images", ValueKind::kInput, {kN, kH, kW, kIn});
    g.labels = g.add_value("labels", ValueKind::kLabels, {kN}, DType::kI32);
    const ValueId x = g.conv(
        g.input, "stem", kC,
        {.kernel_h = 3, .kernel_w = 3, .stride_h = 1, .pad_top = 0, .pad_left = 1, .pad_bottom = 2, .pad_right = 1},
        true);
    g.cut(x);
    const ValueId wide = g.relu(g.batch_norm(g.conv(x, "expand", 2 * kC, {1, 1, 1, 0}), "bn1"), "relu1");
    const ValueId deep = g.conv(wide, "depthwise", 2 * kC,
                                {.kernel_h = 3, .kernel_w = 3, .stride_h = 1, .pad_top = 1, .groups = 2 * kC});
    const ValueId narrow = g.conv(g.relu(g.batch_norm(deep, "bn2"), "relu2"), "project", kC, {1, 1, 1, 0}, true),
                  unit = g.add(x, narrow, "unit");
    g.cut(unit);
    const ValueId pooled =
        g.max_pool(unit, "max",
                   {.kernel_h = 3, .kernel_w = 2, .stride_h = 2, .pad_top = 1, .stride_w = 1, .pad_left = 0});
    const ValueId apart =
        g.conv(pooled, "dilated", kC,
               {.kernel_h = 3, .kernel_w = 3, .stride_h = 1, .pad_top = 2, .dilation_h = 2, .groups = 2}, true);
    g.cut(apart);
    const ValueId larger =
        g.conv_transpose(apart, "transposed", kC,
                         {.kernel_h = 3, .kernel_w = 2, .stride_h = 2, .pad_top = 1, .pad_right = 0}, 1, 0, true);
    const ValueId mean = g.avg_pool(larger, "avg", {.kernel_h = 3, .kernel_w = 3, .stride_h = 2, .pad_top = 1});
    g.loss_head(g.global_pool(g.relu(mean, "relu3"), "pool"), "head",
                g.parameter("head.weight", {kClasses, kC}, InitKind::kNormal, 0.5f), kNoValue);
    return g;
  }

  static BatchSource source() {
    return {nullptr, [](void*, uint64_t, uint32_t, BatchSink& sink) {
              std::mt19937 random(7);
              std::uniform_real_distribution<float> uniform(-1, 1);
              std::vector<float> pixels(size_t{kN} * kH * kW * kIn);
              for (float& pixel : pixels) pixel = uniform(random);
              const std::vector<Bf16> rounded(pixels.begin(), pixels.end());
              const int32_t labels[kN] = {2, 0, 3};
              const bool is_f32 = sink.input_bytes() == pixels.size() * sizeof(float);
              sink.add(is_f32 ? static_cast<const void*>(pixels.data()) : rounded.data(), sink.input_bytes(), labels,
                       kN);
              return ok_status();
            }};
  }
};

TEST(Windows, TrainWithTheSameBitsUnderEverySchedule) {
  for (const DType stored : {DType::kF32, DType::kBf16}) {
    const Recipe recipe = group_norm_recipe(stored);
    const Graph network = WindowNetwork::build(stored);
    const RunResult expected =
        train_plan(plan_run(recipe, network, "none").planned.plan, WindowNetwork::source(), {.steps = 12});
    EXPECT_LT(expected.losses.back(), 0.8 * expected.losses.front());
    const std::pair<const char*, double> schedules[] = {{"every-k", 0}, {"optimal", 0}, {"optimal", 0.5}};
    for (const auto& [strategy, share] : schedules) {
      const std::string what =
          std::string(dtype_info(stored).name) + " " + strategy + " share " + std::to_string(share);
      const PlannedRun run = plan_run(recipe, network, strategy, share);
      expect_same(expected,
                  train_plan(run.planned.plan, WindowNetwork::source(), {.steps = 12, .workers = 3, .poison = true}),
                  what);
      const testing::ReplayVerdict verdict = testing::Replay(network, recipe).judge(run.planned.plan.view());
      EXPECT_TRUE(verdict.ok) << what << ": " << verdict.text();
    }
  }
}

// ---- functions, gates, scales, positions and stochastic depth in a network ----

// The order of the two operands does not matter. The result has the shape of the larger operand.
TEST(Broadcast, TheLargerShapeIsTheResults) {
  Values v;
  const ValueId gate = v.graph.learned("gate", {12}, InitKind::kConstant, 1);
  for (const ValueId y : {v.graph.multiply(v.sequence, gate, "m1"), v.graph.multiply(gate, v.sequence, "m2"),
                          v.graph.add(gate, v.sequence, "a")}) {
    EXPECT_EQ(shape_of(v.graph.tensor(y)), (Shape{2, 3, 12}));
  }
  EXPECT_EQ(v.graph.nodes.back().op, Op::kBroadcastAdd);
  EXPECT_EQ(v.graph.nodes.back().inputs[0], v.sequence);
  v.graph.add(v.rows, v.rows, "alike");
  EXPECT_EQ(v.graph.nodes.back().op, Op::kAdd);
}

// The node of a leaf (a learned value) is placed directly before each node that reads it, wherever
// it was created.
TEST(Learned, StandsBeforeEachReader) {
  const Graph graph = SqueezeNetwork::build();
  int leaves = 0;
  for (size_t i = 0; i + 1 < graph.nodes.size(); ++i) {
    if (graph.nodes[i].op != Op::kLearned) continue;
    ++leaves;
    const std::vector<ValueId>& read = graph.nodes[i + 1].inputs;
    EXPECT_EQ(std::count(read.begin(), read.end(), graph.nodes[i].outputs[0]), 1) << graph.nodes[i].name;
  }
  EXPECT_EQ(leaves, 3) << "positions, and the scale of both units";
}

// Requires that every schedule trains with the same bits, and that the replay accepts each plan.
void expect_same_bits(const Graph& network, const Recipe& recipe, const BatchSource& source) {
  const RunResult expected = train_plan(plan_run(recipe, network, "none").planned.plan, source, {.steps = 20});
  EXPECT_LT(expected.losses.back(), 0.9 * expected.losses.front());
  const std::pair<const char*, double> schedules[] = {{"every-k", 0}, {"revolve", 0}, {"optimal", 0}, {"optimal", 0.5}};
  for (const auto& [strategy, share] : schedules) {
    const std::string what = recipe.name + " " + strategy + " share " + std::to_string(share);
    const PlannedRun run = plan_run(recipe, network, strategy, share);
    expect_same(expected, train_plan(run.planned.plan, source, {.steps = 20, .workers = 3, .poison = true}), what);
    const testing::ReplayVerdict verdict = testing::Replay(network, recipe).judge(run.planned.plan.view());
    EXPECT_TRUE(verdict.ok) << what << ": " << verdict.text();
  }
}

// Also tests training of the leaves alone, and of the other parameters alone.
TEST(Squeeze, TrainsWithTheSameBitsUnderEverySchedule) {
  const auto is_leaf = [](const std::string& name) { return name == "scale" || name == "positions"; };
  enum class Trained { kAll, kLeaves, kRest };
  for (const auto& [stored, trained] : {std::pair{DType::kF32, Trained::kAll},
                                        {DType::kBf16, Trained::kAll},
                                        {DType::kF32, Trained::kLeaves},
                                        {DType::kF32, Trained::kRest}}) {
    Graph network = SqueezeNetwork::build(stored);
    for (Value& value : network.values) {
      if (trained != Trained::kAll)
        value.trainable = value.trainable && is_leaf(value.name) == (trained == Trained::kLeaves);
    }
    expect_same_bits(network, small_clipped_recipe("squeeze", stored), SqueezeNetwork::source());
  }
}

TEST(Skips, TrainWithTheSameBitsUnderEverySchedule) {
  for (const DType stored : {DType::kF32, DType::kBf16})
    expect_same_bits(SkipNetwork::build(stored), small_clipped_recipe("skips", stored), SkipNetwork::source());
}

}  // namespace
}  // namespace reprise
