// A card that computes nothing. It is CUDA's run time for the host code that nvcc makes of cuda/*.cu: it notes what that code asks for, and
// refuses what a driver refuses, or what one of the cards would refuse on which Reprise runs.
// Here because fibres and PTX run kernels and leave out how a card's program starts them: the launches that nvcc makes of cuda/launch.h, their
// streams, shared memory, grids and parameters.
//
// A program has it instead of CUDA's run time, by linking the objects of build/cuda, which nvcc made in one run with their PTX; without these
// objects there are no kernels here, and a test is skipped. What a kernel takes is read from the PTX: bytes of parameters and of static shared
// memory, and the most threads of a block. Memory is never touched, so that an arena may be addresses alone.
//
// What is refused, the first of which take_report() tells:
//   queue          Work is asked for on another stream than the queue, the default stream above all; or an event is. Copies may be asked for on
//                  the queue of copies, once it waits for what the queue has had.
//   grid, block    None, or more than any card takes; more threads than the kernel is compiled for.
//   shared memory  Dynamic bytes past what a block always has, without an opt-in; more than some card has, static bytes included. An opt-in is
//                  good for one launch, so that none lives on another's.
//   parameters     More than 4 KiB of them: what every version of CUDA 12 takes.
//   recording      A wait while work is captured; a graph, a kernel or an event that does not exist; an end while the queue does not wait for a copy.
#pragma once

#include <cstdint>
#include <string>

#include "lib/port.h"

namespace reprise::test {

// What a block has of shared memory, static and dynamic, once it is opted in: what a multiprocessor has by CUDA 13's cuda_occupancy.h,
// less the KiB that the driver takes of each block (CUDA C++ Programming Guide, "Compute Capabilities").
struct CardLimits {
  uint32_t architecture, shared_bytes;
};
constexpr CardLimits kCardLimits[] = {{80, 163 * 1024}, {86, 99 * 1024},  {87, 163 * 1024}, {89, 99 * 1024},
                                      {90, 227 * 1024}, {100, 227 * 1024}, {120, 99 * 1024}};

struct DryReport {
  std::string fault;                             // the first, or ""
  uint64_t launches = 0, copies = 0, fills = 0;  // asked for and taken
  uint64_t replayed = 0;                         // what graphs asked for again
  uint64_t most_shared_bytes = 0, most_parameter_bytes = 0;  // of a launch
};

class DryCard {
 public:
  // Whether nvcc's objects are linked.
  static bool has_kernels();

  // A stream, and from now on the one queue on which work may be asked for.
  static void* make_queue();
  static void* make_copy_queue();  // beside the queue, for copies alone
  static void* make_event();
  // An arena of addresses without memory: what touches it ends the program. The same place at every call.
  static Arena addresses(uint64_t bytes);
  // Since the last call. What is captured must have ended.
  static DryReport take_report();
};

}  // namespace reprise::test
