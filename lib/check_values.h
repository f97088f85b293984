// The part of the proof that concerns single values of a plan, without its rows: tensors,
// attributes, the learning rate.
#pragma once

#include "lib/plan.h"
#include "lib/fault.h"

namespace reprise::proof {

// The maximum number of elements of a tensor. The byte sizes of such a tensor do not overflow 64
// bits.
constexpr uint64_t kMaxElements = uint64_t{1} << 56;

// Checks a tensor on its own: type, rank, dimensions, alignment, bytes, and that it is inside a
// region of `region_bytes` bytes. Returns the fault, or kNone.
constexpr Fault tensor_fault(const Tensor& of, uint64_t region_bytes) {
  const Tensor tensor = of;  // g++ evaluates a local copy faster
  if (!is_dtype(tensor.dtype)) return Fault::kDType;
  static_assert(kMaxRank == 4);
  const uint32_t rank = tensor.rank, a = tensor.shape[0], b = tensor.shape[1], c = tensor.shape[2], d = tensor.shape[3];
  if (rank > 4 || (rank < 4 && d != 1) || (rank < 3 && c != 1) || (rank < 2 && b != 1) || (rank < 1 && a != 1))
    return Fault::kShape;
  const uint64_t outer = uint64_t{a} * b, inner = uint64_t{c} * d;
  if (outer == 0 || inner == 0 || outer > kMaxElements / inner) return Fault::kShape;
  if (!are_whole_blocks(tensor.dtype, tensor.last_dimension())) return Fault::kBlocks;
  if (tensor.offset % kAlignment != 0 || tensor.bytes % kAlignment != 0) return Fault::kMisaligned;
  if (tensor.bytes < stored_bytes(tensor.dtype, outer * inner)) return Fault::kTooFewBytes;
  if (tensor.bytes > region_bytes || tensor.offset > region_bytes - tensor.bytes) return Fault::kOutOfRegion;
  return Fault::kNone;
}

// True if makes_sense() of every attribute is true.
constexpr bool attributes_make_sense(const AttributePools& pools) {
  bool sensible = true;
  for_each_pool(pools, [&sensible](const auto& pool) {
    for (const auto& attribute : pool) sensible = sensible && attribute.makes_sense();
  });
  return sensible;
}

// True if the kind exists, the numbers are finite and not negative, and the milestones increase.
// Reads every milestone: if the count exceeds the array, the constant expression does not compile.
constexpr bool learning_rate_makes_sense(const LearningRate& rate) {
  if (rate.kind > LearningRateKind::kCosine) return false;
  if (!sense::within(rate.base, 0, sense::kMaxFinite) || !sense::within(rate.gamma, 0, sense::kMaxFinite))
    return false;
  uint32_t previous = 0;
  for (const uint32_t milestone : rate.milestones) {
    if (milestone <= previous) return false;
    previous = milestone;
  }
  return true;
}

}  // namespace reprise::proof
