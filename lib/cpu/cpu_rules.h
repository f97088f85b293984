// The CPU backend's rules: every kernel of lib/op.h but the transfers, which dispatch does itself.
#pragma once

#include "lib/cpu/attention_rules.h"
#include "lib/cpu/batch_norm_rules.h"
#include "lib/cpu/conv_rules.h"
#include "lib/cpu/layer_norm_rules.h"
#include "lib/cpu/linear_rules.h"
#include "lib/cpu/loss_head_rules.h"

namespace reprise {

constexpr BackendRules make_cpu_rules() {
  BackendRules rules = {.name = "cpu", .header = "lib/cpu/cpu_rules.h", .constant = "kCpuRules"};
  rules.have(Kernels{});
  rules.of<EmbeddingForward>().weights = kEveryWeight;
  add_attention_rules(rules);
  add_batch_norm_rules(rules);
  add_conv_rules(rules);
  add_layer_norm_rules(rules);
  add_linear_rules(rules);
  add_loss_head_rules(rules);
  return rules;
}
inline constexpr BackendRules kCpuRules = make_cpu_rules();

}  // namespace reprise
