// From row to kernel: a row's references become tensors and addresses, and its kernel is called. What the arguments mean is the
// family's business (lib/ops); what check.h has proved is not asked again.
#include "lib/assert.h"
#include "lib/carriers.h"
#include "lib/trainer.h"

namespace reprise {

namespace {

constexpr Status kNoKernel = {Code::kUnsupported, "the backend lacks a kernel that the plan calls", 0};

// bind has checked the port; a carrier needs no kernel.
Status carry(const Trainer& trainer, const RowCall& call, const Ref* refs, bool probe) {
  if (probe) return ok_status();
  const CarrierFunctions& carrier = carrier_functions(*trainer.plan, contract::kIndex.carrier[kernel_index(call.op, call.pass)]);
  return call.pass == Pass::kStart ? carrier.start(trainer, call, refs) : carrier.wait(trainer, call, refs);
}

// At every kernel's door: what check.h has proved and backend.h promises kernels holds here and now, of memory as it is.
void assert_arguments(const Trainer& trainer, const RowCall& call, uint32_t kernel) {
  for (uint32_t i = 0; i < contract::kIndex.arity[kernel]; ++i) {
    if (!call.has(i)) continue;
    REPRISE_ASSERT(reinterpret_cast<uintptr_t>(call.pointers[i]) % kAlignment == 0, "a kernel's arguments are aligned to 256 bytes");
    REPRISE_ASSERT(call[i].elements() > 0, "a kernel's arguments have elements");
  }
  const uint32_t scratch = contract::kIndex.scratch[kernel];
  if (scratch == kMaxArguments) return;
  REPRISE_ASSERT(call.bytes(scratch) >= trainer.backend->rules->kernels[kernel].scratch_bytes(call), "a kernel's scratch has the bytes of its rule");
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
    if (lies_in_arena(*trainer.plan, refs[i])) pointers[i] = (trainer.region(ref_region(refs[i])) + tensors[i]->offset).for_kernels;
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
