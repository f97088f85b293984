// About ten functions that are written in PTX: dynamic shared memory, asynchronous copies, tensor
// cores and rounding. No other file has PTX. Tests run kernels on the CPU, which cannot run PTX.
// They replace this file's functions by those of tests/ports/fibres/cuda_fibre_warp.h.
//
// Dynamic shared memory.  REPRISE_DYNAMIC_SHARED(name) names the bytes that REPRISE_LAUNCH_DYNAMIC
// gives a block. They begin at a multiple of 128, the bytes of the 32 banks.
// REPRISE_DYNAMIC_SHARED(name, bytes) also states the number of bytes; the kernels of cuda/ must
// use this form. The PTX contains the number as a comment, from which tests compute how many blocks
// share a multiprocessor. Tests on the CPU compare the number with the launch. Offsets are in
// bytes. Functions of SharedBytes:
//   part(offset, bytes)         returns these bytes as another SharedBytes, for one tile or stage
//   load<T>(offset)             T has 1, 2, 4, 8 or 16 bytes; offset is a multiple of this size
//   store(offset, value)        as load
//
// Asynchronous copies, each by one thread (PTX: cp.async; 16 bytes bypass the first cache).
//   copy_async<4, 8 or 16>(shared, offset, source, valid_bytes)   copies the first valid_bytes of
//                             the source, in global memory, then zeros; unless valid_bytes is 0,
//                             source and offset must be aligned to the 4, 8 or 16 bytes
//   commit_copies()             makes a group of this thread's copies since the last call
//   wait_copies<n>()            waits until at most n groups of this thread are unfinished; other
//                             threads see the bytes after a barrier
//
// Collectives: all 32 lanes must make the same call. g = lane / 4, t = lane % 4. An element has 2
// bytes, and a register has two elements, j = 0 in its low half.
//   load_matrices(r, shared, offset)   n = 4 or 2 matrices of 8 x 8 elements, n registers in r
//                             (PTX: ldmatrix). Lane 8 m + i names the offset of row i of matrix m,
//                             a multiple of 16; offsets of lanes from 8 n on are unused. r[m]
//                             element j is matrix[m][g][2 t + j].
//   load_matrices_transposed    r[m] element j is matrix[m][2 t + j][g]
//   multiply_add_bf16(c, a, b)  c[16][8] += a[16][16] b[16][8] (PTX: mma.m16n8k16)
//                               a[r] element j is a[g + 8 (r % 2)][2 t + j + 8 (r / 2)]
//                               b[r] element j is b[2 t + j + 8 r][g]
//                               c[i] is c[g + 8 (i / 2)][2 t + i % 2]
//   multiply_add_tf32(c, a, b)  c[16][8] += a[16][8] b[8][8] (PTX: mma.m16n8k8); the last 13 bits
//                             of an f32 are ignored, so a kernel either rounds with round_to_tf32
//                             or truncates by doing nothing
//                               a[r] is a[g + 8 (r % 2)][t + 4 (r / 2)];  b[r] is b[t + 4 r][g];
//                               c as above
//
// Numbers, of each thread:
//   round_to_bf16_pair(low, high)   low and high rounded to bf16, to nearest with ties to even, as
//                             the two elements of a register
//   larger_or_nan(a, b)         the larger of a and b; NaN if a or b is NaN
//   fma_within_unit(a, b, c)    a b + c, rounded once, then limited to [0, 1]; 0 if the sum is NaN
//                             (PTX: fma.sat, as cheap as fma)
//
// So load_matrices returns the four registers of a if matrices 0 to 3 are rows 0-7 and 8-15 of
// columns 0-7 of a, then of columns 8-15. load_matrices_transposed returns the registers of b if b
// is stored as b[k][n]; load_matrices, if it is stored as b[n][k]. The PTX ISA defines the layouts
// in "Matrix Fragments for mma.m16n8k16" and "for mma.m16n8k8".
#pragma once

#include "cuda/launch.h"

namespace reprise {

constexpr uint32_t kWarpLanes = 32;

// Returns the thread's lane in its warp. Requires a block of one dimension.
__device__ inline uint32_t lane_index() { return threadIdx.x % kWarpLanes; }
__device__ inline uint32_t warp_index() { return threadIdx.x / kWarpLanes; }

}  // namespace reprise

#ifdef __CUDACC__

#define REPRISE_DYNAMIC_SHARED(name, ...)                                      \
  extern __shared__ __align__(128) unsigned char reprise_dynamic_shared[];     \
  ::reprise::say_dynamic_shared<__VA_ARGS__>();                                \
  const ::reprise::SharedBytes name = ::reprise::SharedBytes(reprise_dynamic_shared)

namespace reprise {

template <uint32_t kBytes = 0>
__device__ inline void say_dynamic_shared() {
  if constexpr (kBytes != 0) asm volatile("// dynamic shared memory: %0 bytes" : : "n"(kBytes));
}

class SharedBytes {
 public:
  __device__ explicit SharedBytes(unsigned char* bytes) : bytes_(bytes) {}

  __device__ SharedBytes part(uint32_t offset, uint32_t) const { return SharedBytes(bytes_ + offset); }
  template <typename T>
  __device__ T load(uint32_t offset) const {
    static_assert(sizeof(T) <= 16 && (sizeof(T) & (sizeof(T) - 1)) == 0 && alignof(T) == sizeof(T));
    return *reinterpret_cast<const T*>(bytes_ + offset);
  }
  template <typename T>
  __device__ void store(uint32_t offset, const T& value) const {
    static_assert(sizeof(T) <= 16 && (sizeof(T) & (sizeof(T) - 1)) == 0 && alignof(T) == sizeof(T));
    *reinterpret_cast<T*>(bytes_ + offset) = value;
  }
  // Returns the address of byte `offset` in the form that PTX instructions need.
  __device__ uint32_t address(uint32_t offset) const {
    return static_cast<uint32_t>(__cvta_generic_to_shared(bytes_ + offset));
  }

 private:
  unsigned char* bytes_;
};

// ---- asynchronous copies ----

template <uint32_t kBytes>
__device__ inline void copy_async(const SharedBytes& shared, uint32_t offset, const void* source,
                                  uint32_t valid_bytes = kBytes) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(shared.address(offset)), "l"(__cvta_generic_to_global(source)), "r"(valid_bytes)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                 :
                 : "r"(shared.address(offset)), "l"(__cvta_generic_to_global(source)), "n"(kBytes), "r"(valid_bytes)
                 : "memory");
  }
}

__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" : : : "memory"); }

template <uint32_t kGroupsLeft>
__device__ inline void wait_copies() {
  asm volatile("cp.async.wait_group %0;" : : "n"(kGroupsLeft) : "memory");
}

// ---- matrices from shared memory ----

__device__ inline void load_matrices(uint32_t (&r)[4], const SharedBytes& shared, uint32_t offset) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared.address(offset))
               : "memory");
}
__device__ inline void load_matrices_transposed(uint32_t (&r)[4], const SharedBytes& shared, uint32_t offset) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared.address(offset))
               : "memory");
}
__device__ inline void load_matrices(uint32_t (&r)[2], const SharedBytes& shared, uint32_t offset) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(shared.address(offset))
               : "memory");
}
__device__ inline void load_matrices_transposed(uint32_t (&r)[2], const SharedBytes& shared, uint32_t offset) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(shared.address(offset))
               : "memory");
}

// ---- products ----

__device__ inline void multiply_add_bf16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ inline void multiply_add_tf32(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Returns the bits of the tf32 that is nearest to `value`, with ties away from zero.
__device__ inline uint32_t round_to_tf32(float value) {
  uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
  return bits;
}

// ---- numbers ----

__device__ inline uint32_t round_to_bf16_pair(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

__device__ inline float larger_or_nan(float a, float b) {
  float larger;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
  return larger;
}

__device__ inline float fma_within_unit(float a, float b, float c) {
  float within;
  asm("fma.rn.sat.f32 %0, %1, %2, %3;" : "=f"(within) : "f"(a), "f"(b), "f"(c));
  return within;
}

}  // namespace reprise

#endif
