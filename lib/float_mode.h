// The floating-point mode of the calling thread, and a mode in which denormals count as zero. Some
// processors take a hundred times as long for an operation on a denormal. Training produces
// denormals, for example in moments that decay and in dead units.
#pragma once

#include <cstdint>

namespace reprise {

// For each processor: FloatMode is the content of its control register, float_mode() reads that
// register, and set_float_mode() writes it. `mode | kFlushDenormals` is `mode` with denormals as
// zero. On a processor without such a mode the functions do nothing.
#if defined(__x86_64__)
using FloatMode = uint32_t;
constexpr FloatMode kFlushDenormals = 0x8040;  // MXCSR: FTZ for results, DAZ for operands
// Returns the calling thread's mode. The "memory" clobber keeps loads and stores, and so the
// arithmetic between them, on their side of the instruction.
inline FloatMode float_mode() {
  FloatMode mode;
  asm volatile("stmxcsr %0" : "=m"(mode)::"memory");
  return mode;
}
// Sets the calling thread's mode.
inline void set_float_mode(FloatMode mode) { asm volatile("ldmxcsr %0" ::"m"(mode) : "memory"); }
#elif defined(__aarch64__)
using FloatMode = uint64_t;
constexpr FloatMode kFlushDenormals = 1u << 24;  // FPCR.FZ: results and operands
inline FloatMode float_mode() {
  FloatMode mode;
  asm volatile("mrs %0, fpcr" : "=r"(mode)::"memory");
  return mode;
}
inline void set_float_mode(FloatMode mode) { asm volatile("msr fpcr, %0" ::"r"(mode) : "memory"); }
#elif defined(__ARM_FP)
using FloatMode = uint32_t;
// FPSCR.FZ: results and operands. Helium's vector instructions flush denormals in either mode.
constexpr FloatMode kFlushDenormals = 1u << 24;
inline FloatMode float_mode() {
  FloatMode mode;
  asm volatile("vmrs %0, fpscr" : "=r"(mode)::"memory");
  return mode;
}
inline void set_float_mode(FloatMode mode) { asm volatile("vmsr fpscr, %0" ::"r"(mode) : "memory"); }
#else
using FloatMode = uint32_t;
constexpr FloatMode kFlushDenormals = 0;
inline FloatMode float_mode() { return 0; }
inline void set_float_mode(FloatMode) {}
#endif

// A floating-point mode for a scope: the destructor restores the mode from before.
class FloatModeScope {
 public:
  // Sets `mode` for the calling thread.
  explicit FloatModeScope(FloatMode mode) : before_(float_mode()) {
    if (mode != before_) set_float_mode(mode);
  }
  ~FloatModeScope() { set_float_mode(before_); }
  FloatModeScope(const FloatModeScope&) = delete;
  FloatModeScope& operator=(const FloatModeScope&) = delete;

 private:
  FloatMode before_;
};

}  // namespace reprise
