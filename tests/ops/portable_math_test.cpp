// Compares the portable functions with the C library's for `long double`, in units in the last
// place, if `long double` has more bits than f64. Also tests the ends of the ranges, and exact
// bits, which must be equal on every processor, compiler and library. Tests of kernels have the
// tolerance of f32, so they would not detect a loss of ten bits.
#include "lib/portable_math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <ostream>

#include "lib/rng.h"

namespace reprise {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Returns number `i` of a random sequence in [0, 1).
double uniform(uint64_t i) {
  const PhiloxBlock block = philox(1, 0, i);
  return static_cast<double>((uint64_t{block.word[0]} << 32 | block.word[1]) >> 11) * 0x1p-53;
}

struct Function {
  const char* name;
  double (*own)(double x);
  long double (*reference)(long double x);
  double (*draw)(double u);
  double bound;  // maximum error, in units in the last place
  uint64_t bits;  // hash of the bits of a thousand results, which are equal on every machine
};

void PrintTo(const Function& function, std::ostream* to) { *to << function.name; }

constexpr double kTheta = 500000;
const Function kFunctions[] = {
    {"log of a share", portable_log, logl, [](double u) { return u + 0x1p-60; }, 0.53, 0x891f073a88fbe56c},
    {"log of any number", portable_log, logl,
     [](double u) { return std::ldexp(1 + u, static_cast<int>(2040 * u) - 1020); }, 0.53, 0x69ea6417b09a458b},
    {"log near 1", portable_log, logl, [](double u) { return 0.99 + 0.02 * u; }, 0.53, 0x6558a9a71122d950},
    {"log1p", portable_log1p, log1pl, [](double u) { return 4 * u - 0.99; }, 0.53, 0x6e90f6b400b12956},
    {"log1p near 0", portable_log1p, log1pl, [](double u) { return std::ldexp(u - 0.5, -static_cast<int>(60 * u)); },
     0.53, 0xcd78f0435a32f435},
    {"exp", portable_exp, expl, [](double u) { return 1400 * u - 700; }, 0.54, 0xf1a6f4ab617597b6},
    {"exp near 0", portable_exp, expl, [](double u) { return 2 * u - 1; }, 0.54, 0x6f2491f5c2109eb},
    {"expm1", portable_expm1, expm1l, [](double u) { return 740 * u - 36; }, 0.80, 0x6b99d11d22980ccd},
    {"expm1 near 0", portable_expm1, expm1l, [](double u) { return std::ldexp(u - 0.5, -static_cast<int>(60 * u)); },
     0.80, 0x4c918c3962491296},
    {"power of a beta", [](double t) { return portable_power(0.999, t); },
     [](long double t) { return powl(static_cast<long double>(0.999), t); },
     [](double u) { return std::floor(20000 * u) + 1; }, 0.55, 0xbabd3df6dacaab82},
    {"power of a base", [](double y) { return portable_power(kTheta, y); },
     [](long double y) { return powl(static_cast<long double>(kTheta), y); }, [](double u) { return -u; }, 0.55,
     0xdda1fa19e8f8fdfb},
    {"power of a step", [](double t) { return portable_power(t, -0.8); },
     [](long double t) { return powl(t, static_cast<long double>(-0.8)); },
     [](double u) { return std::floor(1e6 * u) + 1; }, 0.55, 0x800eeba4b8c2b6be},
    {"any power", [](double x) { return portable_power(x, 3.7); },
     [](long double x) { return powl(x, static_cast<long double>(3.7)); },
     [](double u) { return std::ldexp(1 + u, static_cast<int>(540 * u) - 270); }, 0.55, 0xfee5103c86d4fd47},
    {"cosine", portable_cosine, cosl, [](double u) { return 14 * u - 7; }, 0.80, 0x2bce6c8791e2ee8a},
    {"sine", portable_sine, sinl, [](double u) { return 14 * u - 7; }, 0.80, 0x77ae855da2359717},
    {"sine near 0", portable_sine, sinl, [](double u) { return std::ldexp(u - 0.5, -static_cast<int>(60 * u)); }, 0.80,
     0x525b226895453949},
    {"cosine of large angles", portable_cosine, cosl, [](double u) { return 2e6 * u - 1e6; }, 0.80, 0x9357b3d4d4b871c4},
};

class PortableMath : public testing::TestWithParam<Function> {};

TEST_P(PortableMath, IsAsNearAsItsHeaderSays) {
  if (std::numeric_limits<long double>::digits < 64) GTEST_SKIP() << "long double has no more bits than double here";
  const Function& f = GetParam();
  double worst = 0, at = 0;
  for (uint64_t i = 0; i < 200000; ++i) {
    const double x = f.draw(uniform(i));
    const long double expected = f.reference(x);
    int exponent = 0;
    std::frexp(static_cast<double>(expected), &exponent);
    const double error = static_cast<double>(fabsl(f.own(x) - expected) / ldexpl(1, exponent - 53));
    if (!(error <= worst)) worst = error, at = x;
  }
  EXPECT_LT(worst, f.bound) << f.name << " at " << at;
}

TEST_P(PortableMath, HasTheSameBitsEverywhere) {
  uint64_t hash = 0;
  for (uint64_t i = 0; i < 1000; ++i)
    hash = (hash ^ std::bit_cast<uint64_t>(GetParam().own(GetParam().draw(uniform(i))))) * 0x9E3779B97F4A7C15u,
    hash ^= hash >> 31;
  EXPECT_EQ(hash, GetParam().bits) << GetParam().name << ": 0x" << std::hex << hash;
}

INSTANTIATE_TEST_SUITE_P(, PortableMath, testing::ValuesIn(kFunctions), [](const auto& info) {
  std::string name = info.param.name;
  for (char& c : name) c = c == ' ' ? '_' : c;
  return name;
});

// Where the cosine crosses zero, even the nearest f64 has a cosine of a few times 2^-60 or more. A
// unit in the last place of such a small number would be too strict a bound. So an absolute error
// of 2^-80 is also accepted.
TEST(PortableMathZeros, OfLargeAnglesAreAsNearAsTheHeaderSays) {
  if (std::numeric_limits<long double>::digits < 64) GTEST_SKIP() << "long double has no more bits than double here";
  for (uint64_t i = 0; i < 20000; ++i) {
    const double turns = 2 * std::floor(uniform(i) * 0x1p18) + 1, x = turns * 0x1.921fb54442d18p+0;
    const long double expected = cosl(x);
    const double nearest = static_cast<double>(expected),
                 bound = 0.80 * (std::nextafter(std::fabs(nearest), kInfinity) - std::fabs(nearest));
    EXPECT_LE(static_cast<double>(fabsl(portable_cosine(x) - expected)), std::fmax(bound, 0x1p-80)) << x;
  }
}

TEST(PortableMathEnds, AreThoseOfTheHeader) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), smallest = std::numeric_limits<double>::denorm_min();
  for (double (*f)(double) :
       {portable_log, portable_log1p, portable_exp, portable_expm1, portable_cosine, portable_sine})
    EXPECT_TRUE(std::isnan(f(nan)));
  EXPECT_EQ(portable_log(0), -kInfinity);
  EXPECT_EQ(portable_log(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(portable_log(-1)));
  EXPECT_EQ(portable_log(1), 0);
  EXPECT_DOUBLE_EQ(portable_log(smallest), -744.4400719213812);
  EXPECT_EQ(portable_log1p(-1), -kInfinity);
  EXPECT_EQ(portable_log1p(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(portable_log1p(-2)));
  EXPECT_EQ(portable_log1p(-0.0), 0);
  EXPECT_EQ(portable_exp(0), 1);
  EXPECT_EQ(portable_exp(kInfinity), kInfinity);
  EXPECT_EQ(portable_exp(709.9), kInfinity);
  EXPECT_DOUBLE_EQ(portable_exp(709.7), 1.6549840276802644e308);
  EXPECT_EQ(portable_exp(-kInfinity), 0);
  EXPECT_EQ(portable_exp(-708.5), 0);
  EXPECT_EQ(portable_expm1(kInfinity), kInfinity);
  EXPECT_EQ(portable_expm1(-kInfinity), -1);
  EXPECT_EQ(portable_expm1(-50), -1);
  EXPECT_EQ(portable_expm1(1e-300), 1e-300);
  EXPECT_EQ(portable_power(0, 3), 0);
  EXPECT_EQ(portable_power(0, 0), 1);
  EXPECT_EQ(portable_power(0, -1), kInfinity);
  EXPECT_EQ(portable_power(3, 0), 1);
  EXPECT_EQ(portable_power(2, 10), 1024);
  EXPECT_EQ(portable_power(0.5, 1e9), 0);
  EXPECT_EQ(portable_power(2, 1e9), kInfinity);
  EXPECT_TRUE(std::isnan(portable_power(-1, 2)));
  EXPECT_TRUE(std::isnan(portable_power(nan, 2)));
  EXPECT_TRUE(std::isnan(portable_power(2, nan)));
  EXPECT_EQ(portable_cosine(0), 1);
  EXPECT_EQ(portable_sine(0), 0);
  EXPECT_TRUE(std::isnan(portable_cosine(1e9)));
  EXPECT_TRUE(std::isnan(portable_sine(kInfinity)));
}

}  // namespace
}  // namespace reprise
