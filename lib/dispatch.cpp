// From row to kernel: dispatch() converts a row's references to tensors and addresses, and calls
// its kernel. The families of lib/ops name the arguments. Properties that check.h has proved are
// not checked again.
#include "lib/assert.h"
#include "lib/carriers.h"
#include "lib/trainer.h"

namespace reprise {

namespace {

constexpr Status kNoKernel = {Code::kUnsupported, "the backend lacks a kernel that the plan calls", 0};

// Starts or waits for an asynchronous row. Does nothing if `probe` is true: bind() has checked the
// resources, and a carrier needs no kernel.
Status carry(const Trainer& trainer, const RowCall& call, const Ref* refs, bool probe) {
  if (probe) return ok_status();
  const CarrierFunctions& carrier =
      carrier_functions(*trainer.plan, contract::kIndex.carrier[kernel_index(call.op, call.pass)]);
  return call.pass == Pass::kStart ? carrier.start(trainer, call, refs) : carrier.wait(trainer, call, refs);
}

[[maybe_unused]] bool is_in_arena(const Trainer& trainer, const void* from, uint64_t bytes) {
  const uint64_t place =
      reinterpret_cast<uintptr_t>(from) - reinterpret_cast<uintptr_t>(trainer.arena.base.for_kernels);
  return place <= trainer.arena.bytes && bytes <= trainer.arena.bytes - place;
}

// Asserts, on the actual addresses, properties that check.h has proved and that backend.h promises
// to kernels.
void assert_arguments(const Trainer& trainer, const RowCall& call, uint32_t kernel) {
  for (uint32_t i = 0; i < contract::kIndex.arity[kernel]; ++i) {
    if (!call.has(i)) continue;
    REPRISE_ASSERT(reinterpret_cast<uintptr_t>(call.pointers[i]) % kAlignment == 0,
                   "a kernel's arguments are aligned to 256 bytes");
    REPRISE_ASSERT(call[i].elements() > 0, "a kernel's arguments have elements");
    REPRISE_ASSERT(call.pointers[i] == nullptr || is_in_arena(trainer, call.pointers[i], call.bytes(i)),
                   "a kernel's arguments are in the arena");
  }
  const uint32_t scratch = contract::kIndex.scratch[kernel];
  if (scratch == kMaxArguments) return;
  REPRISE_ASSERT(call.bytes(scratch) >= trainer.backend->rules->kernels[kernel].scratch_bytes(call),
                 "a kernel's scratch has the bytes of its rule");
}

}  // namespace

Status dispatch(const Trainer& trainer, const Program& program, const Row& row, bool probe) {
  const uint32_t index = kernel_index(row.op, row.pass);
  const uint32_t arity = contract::kIndex.arity[index];
  const Ref* refs = program.arguments.data + row.first_argument;
  const Tensor* tensors[kMaxArguments];
  void* pointers[kMaxArguments];
  uint32_t present = 0;
  for (uint32_t i = 0; i < arity; ++i) {
    pointers[i] = nullptr;
    if (refs[i] == kNoRef) continue;
    present |= 1u << i;
    tensors[i] = &tensor_of(*trainer.plan, program, refs[i]);
    if (lies_in_arena(*trainer.plan, refs[i]))
      pointers[i] = (trainer.region(ref_region(refs[i])) + tensors[i]->offset).for_kernels;
  }
  RowCall call;
  static_cast<ShapedCall&>(call) = {row.op, row.pass, tensors, present, &trainer.plan->attributes, row.attribute};
  call.pointers = pointers;
  call.accumulate = row.accumulate;
  if (contract::kIndex.carrier[index] != Carrier::kNone) return carry(trainer, call, refs, probe);
  const Kernel kernel = trainer.backend->kernels[index][row_storage(*trainer.plan, program, index, refs)];
  if (kernel == nullptr) return kNoKernel;
  if (!probe) assert_arguments(trainer, call, index);
  KernelContext context = trainer.context;
  context.row = static_cast<uint32_t>(&row - program.rows.data);
  return probe ? ok_status() : kernel(context, call);
}

}  // namespace reprise
