// The thread's floating-point mode, and one in which denormals count as zero.
// Here because some processors take a hundred times as long over a denormal, and training makes them: moments that decay, dead units.
#pragma once

#include <cstdint>

namespace reprise {

#if defined(__x86_64__)
using FloatMode = uint32_t;
constexpr FloatMode kFlushDenormals = 0x8040;  // MXCSR: results (FTZ) and operands (DAZ)
// The clobber keeps loads and stores, and so what is computed between them, on their side.
inline FloatMode float_mode() {
  FloatMode mode;
  asm volatile("stmxcsr %0" : "=m"(mode)::"memory");
  return mode;
}
inline void set_float_mode(FloatMode mode) { asm volatile("ldmxcsr %0" ::"m"(mode) : "memory"); }
#elif defined(__aarch64__)
using FloatMode = uint64_t;
constexpr FloatMode kFlushDenormals = 1u << 24;  // FPCR.FZ: both
inline FloatMode float_mode() {
  FloatMode mode;
  asm volatile("mrs %0, fpcr" : "=r"(mode)::"memory");
  return mode;
}
inline void set_float_mode(FloatMode mode) { asm volatile("msr fpcr, %0" ::"r"(mode) : "memory"); }
#elif defined(__ARM_FP)
using FloatMode = uint32_t;
constexpr FloatMode kFlushDenormals = 1u << 24;  // FPSCR.FZ: both. Helium's vectors do so whatever it says
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

// A mode for as long as this lives, then the one from before.
class FloatModeScope {
 public:
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
