// Images and labels from a counter, the same at every step and on every machine: what a board without data trains on.
// Here because a board's bits are compared with those of a host.
#pragma once

#include "lib/batch.h"

namespace reprise {

inline Status fill_counted(void*, uint64_t, uint32_t, BatchSink& sink) {
  uint32_t state = 1;
  for (uint64_t pixels = sink.input_bytes() / sizeof(float); pixels > 0; --pixels) {
    state = state * 1664525u + 1013904223u;
    const float pixel = static_cast<float>(state >> 8) * 0x1p-24f;
    sink.add(&pixel, sizeof pixel, nullptr, 0);
  }
  for (int32_t label = 0; sink.label_count() > 0; label = 1 - label) sink.add(nullptr, 0, &label, 1);
  return ok_status();
}

}  // namespace reprise
