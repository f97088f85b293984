// Computes the instructions that use only registers, in a loop over the lanes.
//
// Each line of the table is an opcode and a function of one lane's values, as the PTX manual
// defines the opcode. Floats are rounded to nearest if the opcode has .rn. Only fma is fused, and
// subnormal numbers are kept. If the result of f32 arithmetic is NaN, it is the card's NaN,
// 0x7fffffff. This file is compiled with -ffp-contract=off.
#include "tests/ports/ptx/ptx_arithmetic.h"

#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "tests/ports/ptx/ptx_machine.h"
#include "tests/ports/ptx/tensor_core.h"

namespace reprise::ptx {
namespace {

// ---- a lane's values in a warp's registers ----

template <typename T>
using Word = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
template <typename T>
using Bits = std::conditional_t<
    sizeof(T) == 8, uint64_t,
    std::conditional_t<sizeof(T) == 4, uint32_t, std::conditional_t<sizeof(T) == 2, uint16_t, uint8_t>>>;

template <typename T>
const Word<T>* words_of(const uint32_t* at) {
  return reinterpret_cast<const Word<T>*>(at);
}
template <typename T>
T value_of(const Word<T>* words, uint32_t lane) {
  if constexpr (std::is_same_v<T, bool>) return (*words >> lane & 1) != 0;
  else return std::bit_cast<T>(static_cast<Bits<T>>(words[lane]));
}
template <typename T>
Word<T> word_of(T value) {
  return static_cast<Word<T>>(std::bit_cast<Bits<T>>(value));
}

// Rounds to the nearest bf16, with ties to even. Every NaN becomes the card's NaN.
uint32_t nearest_bf16(float value) {
  if (value != value) return 0x7fff;
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

// ---- the loop over lanes ----

template <typename F, typename Signature>
struct Lanes;
template <typename F, typename R, typename... A>
struct Lanes<F, R (F::*)(A...) const> {
  static void run(Machine& machine, const Instruction& i, uint32_t lanes) {
    run(machine, i, lanes, std::index_sequence_for<A...>());
  }

  template <size_t... k>
  static void run(Machine& machine, const Instruction& i, uint32_t lanes, std::index_sequence<k...>) {
    const std::tuple from(words_of<A>(machine.words(i.at[k + 1]))...);
    if constexpr (std::is_same_v<R, bool>) {
      uint32_t bits = 0;
      for (uint32_t lane = 0; lane < kLanes; ++lane)
        bits |= uint32_t{F{}(value_of<A>(std::get<k>(from), lane)...)} << lane;
      uint32_t& to = *machine.words(i.at[0]);
      to = (to & ~lanes) | (bits & lanes);
    } else {
      Word<R>* const to = reinterpret_cast<Word<R>*>(machine.words(i.at[0]));
      if (lanes == kAllLanes) {
#pragma GCC ivdep
        for (uint32_t lane = 0; lane < kLanes; ++lane)
          to[lane] = word_of<R>(F{}(value_of<A>(std::get<k>(from), lane)...));
      } else {
        for (uint32_t left = lanes; left != 0; left &= left - 1) {
          const auto lane = static_cast<uint32_t>(std::countr_zero(left));
          to[lane] = word_of<R>(F{}(value_of<A>(std::get<k>(from), lane)...));
        }
      }
    }
  }
  static std::vector<Width> widths() { return {width<R>(), width<A>()...}; }
  template <typename T>
  static Width width() {
    return std::is_same_v<T, bool> ? Width::kPredicate : sizeof(T) == 8 ? Width::kDouble : Width::kWord;
  }
};

template <typename F>
Arithmetic of(std::string opcode, F) {
  using Run = Lanes<F, decltype(&F::operator())>;
  return {std::move(opcode), static_cast<Step>(&Run::run), Run::widths()};
}

// Returns the entry of an instruction on predicates, which handles all lanes at once as bits of a
// mask.
template <typename F>
Arithmetic of_masks(std::string opcode, F, size_t operands) {
  const Step step = [](Machine& machine, const Instruction& i, uint32_t lanes) {
    uint32_t& to = *machine.words(i.at[0]);
    to = (to & ~lanes) | (F{}(*machine.words(i.at[1]), *machine.words(i.at[2])) & lanes);
  };
  return {std::move(opcode), step, std::vector<Width>(operands, Width::kPredicate)};
}

// ---- floats ----

// Returns the value, or, if it is NaN, the only NaN that f32 arithmetic returns on a card. All its
// bits except the sign are ones. So a kernel that rounds the bits of a NaN as if they were a number
// gives a wrong result.
float card(float value) { return value != value ? std::bit_cast<float>(0x7fffffffu) : value; }
double card(double value) { return value; }

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) void fuse_quickly(float* to, const float* a, const float* b, const float* c) {
  for (uint32_t lane = 0; lane < kLanes; ++lane) to[lane] = __builtin_fmaf(a[lane], b[lane], c[lane]);
}
#endif

void fuse(Machine& machine, const Instruction& i, uint32_t lanes) {
  const uint32_t *a = machine.words(i.at[1]), *b = machine.words(i.at[2]), *c = machine.words(i.at[3]);
  uint32_t* const to = machine.words(i.at[0]);
  float sums[kLanes], x[kLanes], y[kLanes], z[kLanes];
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    x[lane] = std::bit_cast<float>(a[lane]);
    y[lane] = std::bit_cast<float>(b[lane]);
    z[lane] = std::bit_cast<float>(c[lane]);
  }
#if defined(__x86_64__)
  static const bool kQuick = __builtin_cpu_supports("fma") && __builtin_cpu_supports("avx2");
  if (kQuick) fuse_quickly(sums, x, y, z);
  else
#endif
    for (uint32_t lane = 0; lane < kLanes; ++lane) sums[lane] = std::fmaf(x[lane], y[lane], z[lane]);
  for (uint32_t lane = 0; lane < kLanes; ++lane)
    to[lane] = (lanes >> lane & 1) != 0 ? std::bit_cast<uint32_t>(card(sums[lane])) : to[lane];
}

// Returns the smaller of a and b. If one of them is NaN, returns the other. -0 is less than +0.
template <typename T>
T smaller(T a, T b) {
  if (a != a) return card(b);
  if (b != b) return a;
  return a < b || (a == b && std::signbit(a)) ? a : b;
}
template <typename T>
T larger(T a, T b) {
  if (a != a) return card(b);
  if (b != b) return a;
  return a > b || (a == b && !std::signbit(a)) ? a : b;
}

// Converts to an integer: rounds towards zero and clamps to the range of the type. NaN becomes 0.
template <typename To, typename From>
To cut(From value) {
  using Limits = std::numeric_limits<To>;
  if (value != value) return 0;
  if (value >= std::ldexp(From{1}, Limits::digits)) return Limits::max();
  if (value <= (Limits::is_signed ? -std::ldexp(From{1}, Limits::digits) : From{0})) return Limits::min();
  return static_cast<To>(value);
}

// ---- integers ----

template <typename T>
T shifted_left(T value, uint32_t by) {
  return by >= sizeof(T) * 8 ? T{0} : static_cast<T>(value << by);
}
template <typename T>
T shifted_right(T value, uint32_t by) {
  constexpr uint32_t kBits = sizeof(T) * 8;
  if (by < kBits) return static_cast<T>(value >> by);
  return value < 0 ? static_cast<T>(-1) : T{0};
}
template <typename T>
T quotient(T a, T b) {
  return b == 0 ? static_cast<T>(-1) : static_cast<T>(a / b);
}
template <typename T>
T remainder_of(T a, T b) {
  return b == 0 ? a : static_cast<T>(a % b);
}

// Returns b with `length` bits from bit `begin` on replaced by the lower bits of a.
template <typename T>
T insert_bits(T a, T b, uint32_t begin, uint32_t length) {
  constexpr uint32_t kBits = 8 * sizeof(T);
  begin &= 0xff;
  length &= 0xff;
  const T ones = length >= kBits ? static_cast<T>(~T{0}) : static_cast<T>((T{1} << length) - 1);
  const T mask = begin >= kBits ? T{0} : static_cast<T>(ones << begin);
  return (b & ~mask) | (begin >= kBits ? T{0} : a << begin & mask);
}
uint32_t extract_bits(uint32_t a, uint32_t begin, uint32_t length) {
  begin &= 0xff;
  length &= 0xff;
  if (begin >= 32) return 0;
  return a >> begin & (length >= 32 ? kAllLanes : (1u << length) - 1);
}

// Returns four bytes selected from the eight bytes of b:a by the four hexadecimal digits of the
// selector. If bit 3 of a digit is set, the byte is replaced by eight copies of its sign bit.
uint32_t permute_bytes(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t from = uint64_t{b} << 32 | a;
  uint32_t to = 0;
  for (uint32_t k = 0; k < 4; ++k) {
    const uint32_t digit = selector >> 4 * k & 0xf;
    const auto byte = static_cast<uint8_t>(from >> 8 * (digit & 7));
    to |= uint32_t{(digit & 8) != 0 ? static_cast<uint8_t>(byte >> 7 != 0 ? 0xff : 0) : byte} << 8 * k;
  }
  return to;
}

// ---- the table ----

template <typename T>
void add_integer(std::vector<Arithmetic>& table, const std::string& type) {
  const auto add = [&](const char* name, auto function) {
    table.push_back(of(std::string(name) + "." + type, function));
  };
  using U = std::make_unsigned_t<T>;
  add("add", [](T a, T b) { return static_cast<T>(static_cast<U>(a) + static_cast<U>(b)); });
  add("sub", [](T a, T b) { return static_cast<T>(static_cast<U>(a) - static_cast<U>(b)); });
  add("mul.lo", [](T a, T b) { return static_cast<T>(uint64_t(a) * uint64_t(b)); });
  add("mad.lo", [](T a, T b, T c) { return static_cast<T>(uint64_t(a) * uint64_t(b) + uint64_t(c)); });
  add("div", [](T a, T b) { return quotient(a, b); });
  add("rem", [](T a, T b) { return remainder_of(a, b); });
  add("min", [](T a, T b) { return a < b ? a : b; });
  add("max", [](T a, T b) { return a > b ? a : b; });
  add("shr", [](T a, uint32_t by) { return shifted_right(a, by); });
  add("selp", [](T a, T b, bool first) { return first ? a : b; });
  add("mov", [](T a) { return a; });
  add("setp.eq", [](T a, T b) { return a == b; });
  add("setp.ne", [](T a, T b) { return a != b; });
  add("setp.lt", [](T a, T b) { return a < b; });
  add("setp.le", [](T a, T b) { return a <= b; });
  add("setp.gt", [](T a, T b) { return a > b; });
  add("setp.ge", [](T a, T b) { return a >= b; });
}

template <typename T>
void add_bits(std::vector<Arithmetic>& table, const std::string& type) {
  const auto add = [&](const char* name, auto function) {
    table.push_back(of(std::string(name) + "." + type, function));
  };
  add("and", [](T a, T b) { return static_cast<T>(a & b); });
  add("or", [](T a, T b) { return static_cast<T>(a | b); });
  add("xor", [](T a, T b) { return static_cast<T>(a ^ b); });
  add("not", [](T a) { return static_cast<T>(~a); });
  add("shl", [](T a, uint32_t by) { return shifted_left(a, by); });
  add("shr", [](T a, uint32_t by) { return shifted_right(a, by); });
  add("selp", [](T a, T b, bool first) { return first ? a : b; });
  add("mov", [](T a) { return a; });
  add("setp.eq", [](T a, T b) { return a == b; });
  add("setp.ne", [](T a, T b) { return a != b; });
}

template <typename T>
void add_float(std::vector<Arithmetic>& table, const std::string& type) {
  const auto add = [&](const std::string& name, auto function) { table.push_back(of(name + "." + type, function)); };
  for (const char* rounding : {"", ".rn"}) {  // without .rn the assembler may fuse; nvcc writes .rn under -fmad=false
    add(std::string("add") + rounding, [](T a, T b) { return card(a + b); });
    add(std::string("sub") + rounding, [](T a, T b) { return card(a - b); });
    add(std::string("mul") + rounding, [](T a, T b) { return card(a * b); });
  }
  add("div.rn", [](T a, T b) { return card(a / b); });
  add("rcp.rn", [](T a) { return card(T{1} / a); });
  add("sqrt.rn", [](T a) { return card(std::sqrt(a)); });
  add("neg", [](T a) { return -a; });
  add("abs", [](T a) { return std::fabs(a); });
  add("min", [](T a, T b) { return smaller(a, b); });
  add("max", [](T a, T b) { return larger(a, b); });
  add("selp", [](T a, T b, bool first) { return first ? a : b; });
  add("mov", [](T a) { return a; });
  add("setp.eq", [](T a, T b) { return a == b; });
  add("setp.lt", [](T a, T b) { return a < b; });
  add("setp.le", [](T a, T b) { return a <= b; });
  add("setp.gt", [](T a, T b) { return a > b; });
  add("setp.ge", [](T a, T b) { return a >= b; });
  add("setp.ne", [](T a, T b) { return a < b || a > b; });  // false if an operand is NaN
  // The next six comparisons are true if an operand is NaN.
  add("setp.equ", [](T a, T b) { return !(a < b || a > b); });
  add("setp.neu", [](T a, T b) { return a != b; });
  add("setp.ltu", [](T a, T b) { return !(a >= b); });
  add("setp.leu", [](T a, T b) { return !(a > b); });
  add("setp.gtu", [](T a, T b) { return !(a <= b); });
  add("setp.geu", [](T a, T b) { return !(a < b); });
  add("setp.num", [](T a, T b) { return a == a && b == b; });
  add("setp.nan", [](T a, T b) { return a != a || b != b; });
}

std::vector<Arithmetic> make_table() {
  std::vector<Arithmetic> table = {
      of("mul.wide.u16", [](uint16_t a, uint16_t b) { return uint32_t{a} * b; }),
      of("mul.wide.s16", [](int16_t a, int16_t b) { return int32_t{a} * b; }),
      of("mul.wide.u32", [](uint32_t a, uint32_t b) { return uint64_t{a} * b; }),
      of("mul.wide.s32", [](int32_t a, int32_t b) { return int64_t{a} * b; }),
      of("mul.hi.u32", [](uint32_t a, uint32_t b) { return static_cast<uint32_t>(uint64_t{a} * b >> 32); }),
      of("mul.hi.u64",
         [](uint64_t a, uint64_t b) { return static_cast<uint64_t>(static_cast<unsigned __int128>(a) * b >> 64); }),
      of("mad.wide.u32", [](uint32_t a, uint32_t b, uint64_t c) { return uint64_t{a} * b + c; }),
      of("mad.wide.s32", [](int32_t a, int32_t b, uint64_t c) { return static_cast<uint64_t>(int64_t{a} * b) + c; }),
      of("neg.s32", [](uint32_t a) { return 0u - a; }),
      of("neg.s64", [](uint64_t a) { return uint64_t{0} - a; }),
      of("neg.s16", [](uint16_t a) { return static_cast<uint16_t>(0 - a); }),
      of("bfi.b32",
         [](uint32_t a, uint32_t b, uint32_t begin, uint32_t length) { return insert_bits(a, b, begin, length); }),
      of("bfi.b64",
         [](uint64_t a, uint64_t b, uint32_t begin, uint32_t length) { return insert_bits(a, b, begin, length); }),
      of("bfe.u32", [](uint32_t a, uint32_t begin, uint32_t length) { return extract_bits(a, begin, length); }),
      of("prmt.b32", [](uint32_t a, uint32_t b, uint32_t selector) { return permute_bytes(a, b, selector); }),
      of("popc.b32", [](uint32_t a) { return static_cast<uint32_t>(std::popcount(a)); }),
      of("clz.b32", [](uint32_t a) { return static_cast<uint32_t>(std::countl_zero(a)); }),
      of("clz.b64", [](uint64_t a) { return static_cast<uint32_t>(std::countl_zero(a)); }),
      of("shf.l.wrap.b32",
         [](uint32_t a, uint32_t b, uint32_t by) {
           return static_cast<uint32_t>((uint64_t{b} << 32 | a) << (by & 31) >> 32);
         }),
      of("shf.r.wrap.b32", [](uint32_t a, uint32_t b,
                              uint32_t by) { return static_cast<uint32_t>((uint64_t{b} << 32 | a) >> (by & 31)); }),
      of("fma.rn.f64", [](double a, double b, double c) { return card(std::fma(a, b, c)); }),
      // Here a generic address is equal to the global address, because all address spaces use the
      // same addresses.
      of("cvta.to.global.u64", [](uint64_t a) { return a; }),
      of("cvta.global.u64", [](uint64_t a) { return a; }),
      of("cvt.u32.u64", [](uint64_t a) { return static_cast<uint32_t>(a); }),
      of("cvt.u64.u32", [](uint32_t a) { return uint64_t{a}; }),
      of("cvt.s64.s32", [](int32_t a) { return int64_t{a}; }),
      of("cvt.s64.s16", [](int16_t a) { return int64_t{a}; }),
      of("cvt.s64.s8", [](int8_t a) { return int64_t{a}; }),
      of("cvt.u16.u32", [](uint32_t a) { return static_cast<uint16_t>(a); }),
      of("cvt.u16.u64", [](uint64_t a) { return static_cast<uint16_t>(a); }),
      of("cvt.u16.u8", [](uint8_t a) { return uint16_t{a}; }),
      of("cvt.s16.s8", [](int8_t a) { return int16_t{a}; }),
      of("cvt.u32.u8", [](uint8_t a) { return uint32_t{a}; }),
      of("cvt.s32.s8", [](int8_t a) { return int32_t{a}; }),
      of("cvt.u32.u16", [](uint16_t a) { return uint32_t{a}; }),
      of("cvt.s32.s16", [](int16_t a) { return int32_t{a}; }),
      of("cvt.u64.u16", [](uint16_t a) { return uint64_t{a}; }),
      of("cvt.u64.u8", [](uint8_t a) { return uint64_t{a}; }),
      of("cvt.rn.f32.u16", [](uint16_t a) { return static_cast<float>(a); }),
      of("cvt.rn.f32.u32", [](uint32_t a) { return static_cast<float>(a); }),
      of("cvt.rn.f32.s16", [](int16_t a) { return static_cast<float>(a); }),
      of("cvt.rn.f32.s32", [](int32_t a) { return static_cast<float>(a); }),
      of("cvt.rn.f32.u64", [](uint64_t a) { return static_cast<float>(a); }),
      of("cvt.rn.f32.s64", [](int64_t a) { return static_cast<float>(a); }),
      of("cvt.rn.f64.u32", [](uint32_t a) { return static_cast<double>(a); }),
      of("cvt.rn.f64.s32", [](int32_t a) { return static_cast<double>(a); }),
      of("cvt.rn.f64.u64", [](uint64_t a) { return static_cast<double>(a); }),
      of("cvt.rn.f64.s64", [](int64_t a) { return static_cast<double>(a); }),
      of("cvt.f64.f32", [](float a) { return card(static_cast<double>(a)); }),
      of("cvt.rn.f32.f64", [](double a) { return card(static_cast<float>(a)); }),
      of("cvt.rzi.s32.f32", [](float a) { return cut<int32_t>(a); }),
      of("cvt.rzi.u32.f32", [](float a) { return cut<uint32_t>(a); }),
      of("cvt.rzi.s64.f32", [](float a) { return cut<int64_t>(a); }),
      of("cvt.rzi.u64.f32", [](float a) { return cut<uint64_t>(a); }),
      of("cvt.rzi.u32.f64", [](double a) { return cut<uint32_t>(a); }),
      of("cvt.rzi.s32.f64", [](double a) { return cut<int32_t>(a); }),
      of("cvt.rzi.s64.f64", [](double a) { return cut<int64_t>(a); }),
      of("cvt.rzi.u64.f64", [](double a) { return cut<uint64_t>(a); }),
      of("cvt.rn.bf16x2.f32", [](float high, float low) { return nearest_bf16(high) << 16 | nearest_bf16(low); }),
      of("max.NaN.f32", [](float a, float b) { return a != a || b != b ? card(a + b) : larger(a, b); }),
      of("fma.rn.sat.f32",
         [](float a, float b, float c) { return std::fmin(std::fmax(std::fma(a, b, c), 0.0f), 1.0f) + 0.0f; }),
      of("cvt.rna.tf32.f32", [](float a) { return fibre::round_to_tf32(a); }),
      of_masks(
          "and.pred", [](uint32_t a, uint32_t b) { return a & b; }, 3),
      of_masks(
          "or.pred", [](uint32_t a, uint32_t b) { return a | b; }, 3),
      of_masks(
          "xor.pred", [](uint32_t a, uint32_t b) { return a ^ b; }, 3),
      of_masks(
          "not.pred", [](uint32_t a, uint32_t) { return ~a; }, 2),
      of_masks(
          "mov.pred", [](uint32_t a, uint32_t) { return a; }, 2),
      {"fma.rn.f32", fuse, std::vector<Width>(4, Width::kWord)},
  };
  add_integer<int16_t>(table, "s16");
  add_integer<uint16_t>(table, "u16");
  add_integer<int32_t>(table, "s32");
  add_integer<uint32_t>(table, "u32");
  add_integer<int64_t>(table, "s64");
  add_integer<uint64_t>(table, "u64");
  add_bits<uint16_t>(table, "b16");
  add_bits<uint32_t>(table, "b32");
  add_bits<uint64_t>(table, "b64");
  add_float<float>(table, "f32");
  add_float<double>(table, "f64");
  return table;
}

}  // namespace

const Arithmetic* find_arithmetic(std::string_view opcode) {
  static const std::map<std::string, Arithmetic, std::less<>> kTable = [] {
    std::map<std::string, Arithmetic, std::less<>> table;
    for (const Arithmetic& each : make_table()) table.emplace(each.opcode, each);
    return table;
  }();
  const auto found = kTable.find(opcode);
  return found == kTable.end() ? nullptr : &found->second;
}

}  // namespace reprise::ptx
