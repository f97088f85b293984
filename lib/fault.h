// The faults of a plan: the rules of check.h, each in one sentence. They have a file of their own
// because the shape contracts of the families (lib/ops) also return a Fault.
#pragma once

#include <cstdint>

namespace reprise {

// A fault of a plan; each value is one rule.
enum class Fault : uint8_t {
  kNone,             // the plan is safe
  kFormat,           // format version unknown, no micro-batch, or a program without the programs that it needs
  kScalars,          // state[0] is not the StepScalars, or a scalars argument names something else
  kSlotOrder,        // slots are not in the order of their first rows, or a lifetime is empty or outside the program
  kMisaligned,       // an offset, a size or a region is not a multiple of kAlignment
  kOutOfRegion,      // a tensor ends past its region, or past the file of weights
  kTooFewBytes,      // a tensor reserves fewer bytes than its shape and type need
  kDType,            // a tensor's type is not one that the kernel accepts
  kShape,            // shapes break the kernel's contract, or a tensor's own shape makes no sense
  kArenaBytes,       // a region, the arena, the second level or the file of weights is not as large as its content
  kHint,             // `below` does not name the nearest live slot below
  kOverlap,          // two tensors that live at the same time share bytes
  kUnknownKernel,    // op and pass name no kernel
  kArgumentPool,     // the row's arguments reach past the pool
  kBadReference,     // an argument names a tensor that does not exist
  kMissingArgument,  // a required argument, or every output, is absent
  kAttribute,        // the row's attribute does not exist, or its values make no sense for the kernel
  kNotLive,          // a row touches a slot outside its lifetime
  kReadBeforeWrite,  // a row reads what nothing has written
  kReadOnly,         // a row writes a tensor that its kernel or program may not write
  kAliasing,         // two arguments of a row name the same tensor and are not the kernel's in-place pair
  kAccumulate,       // a row adds where its kernel cannot, or overwrites a carried gradient that already contains a sum
  kScratch,          // the scratch has fewer bytes than the backend's rule requires
  // A row touches a slot, or a slot's lifetime ends, between the start and the wait of a transfer
  // or load. Or a wait names other arguments than its start. Or a kernel is not on queue 0.
  kInFlight,
  kGroup,   // a group's tensors are not contiguous, are of different kinds, or do not match their gradients
  kUnused,  // no row touches the slot
  // A row touches a spilled block and is not a transfer to or from memory. Or a row touches a
  // streamed parameter and is not a load into a slot. Or a load reads a tensor that is not
  // streamed.
  kSpill,
  // An argument that is not for labels, document starts or pairs names the host's slot for them. Or
  // an argument for one of these names another slot.
  kHostSlot,
  kLearningRate,  // the learning rate's schedule has a value without meaning, or milestones that do not increase
  kUpdate,        // a trained parameter is not updated once a step, by its complete gradient and after the norm
  // A cache does not live through its whole program, or is in a program that does not generate. Or
  // the output is not written, or does not live to the last row. Or the output is in a program that
  // neither generates nor evaluates. Or the output of an evaluation is not [P,2] f64 for P pairs.
  kDiesEarly,
  kStack,     // a kernel needs more of a worker's stack than the plan states
  kBlocks,    // a row of a tensor ends inside a block of its type
  kRefilled,  // a slot is loaded after a row has written to it: a later row would read another weight than planned
  // The number of ranks, the bytes of a shard or the owner of a moment is wrong. Or a row shares a
  // value from a rank that does not exist, or in a program where it may not.
  kRanks,
};

// Returns the rule of `fault` as a sentence with static storage.
constexpr const char* fault_text(Fault fault) {
  switch (fault) {
    case Fault::kNone: return "the plan is safe";
    case Fault::kFormat: return "format version, micro-batch count or set of programs is not one this library runs";
    case Fault::kScalars: return "state[0] must be the StepScalars, and every scalars argument must name it";
    case Fault::kSlotOrder: return "slots must be sorted by first row, with non-empty lifetimes inside the program";
    case Fault::kMisaligned: return "offsets, sizes and regions must be multiples of 256 bytes";
    case Fault::kOutOfRegion: return "a tensor must end inside its region, or inside the file of weights";
    case Fault::kTooFewBytes: return "a tensor must reserve at least the bytes of its shape and type";
    case Fault::kDType: return "an argument must have the type its kernel takes, all activations of a row the same";
    case Fault::kShape: return "shapes must obey the kernel's contract";
    case Fault::kArenaBytes:
      return "regions, arena, second level and file of weights must be as large as what lies in them, no smaller and "
             "no larger";
    case Fault::kHint: return "below must name the nearest live slot below";
    case Fault::kOverlap: return "tensors that live at the same time must not share bytes";
    case Fault::kUnknownKernel: return "op and pass must name a kernel";
    case Fault::kArgumentPool: return "a row's arguments must lie in the pool";
    case Fault::kBadReference: return "an argument must name an existing tensor";
    case Fault::kMissingArgument: return "required arguments, and one output at least, must be present";
    case Fault::kAttribute: return "a row must name an existing attribute with values its kernel understands";
    case Fault::kNotLive: return "a row may touch a slot only during its lifetime";
    case Fault::kReadBeforeWrite: return "a row may read only what was written";
    case Fault::kReadOnly: return "a row may write only what its kernel and its program may write";
    case Fault::kAliasing: return "only a kernel's in-place pair may name the same tensor twice";
    case Fault::kAccumulate: return "a row may add only where its kernel can, and may not overwrite a carried sum";
    case Fault::kScratch: return "scratch must have the bytes of the backend's rule";
    case Fault::kInFlight:
      return "nothing may touch a slot between the start and the wait of a transfer or load, which must name the same "
             "arguments";
    case Fault::kGroup: return "a group's tensors must be contiguous, of one kind, and match their partners";
    case Fault::kUnused: return "every slot must be used";
    case Fault::kSpill:
      return "only a transfer to or from memory may touch a spilled block; only a load into a slot may touch a "
             "streamed parameter, and it may "
             "load nothing else";
    case Fault::kHostSlot:
      return "labels, starts of documents and pairs must be read from the slots that the host fills with them, and "
             "from nowhere else";
    case Fault::kLearningRate: return "the learning rate must be finite and at least 0, its milestones rising";
    case Fault::kUpdate:
      return "each trained parameter must be updated once a step, by its whole gradient and after the norm";
    case Fault::kDiesEarly:
      return "a cache must live through all rows of the program that generates; an output must be written, live to the "
             "last row, and be that of "
             "a program that generates or the two f64 of each pair of one that evaluates";
    case Fault::kStack: return "worker_stack_bytes must be what the most demanding row needs";
    case Fault::kBlocks: return "a row of a tensor must be whole blocks of its type";
    case Fault::kRanks: return "a plan is for 1 to 64 ranks, and its micro-batches alone share values, of one of them";
    case Fault::kRefilled: return "a slot may be loaded once, and nothing may be written there before";
  }
  return "unknown fault";
}

}  // namespace reprise
