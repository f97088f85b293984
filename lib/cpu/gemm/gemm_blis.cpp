// BLIS's native SGEMM micro-kernel as a GemmTile, called on panels that this library packs (Van Zee
// & van de Geijn, BLIS, 2015). Only this file includes blis.h. After set-up this file must not call
// any BLIS function that allocates or starts threads.
#if __has_include(<blis.h>)  // otherwise this file is empty, and the program is linked without BLIS (gemm_tile.h)
#include <blis.h>

#include <cstring>

#include "lib/cpu/gemm/gemm_tile.h"

namespace reprise {
namespace {

using MicroKernel09 = void (*)(dim_t m, dim_t n, dim_t k, void* alpha, void* a, void* b, void* beta, void* c,
                               inc_t row_stride, inc_t column_stride, auxinfo_t* data, cntx_t* context);

void run(const GemmTile& tile, uint64_t k, const float* a_panel, const float* b_panel, float beta, float* c,
         int64_t row_stride, int64_t column_stride) {
  float one = 1.0f;
  float* a = const_cast<float*>(a_panel);
  float* b = const_cast<float*>(b_panel);
  auxinfo_t data;
  std::memset(&data, 0, sizeof data);
  data.a_next = a;
  data.b_next = b;
  const auto kernel = reinterpret_cast<MicroKernel09>(tile.kernel);
  kernel(tile.mr, tile.nr, static_cast<dim_t>(k), &one, a, b, &beta, c, row_stride, column_stride, &data,
         static_cast<cntx_t*>(tile.kernel_context));
}

// Returns the micro-kernel. BLIS 1.0 renamed the query, so this uses the name that compiles.
template <typename Context>
void* query_kernel(Context* context) {
  if constexpr (requires { bli_cntx_get_l3_nat_ukr_dt(BLIS_FLOAT, BLIS_GEMM_UKR, context); }) {
    return reinterpret_cast<void*>(bli_cntx_get_l3_nat_ukr_dt(BLIS_FLOAT, BLIS_GEMM_UKR, context));
  } else {
    return reinterpret_cast<void*>(bli_cntx_get_ukr_dt(BLIS_FLOAT, BLIS_GEMM_UKR, context));
  }
}
template <typename Context>
bool query_prefers_rows(Context* context) {
  if constexpr (requires { bli_cntx_get_l3_nat_ukr_prefs_dt(BLIS_FLOAT, BLIS_GEMM_UKR, context); }) {
    return bli_cntx_get_l3_nat_ukr_prefs_dt(BLIS_FLOAT, BLIS_GEMM_UKR, context);
  } else {
    return bli_cntx_ukr_prefers_rows_dt(BLIS_FLOAT, BLIS_GEMM_UKR, context);
  }
}

}  // namespace

GemmTile blis_gemm_tile() {
  bli_init();  // fills the table of contexts; allocates, so call it at set-up only
  const arch_t architecture = bli_arch_query_id();
  if (architecture == BLIS_ARCH_GENERIC) return {};  // plain C; this library's own tiles are faster
  cntx_t* context = const_cast<cntx_t*>(bli_gks_query_cntx());
  const dim_t mr = bli_cntx_get_blksz_def_dt(BLIS_FLOAT, BLIS_MR, context);
  const dim_t nr = bli_cntx_get_blksz_def_dt(BLIS_FLOAT, BLIS_NR, context);
  if (mr > dim_t{kMaxMr} || nr > dim_t{kMaxNr}) return {};
  GemmTile tile = {.name = "blis-",
                   .mr = static_cast<uint32_t>(mr),
                   .nr = static_cast<uint32_t>(nr),
                   .prefers_columns = !query_prefers_rows(context),
                   .run = run,
                   .run_rows = nullptr,
                   .run_depths = nullptr,
                   .kernel = query_kernel(context),
                   .kernel_context = context};
  std::strncat(tile.name, bli_arch_string(architecture), sizeof tile.name - 6);
  return tile;
}

}  // namespace reprise
#endif
