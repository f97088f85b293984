// See logits.h.
#include "tools/run/inference/logits.h"

#include <algorithm>
#include <cmath>

#include "lib/op.h"
#include "tools/files/formats/ggml_blocks.h"

namespace reprise {

LogitsReader::LogitsReader(Trainer& trainer, Visit visit)
    : trainer_(trainer), visit_(std::move(visit)), before_(trainer.observer), read_(ok_status()) {
  trainer.observer = {this,
                      [](void* self, ProgramId, uint32_t row) { static_cast<LogitsReader*>(self)->before_row(row); },
                      nullptr};
}

LogitsReader::~LogitsReader() { trainer_.observer = before_; }

void LogitsReader::before_row(uint32_t r) {
  using Head = LossHeadEvaluate;
  const Program& program = trainer_.plan->program(ProgramId::kEvaluate);
  const Row& row = program.rows[r];
  if (row.op != Op::kLossHead) return;
  const Ref* arguments = &program.arguments[row.first_argument];
  const Tensor& x = program.slots[ref_index(arguments[Head::kX])].tensor;
  const Tensor& labels = program.slots[ref_index(arguments[Head::kLabels])].tensor;
  const Ref weight = arguments[Head::kW];  // in a slot if the weight is streamed
  const Tensor& w = tensor_of(*trainer_.plan, program, weight);
  const uint64_t V = w.shape[0], C = w.shape[1], M = x.leading_elements();
  const std::vector<float> table = numbers_at(trainer_.region(ref_region(weight)) + w.offset, w.dtype, V * C);
  std::vector<float> bias(V, 0.0f);
  if (arguments[Head::kB] != kNoRef)
    bias = numbers_at(trainer_.state_tensor(ref_index(arguments[Head::kB])), DType::kF32, V);
  std::vector<int32_t> classes(M);
  const ArenaAddress base = trainer_.region(Region::kProgram);
  if (read_.ok()) read_ = trainer_.read(classes.data(), base + labels.offset, M * sizeof(int32_t));
  const double softcap = static_cast<double>(trainer_.plan->attributes.of<CapAttribute>()[row.attribute].softcap);
  std::vector<double> logits(V);
  for (uint64_t m = first_; m < std::min(end_, M); ++m) {
    const std::vector<float> state = numbers_at(base + (x.offset + stored_bytes(x.dtype, m * C)), x.dtype, C);
    if (!read_.ok()) return;
    for (uint64_t v = 0; v < V; ++v) {
      logits[v] = static_cast<double>(bias[v]);
      for (uint64_t c = 0; c < C; ++c)
        logits[v] += static_cast<double>(state[c]) * static_cast<double>(table[v * C + c]);
      if (softcap > 0) logits[v] = softcap * std::tanh(logits[v] / softcap);
    }
    visit_(m, classes[m], logits);
  }
}

std::vector<float> LogitsReader::numbers_at(ArenaAddress from, DType dtype, uint64_t count) {
  std::vector<unsigned char> stored(stored_bytes(dtype, count));
  if (read_.ok()) read_ = trainer_.read(stored.data(), from, stored.size());
  std::vector<float> numbers(count);
  dequantise_blocks(block_type_of(dtype).value(), stored.data(), count / dtype_info(dtype).block_elements,
                    numbers.data());
  return numbers;
}

}  // namespace reprise
