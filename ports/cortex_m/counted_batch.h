// Images and labels from a counter, the same at every step and on every machine: what a board without data trains on. The program's plan.h says how
// they are stored.
// Here because a board's bits are compared with those of a host.
#pragma once

#include "plan.h"

#include "lib/batch.h"
#include "lib/bf16.h"

namespace reprise {

inline Status fill_counted(void*, uint64_t, uint32_t, BatchSink& sink) {
  const Program& program = generated::kPlan.programs[static_cast<uint32_t>(ProgramId::kMicroFirst)];
  const DType stored = program.slots[program.input].tensor.dtype;
  if (stored != DType::kF32 && stored != DType::kBf16) return {Code::kUnsupported, "a counted batch has pixels, and the plan wants tokens", 0};
  uint32_t state = 1;
  while (sink.input_bytes() > 0) {
    state = state * 1664525u + 1013904223u;
    const float pixel = static_cast<float>(state >> 8) * 0x1p-24f;
    const Bf16 rounded = pixel;
    sink.add(stored == DType::kF32 ? static_cast<const void*>(&pixel) : &rounded, stored_bytes(stored, 1), nullptr, 0);
  }
  for (int32_t label = 0; sink.label_count() > 0; label = 1 - label) {
    const float target = static_cast<float>(label);
    const uint8_t byte = static_cast<uint8_t>(label);
    const DType type = sink.label_type();
    sink.add(nullptr, 0, type == DType::kF32 ? static_cast<const void*>(&target) : type == DType::kU8 ? static_cast<const void*>(&byte) : &label, 1);
  }
  return sink.status();
}

}  // namespace reprise
