// Images or tokens, and labels, that a small generator computes: the training data of a board
// without data. The data are equal at every step and on every machine, so that a board's bits can
// be compared with a host's. The program's plan.h defines the format of the data.
#pragma once

#include "plan.h"

#include "lib/batch.h"
#include "lib/bf16.h"

namespace reprise {

// Gives one micro-batch to `sink`. It can be a BatchSource::fill and needs no state. Returns
// kUnsupported if the input is not f32, bf16 or i32.
inline Status fill_counted(void*, uint64_t, uint32_t, BatchSink& sink) {
  const Program& program = generated::kPlan.programs[static_cast<uint32_t>(ProgramId::kMicroFirst)];
  const DType stored = program.slots[program.input].tensor.dtype;
  if (stored != DType::kF32 && stored != DType::kBf16 && stored != DType::kI32)
    return {Code::kUnsupported, "a counted batch has f32, bf16 or tokens", 0};
  constexpr uint64_t kPiece = 32;
  float pixels[kPiece];
  Bf16 rounded[kPiece];
  int32_t tokens[kPiece];  // only 0 and 1, which every vocabulary has
  const void* const piece = stored == DType::kF32    ? static_cast<const void*>(pixels)
                            : stored == DType::kBf16 ? static_cast<const void*>(rounded)
                                                     : tokens;
  for (uint32_t state = 1; sink.input_bytes() > 0;) {
    const uint64_t left = sink.input_bytes() / stored_bytes(stored, 1), count = left < kPiece ? left : kPiece;
    for (uint64_t i = 0; i < count; ++i) {
      state = state * 1664525u + 1013904223u;
      pixels[i] = static_cast<float>(state >> 8) * 0x1p-24f;
      rounded[i] = pixels[i];
      tokens[i] = static_cast<int32_t>(state >> 31);
    }
    sink.add(piece, stored_bytes(stored, count), nullptr, 0);
  }
  int32_t labels[kPiece];
  float targets[kPiece];
  uint8_t bytes[kPiece];
  for (uint64_t i = 0; i < kPiece; ++i) labels[i] = bytes[i] = i % 2, targets[i] = static_cast<float>(labels[i]);
  const void* const as_stored = sink.label_type() == DType::kF32  ? static_cast<const void*>(targets)
                                : sink.label_type() == DType::kU8 ? static_cast<const void*>(bytes)
                                                                  : labels;
  while (sink.label_count() > 0)
    sink.add(nullptr, 0, as_stored, sink.label_count() < kPiece ? sink.label_count() : kPiece);
  return sink.status();
}

}  // namespace reprise
