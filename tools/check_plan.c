// Proves for auditors that the plans of a plan.bin are safe. A message names the rule of
// lib/PLAN.md that is broken. The program was written from that page, shares no code with
// lib/check.h and needs only libc:
//
//   cc -std=c99 -O2 -o check_plan check_plan.c && ./check_plan plan.bin manifest.json
//
// It proves formats, sizes, types, lifetimes, overlaps, bounds, groups, transfers, loads, ranks,
// what is written before it is read, Carried, and the order of updates. It does not prove what
// needs a kernel's code: the kernel's shape contract, its bytes of scratch and of stack. It does
// not compute the checksum: it judges the tables that it reads.
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The kernels' contracts, in the order of `reprise kernels`: op, pass, pool of attributes (24:
// none), bits of the kinds of State that it may update, then a word for each argument. A word is
// the role (output, updated, input, scratch), flags, and the storage (kStorage). Flags: ? optional,
// + may be added to, * names a group, = the in-place pair, ~ may overlap its source, 1 2 3 names
// the labels, document starts or pairs; the row is carried by the p second level, w file of
// weights, r ranks. tests/judges/second_checker_test.cpp compares both constants with lib.
static const char kContract[] = "faed0acd4d5b7b64";
static const char kKernels[] =
    "0 0 0 0 oF o?A o?A iF iG i?A s?M;0 2 0 0 o+F iF iG s?M;0 3 0 0 o+A iF iF s?M;"
    "19 0 0 0 oF o?A o?A iF iG i?A iA iA iA iA s?M;19 3 0 0 o+A iF iF iA iA iA iA s?M;1 5 1 0 oA oA iF s?M;"
    "1 6 1 4 uA uA uD iA iA;1 0 1 0 o=F i=F iA iA iA iA;1 7 1 0 o=F i=F iA iA iA iA;"
    "1 1 1 0 o=F o?+A o?+A iF iA iA iA i=F s?M;1 2 1 0 o=F i=F iA iA;20 1 1 0 o=F o?+A o?+A iF iA iA iA iA i=F s?M;"
    "21 0 1 0 o=F i=F iF iA iA iA iA;26 0 1 0 o=F oA oA i=F iA iA s?M;26 1 24 0 o=F o?+A o?+A iF iA iA iA i=F s?M;"
    "2 0 24 0 o=F i=F;2 1 24 0 o=F iF i=F;3 0 24 0 o=F i=F iF;4 0 24 0 o+F iF;9 0 3 0 o=F i=F;9 1 3 0 o=F iF i=F;"
    "23 0 24 0 o=F i=F iF;23 1 24 0 o=F oF i=F iF iF;17 0 24 0 o~F iF;5 0 0 0 oF oE iF;5 1 0 0 o+F iE iF;"
    "6 0 24 0 oF iF i?2C;6 1 24 0 o+F iF i?2C;7 0 2 0 oF iF iG i?A i?F i?G s?M;7 2 2 0 o+F iF iG s?M;"
    "7 3 2 0 o+A iF iF s?M;7 4 24 0 o+A iF s?M;8 0 1 0 oF oA oA iF iA iA;8 1 1 0 o+F o?+A o?+A iF iA iA iA iF s?M;"
    "22 0 1 0 oF oA iF iA;22 1 1 0 o+F o?+A iF iA iA iF s?M;10 0 13 0 oF iC iG i?G;10 1 13 0 o?+A o?+A iC iF;"
    "11 0 4 0 oF oA iF i?2C iL s?M;11 1 4 0 oF iF iF iA iF i?2C iL s?M;12 0 5 0 o=F i=F iL;12 1 5 0 o=F i=F iL;"
    "13 1 15 1 oF o?+A o?+A uL iF iG i?A i1C i?A s?M;13 0 15 0 oB iF iG i?A i1C s?M;13 8 15 1 uL iF iG i?A i1C s?M;"
    "14 9 6 16 uB i*A s?M;14 10 7 1 uL iB;15 11 8 10 u*H u?*I i*A iL;16 11 8 10 u*H u*I u*J i*A iL;"
    "25 11 8 10 u*H u*I i*A iL;18 12 24 0 opN ipN;18 13 24 0 upN ipN;24 0 9 0 oF iF iF iF i?2C i?A;"
    "24 1 9 0 oF oF oF iF i?2C i?A;11 14 4 0 oF uF uF iF i2C;27 11 10 10 u*H uA u?A i*A iL s?M;"
    "28 11 11 10 u*H uA uA uA i*A iL s?M;29 11 8 10 u*H u*I i*A iL s?M;30 5 2 0 oA iG iG iG s?M;"
    "30 0 24 0 o=F i=F iA iA i?A;30 1 24 0 o=F o?+A iF iA iA i=F s?M;31 12 24 0 owN iwN;31 13 24 0 uwN iwN;"
    "32 12 24 0 owN owC iwN iwC;32 13 24 0 uwN uwC iwN iwC;33 1 12 1 oA uL iB i3B;33 8 12 1 oB uL iB i3B;"
    "34 0 24 0 o=F i=F iF;34 1 24 0 o=F oF i=F iF iF;35 0 14 0 o+F iF;35 1 14 0 o+F iF;36 0 15 0 o=F i=F;"
    "37 0 16 0 o=F i=F;37 1 16 0 o=F iF i=F;38 0 24 0 o=F i=F iF;38 2 24 0 o=F i=F iF;38 3 24 0 o+F iF iF s?M;"
    "39 0 24 0 o=F i=F iF;39 1 24 0 o+F iF s?M;40 0 14 0 oF iF;40 1 14 0 o+F iF;"
    "41 0 24 0 oF iF iF i?F i?F i?F i?F i?F i?F;42 0 24 0 o~F iF;43 0 17 0 oF iF;43 1 17 0 o+F iF;44 0 18 0 oF iF;"
    "44 1 18 0 o+F iF;45 0 0 0 oF iF;45 1 0 0 o+F iF;46 0 0 0 oF iF iG i?A s?M;47 0 24 0 oF iA;47 1 24 0 o+A iF;"
    "48 1 19 1 oF uL iF i1A i?A s?M;48 8 19 1 uL iF i1A i?A s?M;49 1 20 1 oF uL iF i1K i?A s?M;"
    "49 8 20 1 uL iF i1K i?A s?M;50 0 24 0 o=F i=F;50 1 24 0 o=F iF i=F;51 0 21 0 o+F iF iF s?M;52 0 24 0 oF iA iA;"
    "52 1 24 0 o+A iA iF;53 1 22 1 oF uL iF i1A s?M;53 8 22 1 uL iF i1A s?M;54 12 23 0 orN irN;54 13 23 0 urN irN;"
    "55 12 23 0 u=rN i=rN;55 13 23 0 u=rN i=rN;";
enum { kMaxKernels = 192, kMaxArguments = 16, kOps = 64, kPasses = 16, kReduce = 9, kFinish, kWait = 13, kSpread = 55 };

// Bits of the types that an argument of storage 'A' + i may have: f32, f64, i32, i64, u8,
// activation, weight, trained, moment, square moment, classes, scalars, scratch (only its bytes
// count), any.
static const uint32_t kStorage[] = {1,        32,       4,  8,  16,       3,       0xfffc3,
                                    3, 0x100003, 0x200003, 20, 16, 0x3fffff, 0x3fffff};
enum { kF32 = 0, kU8 = 4, kF64 = 5, kDynamic8 = 20, kTypeCount = 22, kActivation = 5, kScalarsStorage = 11 };
static const char *const kTypes[] = {"f32", "bf16", "i32", "i64", "u8", "f64", "f16", "q8_0", "q4_0", "q4_1", "q5_0",
    "q5_1", "iq4_nl", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "nf4", "nf4_double", "dynamic8", "dynamic8_square"};
static const uint32_t kBlockElements[] = {1, 1, 1, 1, 1, 1, 1, 32, 32, 32, 32, 32, 32, 256, 256, 256, 256, 256, 64, 512,
    256, 256}, kBlockBytes[] = {4, 2, 4, 8, 1, 8, 2, 34, 18, 20, 22, 24, 18, 84, 110, 144, 176, 210, 36, 272, 260, 260};

// The pools of attributes. A word is a field: its type (h u q: integers of 16, 32, 64 bits; f d:
// float and double) and the values that make sense (kRanges; *: all).
static const char *const kPools[] = {"ha ha ha hz fE ha hz hz hz ha ha un ub", "fe fi q* fb", "ub fF", "ub",
    "un un fp u* u* fG fG ub", "fp u* qn", "u* u* qg", "fc", "u* u* qg fm fm ub dp dp fe fF u*", "un un ur ub ft fF",
    "u* u* qg fm dF fe fi fF ub fF u*", "u* u* qg fm dp dp fe fF ub un fF u*", "u2 dF ds dm dm", "fF", "u* u* u*", "fG",
    "u7 fM", "ux ux ux", "u2", "u3 fG", "fp fi", "ub ub", "u2 fG ub fo", "u*"};
enum { kAttention = 4, kRope = 9, kUnary = 16, kTranspose, kTargetLoss = 19, kPairLoss = 22, kShare, kPoolCount };
// Minimum and maximum; `open`: 1 the minimum is excluded, 2 the maximum is, 4 the value 0 is
// allowed in addition.
static const struct { char code; double low, high; int open; } kRanges[] = {{'a', 1, 255, 0}, {'z', 0, 255, 0},
    {'b', 1, 1, 4}, {'e', 0, 1, 1}, {'E', 0, 1, 5}, {'i', 0, 1, 0}, {'p', 0, 1, 2}, {'F', 0, 1e6, 1}, {'G', 0, 1e6, 5},
    {'m', 0, 1e6, 0}, {'M', -1e6, 1e6, 0}, {'n', 1, 2e19, 0}, {'r', 0, 512, 0}, {'t', 1, 1e12, 0}, {'c', 0, 1e30, 0},
    {'s', 0, 0.5, 0}, {'x', 1, 3, 0}, {'g', 0, 9e15, 0}, {'2', 0, 2, 0}, {'3', 0, 3, 0}, {'7', 0, 16, 0},
    {'o', -1, 1, 2}};

static const char *const kPrograms[] = {"micro_first", "micro_add", "micro_last", "update", "evaluate", "generate"};
static const char *const kKinds[] = {"scalars", "parameter", "buffer", "optimizer", "norms", "table", "streamed",
                                     "offloaded"};
enum { kMicroFirst, kMicroAdd, kMicroLast, kUpdate, kEvaluate, kGenerate, kProgramCount };
enum { kScalars, kParameter, kBuffer, kOptimizer, kNorms, kTable, kStreamed, kOffloaded };
enum { kSlots, kCarried, kState, kBlocks };  // the regions of references
enum { kCache = 9, kFirstTrained = 2, kMaxRanks = 64, kMaxFields = 16 };
#define NONE 0xffffffffu
#define REF(region, index) ((uint32_t)(region) << 30 | (uint32_t)(index))
#define EACH(i, count) for (uint32_t i = 0; i < (count); ++i)

// A tensor of any region, and the effects of the rows so far on this tensor.
typedef struct Item {
  uint64_t offset, bytes, elements;
  uint32_t shape[4], type, rank, first, end, below, kind, owner, number;  // State: its kind, init (first)
  uint32_t lower, upper, next_death;  // live neighbours by address; the next slot that ends in the same row; NONE: none
  uint32_t flight, readers;           // 1 + the row that started a transfer to this item; transfers that read it
  uint32_t normed, pending;           // parameter: 1 + the gradient's reference; 1 + the rank that must send it
  const unsigned char *name;
  uint32_t name_size;
  char host;  // '1' labels, '2' document starts, '3' pairs, '-': another slot that the host fills
  char live, written, touched, used, sealed, updated;
} Item;
typedef struct Row { uint32_t op, pass, queue, accumulate, attribute, first; } Row;
typedef struct Program {
  Row *rows;
  uint32_t *arguments, row_count, argument_count, counts[2], hosts[6];  // input, labels, starts, output, pairs, types
  Item *items[2];                                                       // slots, blocks
  uint64_t bytes;
} Program;
typedef struct Kernel { uint32_t op, pass, pool, updates, arity; const char *words[kMaxArguments]; } Kernel;
typedef struct Audit {
  const unsigned char *file, *name, *hash;
  size_t size, at;
  jmp_buf fail;
  const char *why, *json, *json_end;  // json: where the comparison with the manifest is
  void *owned[256];
  uint32_t owned_count, program, row, slot;  // program, row, slot: where the proof is; NONE: nowhere
  uint32_t name_size, hash_size, numbers, accumulate, ranks, level, trained, finished, released;
  uint64_t state_bytes, carried_bytes, arena_bytes, spill_bytes, streamed_bytes, shard_bytes, offloaded_end;
  double *pools[kPoolCount];
  uint32_t pool_counts[kPoolCount], counts[4], refs[kMaxArguments];  // counts, items: regions; refs: of the row
  Item *items[4];
  Program programs[kProgramCount];
  Kernel kernels[kMaxKernels];
  unsigned char kernel_of[kOps][kPasses];
} Audit;

// Ends the check with the rule's name, unless `holds`.
#define RULE(name, holds) require(a, (holds), #name)
static void require(Audit *a, int holds, const char *rule) {
  if (!holds) a->why = rule, longjmp(a->fail, 1);
}

// ---- reading ----
static uint64_t take(Audit *a, unsigned width) {
  uint64_t value = 0;
  RULE(ends in the middle, a->size - a->at >= width);
  EACH(i, width) value |= (uint64_t)a->file[a->at++] << 8 * i;
  return value;
}
static uint32_t u8(Audit *a) { return (uint32_t)take(a, 1); }
static uint32_t u32(Audit *a) { return (uint32_t)take(a, 4); }
static uint64_t u64(Audit *a) { return take(a, 8); }
static uint32_t count_of(Audit *a, unsigned entry_bytes) {
  const uint32_t count = u32(a);
  RULE(has a list that is longer than the file, count <= (a->size - a->at) / entry_bytes);
  return count;
}
// Returns zeros for `count` entries and one more, which the audit frees.
static void *table(Audit *a, uint64_t count, size_t entry_bytes) {
  RULE(needs more memory, (a->owned[a->owned_count] = calloc((size_t)count + 1, entry_bytes)) != NULL);
  return a->owned[a->owned_count++];
}
static const unsigned char *text(Audit *a, uint32_t *size) {
  a->at += *size = count_of(a, 1);
  return a->file + a->at - *size;
}
static Item *read_tensors(Audit *a, uint32_t *count, unsigned entry_bytes, int region) {
  Item *const items = table(a, *count = count_of(a, entry_bytes), sizeof(Item));
  for (Item *t = items; t < items + *count; ++t) {
    t->offset = u64(a), t->bytes = u64(a), t->type = u8(a), t->rank = u8(a), t->owner = NONE;
    EACH(d, 4) t->shape[d] = u32(a);
    if (region == kSlots) t->first = u32(a), t->end = u32(a), t->below = u32(a), t->kind = u8(a);
    if (region != kState) continue;
    RULE(kFormat, (t->kind = u8(a)) <= kOffloaded && (t->first = u8(a)) < 4);
    u32(a), t->number = u32(a), t->owner = u32(a), t->name = text(a, &t->name_size);
  }
  return items;
}
static void read_program(Audit *a, Program *p) {
  p->rows = table(a, p->row_count = count_of(a, 17), sizeof(Row));
  for (Row *r = p->rows; r < p->rows + p->row_count; ++r) {
    r->op = u8(a), r->pass = u8(a), r->queue = u8(a), r->accumulate = (uint32_t)take(a, 2), r->attribute = u32(a);
    u32(a), r->first = u32(a);
  }
  p->arguments = table(a, p->argument_count = count_of(a, 4), 4);
  EACH(i, p->argument_count) p->arguments[i] = u32(a);
  EACH(list, 2) p->items[list] = read_tensors(a, &p->counts[list], 47, kSlots);
  p->bytes = u64(a);
  EACH(i, 6) p->hosts[i] = u32(a);
}
static unsigned width_of(char type) { return type == 'h' ? 2 : type == 'u' || type == 'f' ? 4 : 8; }
static double number(Audit *a, char type) {
  const uint64_t bits = take(a, width_of(type));
  const uint32_t low = (uint32_t)bits;
  float single;
  double twice;
  memcpy(&single, &low, 4), memcpy(&twice, &bits, 8);
  return type == 'f' ? (double)single : type == 'd' ? twice : (double)bits;
}
// Reads a pool and requires that its values make sense.
static void read_pool(Audit *a, uint32_t pool) {
  const char *const words = kPools[pool];
  const uint32_t fields = (uint32_t)(strlen(words) + 1) / 3;
  unsigned bytes = 0;
  EACH(k, fields) bytes += width_of(words[3 * k]);
  double *v = a->pools[pool] = table(a, (uint64_t)(a->pool_counts[pool] = count_of(a, bytes)) * kMaxFields, sizeof *v);
  for (uint32_t i = 0; i < a->pool_counts[pool]; ++i, v += kMaxFields) {
    int sense = 1;
    EACH(k, fields) {
      v[k] = number(a, words[3 * k]);
      EACH(r, sizeof kRanges / sizeof kRanges[0]) {
        const double low = kRanges[r].low, high = kRanges[r].high;
        if (kRanges[r].code != words[3 * k + 1] || (kRanges[r].open & 4 && v[k] == 0)) continue;
        sense &= v[k] >= low && v[k] <= high && (!(kRanges[r].open & 1) || v[k] > low);
        sense &= !(kRanges[r].open & 2) || v[k] < high;
      }
    }
    if (pool == kAttention || pool == kRope) sense = sense && (uint32_t)v[0] % (uint32_t)v[1] == 0;
    if (pool == kAttention) sense &= v[7] == 1 || v[4] == 0;
    if (pool == kRope) sense &= (uint32_t)v[2] % 2 == 0;
    if (pool == kUnary) sense &= v[1] == 0 || v[0] == 5 || v[0] == 6 || (v[0] >= 12 && v[0] <= 14);
    if (pool == kTranspose) sense &= v[0] != v[1] && v[1] != v[2] && v[2] != v[0];
    if (pool == kTargetLoss) sense &= (v[0] == 2) == (v[1] > 0);
    if (pool == kPairLoss)
      sense &= v[0] == 0 ? v[1] >= 1e-4 && v[3] == 0 : v[1] == 0 && v[2] == 0 && (v[0] == 1 || v[3] == 0);
    RULE(kAttribute, sense);
  }
}
static void read_kernels(Audit *a) {
  const char *c = kKernels;
  for (Kernel *k = a->kernels; *c && k < a->kernels + kMaxKernels; ++k) {
    uint32_t *const fields[] = {&k->op, &k->pass, &k->pool, &k->updates};
    char *next;
    EACH(f, 4) *fields[f] = (uint32_t)strtoul(c, &next, 10), c = next + 1;
    do k->words[k->arity++] = c, c += strcspn(c, " ;") + 1;
    while (c[-1] != ';' && k->arity < kMaxArguments);
    a->kernel_of[k->op % kOps][k->pass % kPasses] = (unsigned char)(k - a->kernels + 1);
  }
}

// ---- tensors and regions ----
static uint64_t end_of(const Item *t) { return t->offset + t->bytes; }
static uint64_t maximum(uint64_t x, uint64_t y) { return x > y ? x : y; }
static int same_shape(const Item *t, const Item *other) { return !memcmp(t->shape, other->shape, sizeof t->shape); }
static void check_tensor(Audit *a, uint32_t ref, Item *t, uint64_t region_bytes) {
  a->slot = ref, t->elements = 1;
  RULE(kDType, t->type < kTypeCount), RULE(kShape, t->rank <= 4);
  EACH(d, 4) {
    RULE(kShape, t->shape[d] != 0 && (d < t->rank || t->shape[d] == 1));
    RULE(kShape, t->elements <= (UINT64_C(1) << 56) / t->shape[d]);
    t->elements *= t->shape[d];
  }
  const uint32_t block = kBlockElements[t->type];
  RULE(kBlocks, t->type >= kDynamic8 || (t->rank == 0 ? 1 : t->shape[t->rank - 1]) % block == 0);
  RULE(kMisaligned, (t->offset | t->bytes) % 256 == 0);
  RULE(kOutOfRegion, t->offset <= region_bytes && t->bytes <= region_bytes - t->offset);
  RULE(kTooFewBytes, t->bytes >= (t->elements + block - 1) / block * kBlockBytes[t->type]);
}
static void check_state(Audit *a) {
  const uint64_t slice = a->shard_bytes == 0 ? 1 : UINT64_C(256) * a->ranks;
  const uint64_t sizes[] = {a->state_bytes - a->shard_bytes, a->streamed_bytes, a->spill_bytes};
  uint64_t ends[3] = {0, 0, 0}, highest = 0, owned[kMaxRanks] = {0};  // ends: arena, file of weights, host
  const Item *first_owned = NULL, *norms = a->items[kState] + 1;
  RULE(kScalars, a->counts[kState] > 0);
  EACH(i, a->counts[kState]) {
    Item *t = a->items[kState] + i;
    const int place = t->kind == kStreamed ? 1 : t->kind == kOffloaded ? 2 : 0;
    uint64_t *end = t->owner == NONE ? ends + place : owned + t->owner % kMaxRanks;
    check_tensor(a, REF(kState, i), t, sizes[place]);
    RULE(kSpill, place != 2 || a->level == 1), RULE(kUpdate, t->kind != kNorms || i == 1);
    RULE(kScalars, (t->kind == kScalars) == (i == 0) && (i > 0 || (t->type == kU8 && t->elements >= 128)));
    if (t->owner != NONE) {  // the tensors of each owner begin at one address, after those of all ranks
      if (first_owned == NULL) first_owned = t;
      RULE(kRanks, t->kind == kOptimizer && t->owner < a->ranks);
      RULE(kRanks, *end != 0 || (t->offset == first_owned->offset && t->offset >= ends[0]));
    }
    RULE(kRanks, t->owner != NONE || first_owned == NULL || place != 0);
    RULE(kOverlap, t->offset >= *end);
    RULE(kShape, (t->kind != kTable && t->first != 3) || t->number + t->elements <= a->numbers);
    RULE(kMisaligned, place != 1 || (t->offset % slice == 0 && t->bytes % slice == 0));
    *end = end_of(t), highest = place == 0 ? maximum(highest, *end) : highest;
  }
  a->slot = NONE, a->offloaded_end = ends[2];
  RULE(kArenaBytes, a->state_bytes == highest + a->shard_bytes && a->streamed_bytes == ends[1]);
  RULE(kRanks, a->shard_bytes == 0 || (a->ranks > 1 && a->shard_bytes == a->streamed_bytes / a->ranks));
  if (a->counts[kState] < 2 || norms->kind != kNorms) return;
  RULE(kUpdate, norms->type == kF64 && norms->elements <= a->counts[kState] - kFirstTrained);
  for (; a->trained < norms->elements; ++a->trained) RULE(kUpdate, norms[1 + a->trained].kind == kParameter);
}
static void check_sizes(Audit *a) {
  const uint64_t all = a->state_bytes | a->carried_bytes | a->spill_bytes | a->streamed_bytes | a->shard_bytes;
  const uint32_t last = a->programs[kMicroLast].row_count != 0, trains = a->programs[kMicroFirst].row_count != 0;
  uint64_t largest = 0, end = 0, spill_end;
  RULE(kFormat, a->accumulate > 0 && a->level < 2), RULE(kRanks, a->ranks >= 1 && a->ranks <= kMaxRanks);
  RULE(kMisaligned, all % 256 == 0), RULE(kRanks, a->shard_bytes <= a->state_bytes);
  check_state(a), spill_end = a->offloaded_end;
  EACH(i, a->counts[kCarried]) {
    Item *t = a->items[kCarried] + i;
    check_tensor(a, REF(kCarried, i), t, a->carried_bytes), RULE(kOverlap, t->offset >= end);
    end = end_of(t);
  }
  a->slot = NONE;
  EACH(i, kProgramCount) {
    const Program *p = a->programs + i;
    EACH(b, p->counts[1]) spill_end = maximum(spill_end, end_of(p->items[1] + b));
    largest = maximum(largest, p->bytes), RULE(kFormat, p->row_count == 0 || i >= kEvaluate || trains);
  }
  RULE(kArenaBytes, end == a->carried_bytes && spill_end == a->spill_bytes);
  RULE(kFormat, !last || (a->ranks > 1 && a->accumulate > 1));
  RULE(kFormat, !trains || a->accumulate <= 1 + last || a->programs[kMicroAdd].row_count > 0);
  RULE(kArenaBytes, a->state_bytes <= a->arena_bytes && a->carried_bytes <= a->arena_bytes - a->state_bytes &&
                        largest == a->arena_bytes - a->state_bytes - a->carried_bytes);
}

// ---- one row ----
static Item *item_of(Audit *a, uint32_t ref) {
  a->slot = ref;
  RULE(kBadReference, (ref & 0x3fffffff) < a->counts[ref >> 30]);
  return a->items[ref >> 30] + (ref & 0x3fffffff);
}
static int has(const char *word, char flag) {
  for (++word; *word != ' ' && *word != ';' && *word != flag; ++word) continue;
  return *word == flag;
}
static int is_carried(const Kernel *k) {
  return has(k->words[0], 'p') || has(k->words[0], 'w') || has(k->words[0], 'r');
}
static void check_read(Audit *a, Item *t) {
  const uint32_t region = a->slot >> 30;
  RULE(kReadBeforeWrite, t->written || region == kState);
  RULE(kReadOnly, region != kCarried || (a->program < kEvaluate && a->program != kMicroAdd));
  if (region == kCarried) t->touched = 0;  // micro_last may overwrite a sum that was read
}
static void check_write(Audit *a, Item *t, uint32_t adds) {
  RULE(kInFlight, t->readers == 0), RULE(kUpdate, !t->sealed), RULE(kReadBeforeWrite, !adds || t->written);
  if (a->slot >> 30 == kCarried) {
    RULE(kReadOnly, a->program <= kMicroLast), RULE(kReadBeforeWrite, a->program == kMicroFirst || t->written);
    RULE(kAccumulate, adds || !t->written || (a->program == kMicroLast && !t->touched));
  }
  t->written = t->touched = 1;
}
// Starts or ends a transfer, load, gather or share. The arguments before the first input are
// destinations.
static void check_carried(Audit *a, const Kernel *k, const Row *rows, const uint32_t *arguments) {
  const uint32_t sources = k->words[1][0] == 'i' ? 1 : 2, waits = k->pass == kWait;
  const int loads = has(k->words[0], 'w'), shares = has(k->words[0], 'r'), spreads = k->op == kSpread;
  Item *t[4] = {NULL, NULL, NULL, NULL};
  uint32_t outside = 0;
  EACH(i, k->arity) {
    const uint32_t region = a->refs[i] >> 30, is_source = i >= sources;
    t[i] = item_of(a, a->refs[i]);
    const int level = region == kBlocks || (region == kState && t[i]->kind == kOffloaded);
    RULE(kSpill, (region == kState && t[i]->kind == kStreamed) == (loads && i == sources));
    RULE(kSpill, (outside += (uint32_t)level) < 2 && !(level && (loads || shares)));
    RULE(kSpill, !loads || is_source || region == kSlots);
    RULE(kInFlight, !waits || !is_source || spreads || t[i]->readers > 0);
    if (is_source && !spreads) t[i]->readers += waits ? NONE : 1;
    if (waits || (is_source && spreads)) continue;
    if (is_source) {
      check_read(a, t[i]);
      continue;
    }
    RULE(kReadOnly, region != kState || spreads || (level && a->program < kEvaluate));
    RULE(kRefilled, !loads || !t[i]->touched), check_write(a, t[i], 0), t[i]->flight = a->row + 1;
  }
  RULE(kShape, t[0]->type == t[sources]->type && (sources == 2 || t[0]->elements == t[1]->elements));
  RULE(kShape, sources == 1 || (same_shape(t[1], t[3]) && t[0]->rank == 2 && t[2]->rank == 2 &&
                                t[0]->shape[1] == t[2]->shape[1] && t[0]->shape[0] == t[3]->elements));  // a gather
  if (shares) {
    const double root = a->pools[kShare][(size_t)rows[a->row].attribute * kMaxFields];
    RULE(kRanks, root < a->ranks && (spreads ? a->program == kUpdate : a->program <= kMicroLast));
    RULE(kUpdate, !spreads || (t[0] == t[1] && t[0]->pending > 0 && (waits || t[0]->pending == root + 1)));
    if (waits) t[0]->pending = 0;
  }
  EACH(i, waits ? sources : 0) {
    RULE(kInFlight, t[i]->flight != 0 && rows[t[i]->flight - 1].op == k->op &&
                        !memcmp(arguments + rows[t[i]->flight - 1].first, a->refs, k->arity * 4));
    t[i]->flight = 0;
  }
}
// Requires what PLAN.md states of groups, norms, updates and owners for a row that reduces,
// finishes or updates.
static void check_update(Audit *a, const Kernel *k, const double *v, const uint32_t *members) {
  const uint32_t reduces = k->pass == kReduce, count = members[k->pass == kReduce];
  const uint32_t first = reduces ? kFirstTrained + (uint32_t)(v[1] < 1e9 ? v[1] : 1e9) : a->refs[0] & 0x3fffffff;
  uint32_t owner = NONE, moments = 0, gradient = NONE;
  if (k->pass == kFinish) {
    RULE(kUpdate, a->program == kUpdate && a->refs[1] == REF(kState, 1) && !a->finished && (!a->released || v[0] == 0));
    EACH(i, a->trained) RULE(kUpdate, a->items[kState][kFirstTrained + i].normed);
    a->finished = 1;
    return;
  }
  RULE(kUpdate, v[0] >= 1 && first >= kFirstTrained && first - kFirstTrained + count <= a->trained);
  RULE(kUpdate, a->refs[0] == (reduces ? REF(kState, 1) : REF(kState, first)));
  EACH(i, k->arity) {
    const char role = k->words[i][0], grouped = (char)has(k->words[i], '*');
    if (a->refs[i] == NONE || role == 's') continue;
    const Item *group = item_of(a, a->refs[i]), *t = group, *parameter = a->items[kState] + first;
    for (; grouped && t < group + count; ++t, ++parameter) {
      RULE(kGroup, same_shape(t, parameter) && (t->type != parameter->type || t->bytes == parameter->bytes));
      RULE(kGroup, count == 1 || (t->type == kF32 && a->refs[i] >> 30 != kSlots));
      RULE(kGroup, t == group || (t->kind == group->kind && t->owner == group->owner && t->offset == end_of(t - 1)));
    }
    RULE(kGroup, !grouped || (v[2] >= (double)((t[-1].offset - group->offset) / 4 + t[-1].elements) &&
                              (group->type != kF32 || v[2] <= (double)((end_of(t - 1) - group->offset) / 4))));
    if (grouped && role == 'i') gradient = a->refs[i];
    if (role != 'u' || i == 0 || a->refs[i] >> 30 != kState) continue;
    RULE(kGroup, !grouped || group->kind == kOptimizer);
    RULE(kRanks, moments++ == 0 || group->owner == owner), owner = group->owner;
  }
  RULE(kUpdate, a->program == kUpdate ? gradient == REF(kCarried, first - kFirstTrained)
                                      : a->program == kMicroFirst && a->accumulate == 1 && owner == NONE);
  EACH(i, count) {
    Item *t = a->items[kState] + first + i;
    RULE(kUpdate, reduces ? !t->normed && !a->finished : !t->updated && t->normed == gradient + i + 1);
    RULE(kUpdate, reduces || a->finished || a->program == kMicroFirst), item_of(a, gradient + i)->sealed = 1;
    if (reduces) t->normed = gradient + i + 1;
    else t->updated = 1, t->pending = owner == NONE ? 0 : owner + 1;
  }
  a->released |= !reduces && a->program == kMicroFirst;
}
static void check_arguments(Audit *a, const Kernel *k, const Row *r, const Program *p) {
  const double *v = k->pool < kPoolCount ? a->pools[k->pool] + (size_t)r->attribute * kMaxFields : NULL;
  uint32_t members[kMaxArguments], outputs = 0, present = 0, activation = NONE;
  EACH(i, k->arity) {
    const char *word = k->words[i];
    const int asked = has(word, '1') ? '1' : has(word, '2') ? '2' : has(word, '3') ? '3' : 0;
    const uint32_t ref = a->refs[i], region = ref >> 30, storage = (uint32_t)(word[strcspn(word, " ;") - 1] - 'A');
    members[i] = ref == NONE ? 0 : has(word, '*') && v[0] >= 1 ? (uint32_t)(v[0] < 1e9 ? v[0] : 1e9) : 1;
    outputs += word[0] == 'o', present += word[0] == 'o' && ref != NONE, a->slot = NONE;
    RULE(kMissingArgument, ref != NONE || has(word, '?'));
    RULE(kAccumulate, !(r->accumulate >> i & 1) || (ref != NONE && has(word, '+')));
    EACH(n, members[i]) {
      Item *t = item_of(a, ref + n);
      RULE(kBadReference, (ref + n) >> 30 == region);
      RULE(kNotLive, region == kState || region == kCarried || (t->first <= a->row && a->row < t->end));
      RULE(kDType, kStorage[storage] >> t->type & 1);
      RULE(kDType, storage != kActivation || activation == NONE || activation == t->type);
      RULE(kHostSlot, asked ? t->host == asked : t->host == 0 || t->host == '-');
      RULE(kScalars, storage != kScalarsStorage || ref == REF(kState, 0));
      RULE(kSpill, is_carried(k) || (region != kBlocks && (region != kState || t->kind < kStreamed)));
      RULE(kInFlight, t->flight == 0 || (is_carried(k) && k->pass == kWait));
      RULE(kUpdate, t->pending == 0 || k->op == kSpread);
      RULE(kRanks, t->owner == NONE || (word[0] == 'u' && k->updates >> kOptimizer & 1));
      t->used = 1, activation = storage == kActivation ? t->type : activation;
    }
    EACH(j, ref == NONE ? 0 : i) RULE(kAliasing, a->refs[j] == NONE || a->refs[j] >= ref + members[i] ||
                                      ref >= a->refs[j] + members[j] || (has(word, '=') && has(k->words[j], '=')));
  }
  RULE(kAccumulate, r->accumulate >> k->arity == 0), RULE(kMissingArgument, outputs == 0 || present > 0);
  if (is_carried(k)) check_carried(a, k, p->rows, p->arguments);
  else if (k->pass == kReduce || k->pass == kFinish || k->updates >> kParameter & 1) check_update(a, k, v, members);
  for (uint32_t i = is_carried(k) ? 0 : k->arity; i-- > 0;) {  // inputs before outputs
    EACH(n, members[i]) {
      const char role = k->words[i][0];
      const uint32_t region = a->refs[i] >> 30;
      Item *t = item_of(a, a->refs[i] + n);
      if (role == 'i' || role == 'u') check_read(a, t);
      if (role == 'i') continue;
      RULE(kReadOnly, region != kState || (role == 'u' && k->updates >> t->kind & 1));
      RULE(kReadOnly, region != kState || a->program < kEvaluate || t->kind == kScalars);
      RULE(kReadOnly, region != kCarried || role == 'o'), check_write(a, t, r->accumulate >> i & 1);
      t->written = role != 's';
    }
  }
}

// ---- one program ---- Adds a slot to the live slots, sorted by address, and proves with its hint
// that it shares no byte with one of them.
static void check_birth(Audit *a, uint32_t index, uint32_t *lowest, const Item *moved) {
  Item *slots = a->items[kSlots], *s = slots + index, *below = s->below == NONE ? NULL : slots + s->below;
  RULE(kHint, below == NULL || (s->below < a->counts[kSlots] && below->live));
  uint32_t *place = below == NULL ? lowest : &below->upper;
  RULE(kOverlap, below == NULL || end_of(below) <= s->offset);
  RULE(kOverlap, *place == NONE || slots[*place].offset >= end_of(s));
  RULE(kOverlap, moved == NULL || end_of(moved) <= s->offset || end_of(s) <= moved->offset);
  if (*place != NONE) slots[*place].lower = index;
  s->lower = s->below, s->upper = *place, *place = index, s->live = 1;
}
static void remove_slot(Item *slots, Item *s, uint32_t *lowest) {
  if (s->live) *(s->lower == NONE ? lowest : &slots[s->lower].upper) = s->upper;
  if (s->live && s->upper != NONE) slots[s->upper].lower = s->lower;
  s->live = 0;
}
// Proves lifetimes and sizes of slots and blocks, and fills `deaths`: the first slot that ends in
// each row.
static void check_items(Audit *a, Program *p, uint32_t *deaths) {
  uint64_t highest = 0;
  EACH(i, p->row_count + 1) deaths[i] = NONE;
  EACH(list, 2) EACH(i, p->counts[list]) {
    Item *s = p->items[list] + i;
    check_tensor(a, REF(list == 0 ? kSlots : kBlocks, i), s, list == 0 ? p->bytes : a->spill_bytes);
    RULE(kSlotOrder, s->first < s->end && s->end <= p->row_count && (i == 0 || s[-1].first <= s->first));
    RULE(kOverlap, list == 0 || s->offset >= a->offloaded_end);
    if (list == 0) highest = maximum(highest, end_of(s)), s->next_death = deaths[s->end], deaths[s->end] = i;
    if (list == 1 || s->kind != kCache) continue;
    RULE(kDiesEarly, a->program == kGenerate && s->first == 0 && s->end == p->row_count);
    s->written = s->touched = 1;
  }
  RULE(kArenaBytes, highest == p->bytes);
  EACH(i, 6) {
    Item *s = p->items[0] + p->hosts[i];
    if (p->hosts[i] == NONE || i == 3) continue;
    RULE(kBadReference, p->hosts[i] < p->counts[0]), RULE(kSlotOrder, s->first == 0), RULE(kAliasing, s->host == 0);
    s->host = "-12.3-"[i], s->written = s->touched = 1;
  }
}
static void check_program(Audit *a, Program *p) {
  uint32_t *deaths = table(a, (uint64_t)p->row_count + 1, 4), *stack = table(a, p->counts[1], 4);
  uint32_t born = 0, block = 0, top = 0, lowest = NONE;
  Item *slots = a->items[kSlots] = p->items[0], *blocks = a->items[kBlocks] = p->items[1];
  a->counts[kSlots] = p->counts[0], a->counts[kBlocks] = p->counts[1];
  check_items(a, p, deaths);
  EACH(i, a->counts[kCarried]) a->items[kCarried][i].touched = 1;
  EACH(r, p->row_count) {
    const Row *row = p->rows + r;
    const uint32_t index = row->op < kOps && row->pass < kPasses ? a->kernel_of[row->op][row->pass] : 0;
    const Kernel *k = a->kernels + (index == 0 ? 0 : index - 1);
    Item *moved = NULL;
    a->row = r, a->slot = NONE;
    RULE(kUnknownKernel, index != 0);
    RULE(kAttribute, k->pool >= kPoolCount || row->attribute < a->pool_counts[k->pool]);
    RULE(kArgumentPool, row->first <= p->argument_count && k->arity <= p->argument_count - row->first);
    RULE(kInFlight, row->queue == 0 || is_carried(k)), memcpy(a->refs, p->arguments + row->first, k->arity * 4);
    for (uint32_t i = deaths[r]; i != NONE; i = slots[i].next_death) remove_slot(slots, slots + i, &lowest);
    for (; born < p->counts[0] && slots[born].first == r; ++born) {
      const int is_result = has(k->words[0], '~') && a->refs[0] == born && a->refs[1] < p->counts[0];
      Item *source = slots + (is_result ? a->refs[1] : 0);
      if (is_result && source->live && source->end == r + 1 && source->first < r)
        remove_slot(slots, moved = source, &lowest);  // the result may overlap the source
      a->slot = born, check_birth(a, born, &lowest, is_result ? NULL : moved);
    }
    for (; block < p->counts[1] && blocks[block].first == r; stack[top++] = block++) {
      while (top > 0 && blocks[stack[top - 1]].end <= r) --top;
      a->slot = REF(kBlocks, block);
      RULE(kOverlap, top == 0 || end_of(blocks + stack[top - 1]) <= blocks[block].offset);
    }
    check_arguments(a, k, row, p);
    for (uint32_t i = deaths[r + 1]; i != NONE; i = slots[i].next_death)
      a->slot = i, RULE(kInFlight, slots[i].flight == 0 && slots[i].readers == 0);
  }
  a->row = NONE;
  EACH(region, 4) EACH(i, a->counts[region]) {
    const Item *s = a->items[region] + i;
    a->slot = REF(region, i), RULE(kUnused, s->used || region == kCarried || region == kState);
    RULE(kInFlight, s->flight == 0 && s->readers == 0), RULE(kUpdate, s->pending == 0);
  }
  if ((a->slot = p->hosts[3]) != NONE) {
    const Item *s = slots + a->slot, *pairs = slots + (p->hosts[4] == NONE ? 0 : p->hosts[4]);
    RULE(kDiesEarly, a->program >= kEvaluate && a->slot < p->counts[0] && s->written && s->end == p->row_count);
    RULE(kDiesEarly, a->program == kGenerate || (p->hosts[4] != NONE && s->type == kF64 && s->rank == 2 &&
                                                 s->shape[1] == 2 && s->shape[0] == pairs->shape[0]));
  }
  a->slot = NONE;
}
static void check_plan(Audit *a) {
  uint32_t size, count, last = 0;
  uint64_t hash, sum = UINT64_C(0xcbf29ce484222325);
  RULE(kFormat, u32(a) == 2), a->name = text(a, &a->name_size), text(a, &size);
  a->items[kState] = read_tensors(a, &a->counts[kState], 52, kState);
  a->numbers = count_of(a, 4), a->at += (size_t)a->numbers * 4;
  a->items[kCarried] = read_tensors(a, &a->counts[kCarried], 34, kCarried);
  EACH(i, kProgramCount) read_program(a, a->programs + i);
  EACH(i, kPoolCount) read_pool(a, i);
  RULE(kLearningRate, u8(a) < 3);
  EACH(i, 2) {
    const double rate = number(a, 'd');
    RULE(kLearningRate, rate >= 0 && rate <= 1.7e308);
  }
  u64(a), count = count_of(a, 4);
  EACH(i, count) {
    const uint32_t step = u32(a);
    RULE(kLearningRate, i == 0 || step > last), last = step;
  }
  a->state_bytes = u64(a), a->carried_bytes = u64(a), a->arena_bytes = u64(a), u64(a), a->accumulate = u32(a);
  a->ranks = u32(a), a->level = u8(a), a->spill_bytes = u64(a), a->streamed_bytes = u64(a), a->shard_bytes = u64(a);
  u64(a), hash = u64(a);
  const unsigned char *recipe = text(a, &size);
  for (const unsigned char *c = recipe; c < recipe + size && *c != 0; ++c) sum = (sum ^ *c) * UINT64_C(0x100000001b3);
  RULE(was made from another recipe, sum == hash), text(a, &size), a->hash = text(a, &a->hash_size);
  count = count_of(a, 8), a->at += (size_t)count * 8;
  check_sizes(a);
  for (a->program = 0; a->program < kProgramCount; ++a->program) check_program(a, a->programs + a->program);
  a->program = NONE;
  EACH(i, a->programs[kMicroFirst].row_count == 0 ? 0 : a->trained)
    a->slot = REF(kState, kFirstTrained + i), RULE(kUpdate, a->finished && a->items[kState][kFirstTrained + i].updated);
  a->slot = NONE;
}

// ---- the manifest: canonical JSON, in which keys are sorted and each begins a line ---- Moves
// behind the next `key` that has `indent` blanks before it (-1: any number), and behind the value
// `format`.
static void same(Audit *a, int indent, const char *key, const char *format, ...) {
  const size_t size = strlen(key);
  char wanted[400];
  int blanks;
  va_list values;
  va_start(values, format), vsnprintf(wanted, sizeof wanted, format, values), va_end(values);
  do {
    while (a->json < a->json_end && *a->json != '\n') ++a->json;
    for (blanks = 0; a->json + 1 < a->json_end && *++a->json == ' ';) ++blanks;
    RULE(differs from the manifest, (size_t)(a->json_end - a->json) > size + strlen(wanted) + 4);
  } while ((indent >= 0 && blanks != indent) || memcmp(a->json + 1, key, size) || a->json[size + 1] != '"');
  a->json += size + 4;
  RULE(differs from the manifest, !memcmp(a->json, wanted, strlen(wanted)));
  a->json += strlen(wanted);
  RULE(differs from the manifest, *wanted == 0 || *a->json == ',' || *a->json == '\n');
}
static void close_list(Audit *a) {
  while (a->json < a->json_end && memchr("[} \n", *a->json, 4)) ++a->json;
  RULE(differs from the manifest, a->json < a->json_end && *a->json++ == ']');
}
// Compares a list of tensors, whose keys have `indent` blanks. Slots have a program; State has
// kinds and names.
static void same_list(Audit *a, int indent, const Item *s, uint32_t count, const char *program, int is_state) {
  for (uint32_t i = 0; i < count; ++i, ++s) {
    char shape[160] = "[";
    EACH(d, s->rank)
      sprintf(shape + strlen(shape), "%s\n%*s%u", d > 0 ? "," : "", indent + 1, "", (unsigned)s->shape[d]);
    if (s->rank > 0) sprintf(shape + strlen(shape), "\n%*s", indent, "");
    a->slot = i, same(a, indent, "bytes", "%llu", (unsigned long long)s->bytes);
    same(a, indent, "dtype", "\"%s\"", kTypes[s->type]);
    if (program) same(a, indent, "first_row", "%u", (unsigned)s->first), same(a, indent, "id", "%u", (unsigned)i);
    if (is_state) same(a, indent, "kind", "\"%s\"", kKinds[s->kind]);
    if (program) same(a, indent, "last_row", "%u", (unsigned)s->end - 1);
    if (is_state && s->name_size < 300) same(a, indent, "name", "\"%.*s\"", (int)s->name_size, (const char *)s->name);
    same(a, indent, "offset", "%llu", (unsigned long long)s->offset);
    if (program) same(a, indent, "program", "\"%s\"", program);
    same(a, indent, "shape", "%s]", shape);
  }
}
static void same_manifest(Audit *a, int indent) {
  same(a, indent, "carried", ""), same_list(a, indent + 2, a->items[kCarried], a->counts[kCarried], NULL, 0);
  close_list(a);
  same(a, indent, "plan_hash", "\"%.*s\"", (int)(a->hash_size % 64), (const char *)a->hash);
  same(a, indent, "planned_bytes", "%llu", (unsigned long long)a->arena_bytes), same(a, indent, "slots", "");
  for (a->program = 0; a->program < kProgramCount; ++a->program) {
    const Program *p = a->programs + a->program;
    same_list(a, indent + 2, p->items[0], p->counts[0], kPrograms[a->program], 0);
  }
  close_list(a), a->program = NONE;
  if (indent != 1) return;  // another budget, whose State is the first plan's
  same(a, 1, "state", ""), same_list(a, 3, a->items[kState], a->counts[kState], NULL, 1), close_list(a);
}

// ---- the file ---- Calls say(context, line) for each plan, the last time for the first that is
// not safe or differs from the manifest, which may be NULL. Returns 0 if there is none such, else
// 1.
int check_plan_bytes(const unsigned char *bytes, size_t size, const char *manifest, size_t manifest_size,
                     void (*say)(void *, const char *), void *context) {
  static const char *const kRegions[] = {"slot", "carried", "state", "spilled"};
  Audit *a = (Audit *)calloc(1, sizeof *a);
  volatile uint32_t plan = 0, is_safe = 0;
  char line[400], head[64];
  if (a == NULL) return 1;
  a->file = bytes, a->size = size, a->program = a->row = a->slot = NONE;
  if (setjmp(a->fail) == 0) {
    const size_t length = (size_t)sprintf(head, "reprise plan 3\n%s\n", kContract);
    RULE(is no plan file of version 3, size > 100 && !memcmp(bytes, head, 15));
    RULE(has other kernels than this program, !memcmp(bytes, head, length));
    a->at = length;
    for (int lines = 0; lines < 2; lines += bytes[a->at++] == '\n') RULE(ends in the middle, a->at < size);
    const uint32_t count = count_of(a, 4);
    RULE(has no plan, count > 0), read_kernels(a);
    for (; plan < count; ++plan) {
      uint32_t used = 0, rows = 0;
      while (a->owned_count > 0) free(a->owned[--a->owned_count]);
      memset(a->programs, 0, sizeof a->programs), a->trained = a->finished = a->released = 0, a->slot = NONE;
      check_plan(a);
      RULE(has more bytes than its plans, plan + 1 < count || a->at == size);
      if (manifest != NULL && plan < 2) a->json = manifest, a->json_end = manifest + manifest_size;
      if (manifest != NULL && plan == 1) same(a, 1, "other_budgets", "");
      if (manifest != NULL) same_manifest(a, plan == 0 ? 1 : 3);
      EACH(p, kProgramCount) used += a->programs[p].row_count != 0, rows += a->programs[p].row_count;
      snprintf(line, sizeof line, "plan %u of %.*s: safe: %u programs, %u rows, %llu bytes", (unsigned)plan,
               (int)(a->name_size < 64 ? a->name_size : 64), (const char *)a->name, (unsigned)used, (unsigned)rows,
               (unsigned long long)a->arena_bytes);
      say(context, line);
    }
    is_safe = 1;
  } else {
    int n = snprintf(line, sizeof line, "plan %u: unsafe: %s", (unsigned)plan, a->why);
    if (a->program != NONE) n += sprintf(line + n, ", program %s", kPrograms[a->program]);
    if (a->row != NONE) n += sprintf(line + n, ", row %u", (unsigned)a->row);
    if (a->slot != NONE) sprintf(line + n, ", %s %u", kRegions[a->slot >> 30], (unsigned)(a->slot & 0x3fffffff));
    say(context, line);
  }
  while (a->owned_count > 0) free(a->owned[--a->owned_count]);
  free(a);
  return !is_safe;
}
static void print_line(void *path, const char *line) {
  for (printf("%s: ", (const char *)path); *line; ++line) putchar(*line < ' ' || *line > '~' ? '?' : *line);
  putchar('\n');
}
int main(int argc, char **argv) {
  enum { kMost = 1 << 27 };  // bytes of a file
  static unsigned char files[2][kMost];
  size_t sizes[2] = {0, 0};
  if (argc != 2 && argc != 3) return fprintf(stderr, "usage: check_plan PLAN.bin [MANIFEST.json]\n"), 2;
  for (int i = 0; i < argc - 1; ++i) {
    FILE *file = fopen(argv[i + 1], "rb");
    if (file != NULL) sizes[i] = fread(files[i], 1, kMost, file);
    if (file == NULL || ferror(file) || sizes[i] == kMost)
      return fprintf(stderr, "%s: cannot be read, or is larger than 128 MiB\n", argv[i + 1]), 1;
    fclose(file);
  }
  return check_plan_bytes(files[0], sizes[0], argc == 3 ? (char *)files[1] : NULL, sizes[1], print_line, argv[1]);
}
