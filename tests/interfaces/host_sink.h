// A BatchSink in host memory. With it tests read the micro-batches of a data set without a trainer.
#pragma once

#include <cstring>

#include "lib/backend.h"
#include "lib/batch.h"

namespace reprise {

inline BatchSink host_sink(void* input, uint64_t input_bytes, void* labels, uint64_t label_count,
                           int32_t* document_start = nullptr, JudgedPair* pairs = nullptr, uint64_t pair_count = 0,
                           uint64_t starts_per_label = 1, DType stored = DType::kI32, int32_t* token_types = nullptr) {
  static const KernelContext kContext;
  static const HostAccess kHost = {
      .copy_in = [](const KernelContext&, ArenaAddress to, const void* from, uint64_t bytes) {
        std::memcpy(to.for_kernels, from, bytes);
        return ok_status();
      }};
  const auto address = [](void* memory) { return ArenaAddress{static_cast<unsigned char*>(memory)}; };
  const uint64_t start_count = document_start == nullptr ? 0 : label_count * starts_per_label;
  return BatchSink(kHost, kContext, address(input), input_bytes, address(labels), label_count, address(document_start),
                   start_count, address(pairs), pair_count, stored, address(token_types),
                   token_types == nullptr ? 0 : input_bytes);
}

}  // namespace reprise
