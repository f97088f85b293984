// Products and sums of two activations of which the second may be broadcast, and their gradients
// (lib/ops/broadcast.h). All loops are over the five sizes of a Broadcast. Memory limits their
// speed: b and its sums stay in L1.
#include "lib/cpu/cpu_kernels.h"
#include "lib/cpu/cpu_machine.h"
#include "lib/cpu/pointwise/broadcast_rules.h"
#include "lib/cpu/vector_math.h"

namespace reprise {
namespace {

constexpr Status kScratchTooSmall = {
    Code::kBadPlan, "the scratch of a repeated factor's gradient must have the bytes of its scratch rule", 0};

struct Multiply {
  REPRISE_INLINE static float of(float a, float b) { return a * b; }
};
struct Add {
  REPRISE_INLINE static float of(float a, float b) { return a + b; }
};

// The rows of a and y as contiguous lines. If b has one column, all rows of a run are one line,
// because they use the same element of b.
struct Lines {
  uint64_t count, length;
  uint64_t alike;  // number of consecutive lines that use the same segment of b
};
constexpr Lines lines_of(const Broadcast& shape) {
  const uint64_t runs = shape.outer * shape.repeats * shape.inner;
  return shape.columns == 1 ? Lines{runs, shape.rows, 1} : Lines{runs * shape.rows, shape.columns, shape.rows};
}

// Computes elements [begin, end) of each of the lines [first, last).
template <typename Map, typename Stored>
REPRISE_INLINE void map_lines_body(Map, const BroadcastArgsOf<Stored>& args, uint64_t first, uint64_t last,
                                   uint64_t begin, uint64_t end) {
  const Lines lines = lines_of(args.shape);
  for (uint64_t line = first; line < last;) {
    const uint64_t run = line / lines.alike, stop = smaller(last, (run + 1) * lines.alike);
    const Stored* b = args.b + args.shape.segment_of(run) * args.shape.columns;
    for (; line < stop; ++line) {
      Stored* y = args.y + line * lines.length;
      const Stored* a = args.a + line * lines.length;
      if (args.shape.columns == 1) {
        const float one = b[0];
        REPRISE_INDEPENDENT
        for (uint64_t i = begin; i < end; ++i) y[i] = Map::of(a[i], one);
      } else {
        REPRISE_INDEPENDENT
        for (uint64_t i = begin; i < end; ++i) y[i] = Map::of(a[i], b[i]);
      }
    }
  }
}
REPRISE_LEVELS_OF(REPRISE_LISTED(template <typename Map, typename Stored>), map_lines, map_lines_body,
                  (Map with, const BroadcastArgsOf<Stored>& args, uint64_t first, uint64_t last, uint64_t begin,
                   uint64_t end),
                  (with, args, first, last, begin, end))

template <typename Map, typename Stored>
Status map_all(const KernelContext& context, Map with, const BroadcastArgsOf<Stored>& args) {
  const VectorLevel level = cpu_machine(context).level;
  const Lines lines = lines_of(args.shape);
  const Partition down = split_rows(lines.count, lines.length), across{lines.length, kBlockElements};
  parallel_for(*context.workers, down.count() * across.count(), [&](uint32_t task) {
    const uint32_t d = task / across.count(), c = task % across.count();
    map_lines(level, with, args, down.begin(d), down.end(d), across.begin(c), across.end(c));
  });
  return ok_status();
}

// ---- the gradient of b ----

constexpr uint64_t kRowsInFloat = 16;  // rows that are summed in f32 before the sum is added in double

// Adds `rows` rows of dy * a, or of dy if kProducts is false, to `sums`. `part` is scratch for a
// row.
template <bool kProducts, typename Stored>
REPRISE_INLINE void add_rows(double* sums, float* part, const Stored* dy, const Stored* a, uint64_t rows,
                             uint64_t stride, uint64_t count) {
  for (uint64_t c = 0; c < count; ++c) part[c] = 0;
  for (uint64_t r = 0; r < rows; ++r) {
    const uint64_t at = r * stride;
    if constexpr (kProducts) {
      for (uint64_t c = 0; c < count; ++c) part[c] += float{dy[at + c]} * float{a[at + c]};
    } else {
      for (uint64_t c = 0; c < count; ++c) part[c] += float{dy[at + c]};
    }
  }
  for (uint64_t c = 0; c < count; ++c) sums[c] += static_cast<double>(part[c]);
}

// Returns the sum of `count` contiguous elements of dy * a, or of dy if kProducts is false.
template <bool kProducts, typename Stored>
REPRISE_INLINE float sum_neighbours(const Stored* dy, const Stored* a, uint64_t count) {
  typename VectorOf<kSumLanes>::type sum = {}, x, y;
  uint64_t i = 0;
  for (; i + kSumLanes <= count; i += kSumLanes) {
    read_vector<kSumLanes>(x, dy + i);
    if constexpr (kProducts) {
      read_vector<kSumLanes>(y, a + i);
      sum += x * y;
    } else {
      sum += x;
    }
  }
  float lanes[kSumLanes];
  write_vector<kSumLanes>(lanes, sum);
  for (uint64_t lane = 0; i + lane < count; ++lane) {
    if constexpr (kProducts) {
      lanes[lane] += float{dy[i + lane]} * float{a[i + lane]};
    } else {
      lanes[lane] += float{dy[i + lane]};
    }
  }
  return sum_lanes(lanes);
}

// The arguments of a task, which sums a range of the uses of elements [first, first + count) of a
// segment of b. A use is a row of dy whose forward read that segment.
struct SumTask {
  uint64_t segment, first, count;
  uint64_t begin, end;  // range of the uses that the task sums
};

// Sums the task's uses in order. kRowsInFloat rows of a run are summed at a time. If a row is one
// element, as many rows as fill kRowsInFloat vectors are summed at a time.
template <bool kProducts, typename Stored>
REPRISE_INLINE void sum_uses(double* sums, float* part, const BroadcastSumArgsOf<Stored>& args, const SumTask& task) {
  const Broadcast& s = args.shape;
  const uint64_t maximum = s.columns == 1 ? kRowsInFloat * kSumLanes : kRowsInFloat;
  for (uint64_t c = 0; c < task.count; ++c) sums[c] = 0;
  for (uint64_t use = task.begin; use < task.end;) {
    const uint64_t repeat = use / s.rows, row = use % s.rows;
    const uint64_t rows = smaller(maximum, smaller(task.end - use, s.rows - row));
    const uint64_t at = (s.run_of(task.segment, repeat) * s.rows + row) * s.columns + task.first;
    const Stored* a = kProducts ? args.a + at : nullptr;
    if (s.columns == 1) {
      sums[0] += static_cast<double>(sum_neighbours<kProducts>(args.dy + at, a, rows));
    } else {
      add_rows<kProducts>(sums, part, args.dy + at, a, rows, s.columns, task.count);
    }
    use += rows;
  }
}

// Rounds the sums to f32 before they are added to db. An accumulated gradient thus has the bits of
// the sum of two gradients.
template <typename Stored>
REPRISE_INLINE void store_sums(Stored* db, const double* sums, uint64_t count, bool accumulate) {
  for (uint64_t c = 0; c < count; ++c) {
    const float sum = static_cast<float>(sums[c]);
    db[c] = accumulate ? float{db[c]} + sum : sum;
  }
}

// Computes the task's sums and writes them to `partials`, or to db if `partials` is null.
template <typename Stored>
REPRISE_INLINE void sum_task_body(const BroadcastSumArgsOf<Stored>& args, const SumTask& task, double* partials) {
  REPRISE_STACK_BUFFER(double, sums, task.count);
  REPRISE_STACK_BUFFER(float, part, task.count);
  if (args.a != nullptr) {
    sum_uses<true>(sums, part, args, task);
  } else {
    sum_uses<false>(sums, part, args, task);
  }
  const uint64_t at = task.segment * args.shape.columns + task.first;
  if (partials == nullptr) return store_sums(args.db + at, sums, task.count, args.accumulate_db);
  for (uint64_t c = 0; c < task.count; ++c) partials[at + c] = sums[c];
}
REPRISE_STORAGE_LEVELS(sum_task, sum_task_body,
                       (const BroadcastSumArgsOf<Stored>& args, const SumTask& task, double* partials),
                       (args, task, partials))

// Computes elements [begin, end) of db by adding the chunks' sums in order.
template <typename Stored>
void add_chunks(const BroadcastSumArgsOf<Stored>& args, const double* partials, uint32_t chunks, uint64_t begin,
                uint64_t end) {
  const uint64_t elements = args.shape.segments() * args.shape.columns;
  for (uint64_t e = begin; e < end; ++e) {
    double sum = 0;
    for (uint32_t k = 0; k < chunks; ++k) sum += partials[k * elements + e];
    store_sums(args.db + e, &sum, 1, args.accumulate_db);
  }
}

template <typename Stored>
Status sum_all(const KernelContext& context, const BroadcastSumArgsOf<Stored>& args) {
  const Broadcast& s = args.shape;
  if (args.scratch_bytes < broadcast_scratch_bytes(s)) return kScratchTooSmall;
  const VectorLevel level = cpu_machine(context).level;
  const Partition chunks = broadcast_chunks(s), tiles{s.columns, broadcast_tile(cpu_machine(context).size)};
  const uint64_t elements = s.segments() * s.columns, units = s.segments() * tiles.count();
  double* partials = chunks.count() == 1 ? nullptr : static_cast<double*>(args.scratch);
  const Partition tasks = split_rows(chunks.count() * units, chunks.size * smaller(s.columns, tiles.size));
  for_each_piece(*context.workers, tasks, [&](uint64_t first, uint64_t last) {
    for (uint64_t i = first; i < last; ++i) {
      const uint32_t chunk = static_cast<uint32_t>(i / units), tile = static_cast<uint32_t>(i % tiles.count());
      const SumTask task = {i % units / tiles.count(), tiles.begin(tile), tiles.end(tile) - tiles.begin(tile),
                            chunks.begin(chunk), chunks.end(chunk)};
      sum_task(level, args, task, partials == nullptr ? nullptr : partials + chunk * elements);
    }
  });
  if (partials == nullptr) return ok_status();
  for_each_piece(*context.workers, {elements, kBlockElements / 32},
                 [&](uint64_t begin, uint64_t end) { add_chunks(args, partials, chunks.count(), begin, end); });
  return ok_status();
}

}  // namespace

template <typename Stored>
Status cpu_multiply(const KernelContext& context, const BroadcastArgsOf<Stored>& args) {
  return map_all(context, Multiply{}, args);
}

template <typename Stored>
Status cpu_broadcast_add(const KernelContext& context, const BroadcastArgsOf<Stored>& args) {
  return map_all(context, Add{}, args);
}

template <typename Stored>
Status cpu_broadcast_sum(const KernelContext& context, const BroadcastSumArgsOf<Stored>& args) {
  return sum_all(context, args);
}

REPRISE_INSTANTIATE(cpu_multiply, BroadcastArgs)
REPRISE_INSTANTIATE(cpu_broadcast_add, BroadcastArgs)
REPRISE_INSTANTIATE(cpu_broadcast_sum, BroadcastSumArgs)

}  // namespace reprise
