// Layer-norm by its definition (Ba, Kiros & Hinton 2016), in plain loops in double. The inputs are
// random numbers, seeded by the shape. Tests of the CUDA kernels use it under fibres and on a card.
// Both g++ and nvcc can compile this file; it needs no library.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

namespace reprise::test {

using Floats = std::vector<float>;
constexpr float kEpsilon = 1e-5f;

struct Problem {
  uint64_t M;
  uint32_t C;
  Floats x, gamma, beta, dy;

  Problem(uint64_t rows, uint32_t columns) : M(rows), C(columns) {
    std::mt19937 random(static_cast<uint32_t>(M * 4099 + C));
    const auto draw = [&](uint64_t n, float centre) {
      std::uniform_real_distribution<float> uniform(centre - 1, centre + 1);
      Floats values(n);
      for (float& v : values) v = uniform(random);
      return values;
    };
    x = draw(M * C, 0.5f), gamma = draw(C, 1), beta = draw(C, 0), dy = draw(M * C, 0);
  }
};

// The expected results. For each result, *_size is the sum of the magnitudes of its terms, to which
// the rounding error is proportional.
struct Reference {
  std::vector<double> y, mean, rstd, dx, dgamma, dbeta;
  std::vector<double> y_size, mean_size, rstd_size, dx_size, dgamma_size, dbeta_size;

  explicit Reference(const Problem& p)
      : y(p.M * p.C),
        mean(p.M),
        rstd(p.M),
        dx(p.M * p.C),
        dgamma(p.C),
        dbeta(p.C),
        y_size(y),
        mean_size(mean),
        rstd_size(rstd),
        dx_size(dx),
        dgamma_size(dgamma),
        dbeta_size(dbeta) {
    for (uint64_t r = 0; r < p.M; ++r) add_row(p, r);
  }

 private:
  void add_row(const Problem& p, uint64_t r) {
    const float *x = p.x.data() + r * p.C, *dy = p.dy.data() + r * p.C;
    double sum = 0, size = 0, squares = 0;
    for (uint32_t c = 0; c < p.C; ++c) sum += x[c], size += std::fabs(x[c]);
    mean[r] = sum / p.C, mean_size[r] = size / p.C;
    for (uint32_t c = 0; c < p.C; ++c) squares += (x[c] - mean[r]) * (x[c] - mean[r]);
    rstd[r] = 1 / std::sqrt(squares / p.C + static_cast<double>(kEpsilon));
    // If the numbers of a row are close together, the relative error of their variance is that of
    // their differences from the mean. So this error depends on the magnitudes of x and mean.
    rstd_size[r] = rstd[r] * (1 + rstd[r] * mean_size[r]);
    double g = 0, gx = 0, g_size = 0, gx_size = 0;
    for (uint32_t c = 0; c < p.C; ++c) {
      const double xhat = (x[c] - mean[r]) * rstd[r], dxhat = dy[c] * static_cast<double>(p.gamma[c]);
      const double xhat_size = (std::fabs(x[c]) + mean_size[r]) * rstd_size[r];
      y[r * p.C + c] = xhat * p.gamma[c] + p.beta[c];
      y_size[r * p.C + c] = xhat_size * std::fabs(p.gamma[c]) + std::fabs(p.beta[c]);
      g += dxhat / p.C, g_size += std::fabs(dxhat) / p.C;
      gx += dxhat * xhat / p.C, gx_size += std::fabs(dxhat) * xhat_size / p.C;
      dgamma[c] += dy[c] * xhat, dgamma_size[c] += std::fabs(dy[c]) * xhat_size;
      dbeta[c] += dy[c], dbeta_size[c] += std::fabs(dy[c]);
    }
    for (uint32_t c = 0; c < p.C; ++c) {
      const double xhat = (x[c] - mean[r]) * rstd[r], dxhat = dy[c] * static_cast<double>(p.gamma[c]);
      const double xhat_size = (std::fabs(x[c]) + mean_size[r]) * rstd_size[r];
      dx[r * p.C + c] = rstd[r] * (dxhat - g - xhat * gx);
      dx_size[r * p.C + c] = rstd_size[r] * (std::fabs(dxhat) + g_size + xhat_size * gx_size);
    }
  }
};

// Returns the error bound of a few f32 roundings; it grows with the square root of the number of
// terms. `size` is the sum of the terms' magnitudes, `added` the previous value of an accumulated
// gradient.
inline double error_bound(double size, double terms, double added) {
  return (4 + std::sqrt(terms)) * std::ldexp(1.0, -24) * (size + std::fabs(added));
}

}  // namespace reprise::test
