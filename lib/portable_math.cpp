// Computes Taylor series after the usual range reductions (Muller, "Elementary Functions", 2016).
// The leading terms are kept as sums of two numbers (Dekker 1971).
#include "lib/portable_math.h"

#include <bit>
#include <cstdint>
#include <limits>

#if defined(__clang__)
#pragma clang fp contract(off)
#endif

namespace reprise {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity(), kNaN = std::numeric_limits<double>::quiet_NaN();
// ln 2 and pi / 2 as sums, with the largest part first. The first parts have 32 and 33 bits, so
// that their products with small integers are exact.
constexpr double kLn2[2] = {0x1.62e42feep-1, 0x1.a39ef35793c76p-33};
constexpr double kQuarterTurn[3] = {0x1.921fb544p+0, 0x1.0b4611a6p-34, 0x1.3198a2e037073p-69};

struct InverseFactorials {
  double of[21];
};
constexpr InverseFactorials make_inverse_factorials() {
  InverseFactorials inverse = {};
  double factorial = 1;  // exact up to 22!
  for (int n = 0; n <= 20; ++n) factorial *= n > 0 ? n : 1, inverse.of[n] = 1 / factorial;
  return inverse;
}
constexpr InverseFactorials kInverse = make_inverse_factorials();

// A number with more bits than one f64 has, as the sum of two; `low` is small compared with `high`.
struct Pair {
  double high, low;
};

// Returns a + b exactly.
Pair add(double a, double b) {
  const double sum = a + b, of_b = sum - a;
  return {sum, (a - (sum - of_b)) + (b - of_b)};
}
// Returns a * b exactly; neither factor may exceed 2^995 in magnitude.
Pair multiply(double a, double b) {
  constexpr double kSplit = 0x1p27 + 1;
  const double a_scaled = kSplit * a, b_scaled = kSplit * b;
  const double a_high = a_scaled - (a_scaled - a), b_high = b_scaled - (b_scaled - b),
               a_low = a - a_high, b_low = b - b_high;
  const double product = a * b;
  return {product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low};
}

double power_of_two(int64_t exponent) { return std::bit_cast<double>(static_cast<uint64_t>(exponent + 1023) << 52); }
int64_t nearest_integer(double x) { return static_cast<int64_t>(x < 0 ? x - 0.5 : x + 0.5); }

// Returns log(x.high + x.low); x.high is a normal number above 0. With x = 2^e m, m from sqrt(1/2)
// to sqrt(2), and s = (m - 1) / (m + 1): log m = 2 (s + s^3 / 3 + s^5 / 5 + ...).
Pair log_of(const Pair& x) {
  constexpr double kRoot2 = 0x1.6a09e667f3bcdp+0;
  const uint64_t bits = std::bit_cast<uint64_t>(x.high);
  int64_t exponent = static_cast<int64_t>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0xfffffffffffffu) | uint64_t{1023} << 52);
  if (m > kRoot2) m *= 0.5, ++exponent;
  const Pair above =
      add(m - 1, x.low == 0 ? 0 : (x.low * power_of_two(-exponent / 2)) * power_of_two(-exponent - -exponent / 2));
  const Pair divisor = add(2, above.high);
  const double s = above.high / divisor.high;
  const Pair back = multiply(s, divisor.high);
  const double rest =
      (((above.high - back.high) - back.low) + above.low - s * (divisor.low + above.low)) / divisor.high;
  const double square = s * s, fourth = square * square;
  double every = 0, between = 0;  // 1/3 + s^4 / 7 + ... and 1/5 + s^4 / 9 + ..., interleaved
  for (int n = 23; n >= 3; n -= 4) every = every * fourth + 1.0 / n, between = between * fourth + 1.0 / (n + 2);
  const double series = every + square * between;
  const Pair leading = add(static_cast<double>(exponent) * kLn2[0], 2 * s);
  return add(leading.high,
             leading.low + (2 * (rest * (1 + square) + s * square * series) + static_cast<double>(exponent) * kLn2[1]));
}

// 2^exponent (1 + part.high + part.low) = exp(x.high + x.low), for |x.high| <= 1100.
struct Exponential {
  int64_t exponent;
  Pair part;
};
Exponential exponential_of(const Pair& x) {
  const int64_t exponent = nearest_integer(x.high * 0x1.71547652b82fep+0);
  const double n = static_cast<double>(exponent);
  const Pair r = add(x.high - n * kLn2[0], x.low - n * kLn2[1]);
  double series = kInverse.of[14];
  for (int n = 13; n >= 3; --n) series = kInverse.of[n] + series * r.high;
  const Pair square = multiply(r.high, r.high);
  const Pair two = add(r.high, 0.5 * square.high);
  return {exponent, {two.high, two.low + (0.5 * square.low + r.low * (1 + r.high) + square.high * r.high * series)}};
}
double exp_of(const Pair& x) {
  if (x.high > 710) return kInfinity;
  if (x.high < -709) return 0;
  const Exponential e = exponential_of(x);
  const Pair one = add(1, e.part.high);
  const double significand = one.high + (one.low + e.part.low);
  if (e.exponent < -1022 || (e.exponent == -1022 && significand < 1)) return 0;
  return significand * power_of_two(e.exponent / 2) * power_of_two(e.exponent - e.exponent / 2);
}

// x = quarters * pi / 2 + r, with |r| at most slightly above pi / 4.
struct ReducedAngle {
  int64_t quarters;
  Pair r;
};
ReducedAngle reduced(double x) {
  const int64_t quarters = nearest_integer(x * 0x1.45f306dc9c883p-1);
  const double n = static_cast<double>(quarters);
  const Pair r = add(x - n * kQuarterTurn[0], -(n * kQuarterTurn[1]));
  const Pair whole = add(r.high, r.low - n * kQuarterTurn[2]);
  return {quarters, whole};
}
double sine_of(const Pair& r) {
  const double square = r.high * r.high;
  double series = kInverse.of[19];
  for (int n = 17; n >= 3; n -= 2) series = kInverse.of[n] - square * series;
  return r.high + (r.low * (1 - 0.5 * square) - r.high * square * series);
}
double cosine_of(const Pair& r) {
  const Pair square = multiply(r.high, r.high);
  double series = kInverse.of[20];
  for (int n = 18; n >= 4; n -= 2) series = kInverse.of[n] - square.high * series;
  const Pair one = add(1, -0.5 * square.high);
  return one.high + (one.low + (square.high * square.high * series - 0.5 * square.low - r.high * r.low));
}
// Returns the cosine of x - quarters * pi / 2.
double cosine_behind(double x, int64_t quarters) {
  if (!(x >= -0x1p20 && x <= 0x1p20)) return kNaN;
  const ReducedAngle t = reduced(x);
  const int64_t side = (t.quarters - quarters) & 3;
  const double value = side % 2 == 0 ? cosine_of(t.r) : sine_of(t.r);
  return side == 1 || side == 2 ? -value : value;
}

}  // namespace

double portable_log(double x) {
  if (!(x > 0)) return x == 0 ? -kInfinity : kNaN;
  if (x == kInfinity) return x;
  if (x < 0x1p-1022) {
    const Pair scaled = log_of({x * 0x1p54, 0});
    return scaled.high + (scaled.low - 54 * kLn2[0] - 54 * kLn2[1]);
  }
  const Pair log = log_of({x, 0});
  return log.high + log.low;
}

double portable_log1p(double x) {
  if (!(x > -1)) return x == -1 ? -kInfinity : kNaN;
  if (x == kInfinity) return x;
  if (x > -0x1p-54 && x < 0x1p-54) return x;
  const Pair log = log_of(add(1, x));
  return log.high + log.low;
}

double portable_exp(double x) { return x == x ? exp_of({x, 0}) : x; }

double portable_expm1(double x) {
  if (!(x < 710)) return x == x ? kInfinity : x;
  if (x < -40) return -1;
  if (x > -0x1p-54 && x < 0x1p-54) return x;
  const Exponential e = exponential_of({x, 0});
  if (e.exponent > 1000) return exp_of({x, 0});
  const double scale = power_of_two(e.exponent);
  const Pair whole = add(scale, scale * e.part.high), less = add(whole.high, -1);
  return less.high + (less.low + (whole.low + scale * e.part.low));
}

double portable_power(double x, double y) {
  if (!(x >= 0) || y != y) return kNaN;
  if (y == 0 || x == 1) return 1;
  if (x < 0x1p-1022) return y > 0 ? 0 : kInfinity;
  if (x == kInfinity) return y > 0 ? kInfinity : 0;
  const Pair log = log_of({x, 0});
  if (!(log.high * y > -1100)) return 0;
  if (!(log.high * y < 1100)) return kInfinity;
  const Pair product = multiply(log.high, y);
  return exp_of(add(product.high, product.low + log.low * y));
}

double portable_cosine(double x) { return cosine_behind(x, 0); }
double portable_sine(double x) { return cosine_behind(x, 1); }

}  // namespace reprise
