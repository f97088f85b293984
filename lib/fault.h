// What can be wrong with a plan: the names of check.h's rules, and each rule in one sentence.
// A file of its own because the families' shape contracts (lib/ops) answer a Fault too.
#pragma once

#include <cstdint>

namespace reprise {

// What is wrong with a plan; each value is one rule.
enum class Fault : uint8_t {
  kNone,             // the plan is safe
  kFormat,           // another format version, no micro-batch, or a program without the one it follows
  kScalars,          // state[0] is not the StepScalars, or a scalars argument names something else
  kSlotOrder,        // slots not in the order of their first rows, or a lifetime empty or outside the program
  kMisaligned,       // an offset, a size or a region is not a multiple of kAlignment
  kOutOfRegion,      // a tensor ends past its region, or past the file of weights
  kTooFewBytes,      // a tensor reserves fewer bytes than its shape and type need
  kDType,            // a tensor's type is not the one the kernel takes
  kShape,            // shapes break the kernel's contract, or a tensor's own shape makes no sense
  kArenaBytes,       // a region, the arena, the second level or the file of weights is not as large as what lies in it
  kHint,             // `below` does not name the nearest live slot below
  kOverlap,          // two tensors that live at the same time share bytes
  kUnknownKernel,    // no such kernel
  kArgumentPool,     // the row's arguments reach past the pool
  kBadReference,     // an argument names a tensor that does not exist
  kMissingArgument,  // a required argument, or every output, is absent
  kAttribute,        // no such attribute, or its values make no sense for the kernel
  kNotLive,          // a row touches a slot outside its lifetime
  kReadBeforeWrite,  // a row reads what nothing has written
  kReadOnly,         // a row writes what its kernel or program may not write
  kAliasing,         // two arguments of a row name the same tensor and are not the kernel's in-place pair
  kAccumulate,       // adding where the kernel cannot, or overwriting a carried gradient that already holds a sum
  kScratch,          // less scratch than the backend's rule asks for
  kInFlight,         // a slot is touched, or dies, between the start and the wait of a transfer or load; a wait names other arguments than its
                     // start; or a kernel is off queue 0
  kGroup,            // a group's tensors are not contiguous, not of one kind, or do not match their partners
  kUnused,           // no row touches the slot
  kSpill,            // a spilled block is touched by a row that is no transfer to or from memory, or a streamed parameter by one that is no load
                     // into a slot; or a load's source is not streamed
  kHostSlot,         // the slot of labels, of documents' starts or of pairs is read as something else, or another slot as one of these
  kLearningRate,     // the schedule of the learning rate has a value without meaning, or milestones that do not rise
  kUpdate,           // a trained parameter is not updated once a step, by its whole gradient and after the norm
  kHeld,             // a cache does not live through its program, or stands in one that does not generate; or the output is not written, does not
                     // live to the last row, or is neither that of a program that generates nor the [P,2] f64 of one that evaluates pairs
  kStack,            // a kernel needs more of a worker's stack than the plan says
  kBlocks,           // a row of a tensor ends inside a block of its type
  kRefilled,         // a slot is loaded that something was written to before: a later read would find another weight
  kRanks,            // no rank, or too many; or a value is shared by a rank that is none, or in a program that trains nothing
};

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
    case Fault::kArenaBytes: return "regions, arena, second level and file of weights must be as large as what lies in them, no smaller and no larger";
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
    case Fault::kInFlight: return "nothing may touch a slot between the start and the wait of a transfer or load, which must name the same arguments";
    case Fault::kGroup: return "a group's tensors must be contiguous, of one kind, and match their partners";
    case Fault::kUnused: return "every slot must be used";
    case Fault::kSpill:
      return "only a transfer to or from memory may touch a spilled block; only a load into a slot may touch a streamed parameter, and it may "
             "load nothing else";
    case Fault::kHostSlot: return "labels, starts of documents and pairs must be read from the slots that the host fills with them, and from nowhere else";
    case Fault::kLearningRate: return "the learning rate must be finite and at least 0, its milestones rising";
    case Fault::kUpdate: return "each trained parameter must be updated once a step, by its whole gradient and after the norm";
    case Fault::kHeld:
      return "a cache must live through all rows of the program that generates; an output must be written, live to the last row, and be that of "
             "a program that generates or the two f64 of each pair of one that evaluates";
    case Fault::kStack: return "worker_stack_bytes must be what the most demanding row needs";
    case Fault::kBlocks: return "a row of a tensor must be whole blocks of its type";
    case Fault::kRanks: return "a plan is for 1 to 64 ranks, and its micro-batches alone share values, of one of them";
    case Fault::kRefilled: return "a slot may be loaded once, and nothing may be written there before";
  }
  return "unknown fault";
}

}  // namespace reprise
