// A CUDA card that computes nothing. It replaces CUDA's run time for the host code that nvcc makes
// of cuda/*.cu, and records the calls. It refuses calls that the driver refuses, or that at least
// one of the cards supported by Reprise would refuse. Tests with fibres and PTX run kernels, but
// not the launches that nvcc makes of cuda/launch.h: streams, shared memory, grids and parameters.
//
// A program links this card together with the objects of build/cuda, which nvcc made in one run
// with their PTX. Without these objects there are no kernels, and a test is skipped. The card reads
// the needs of a kernel from the PTX: bytes of parameters and of static shared memory, and the
// maximum threads of a block. It does not touch memory, so an arena may have addresses without
// memory.
//
// take_report() returns the first refusal:
//   queue          Work or an event is requested on another stream than the queue, for example on
//                  the default stream. A copy may be on the copy queue, if that queue has waited
//                  for an event of the queue.
//   grid, block    A size is zero, or more than some card allows; or a block has more threads than
//                  the kernel is compiled for.
//   shared memory  A launch has dynamic bytes beyond the default limit without an opt-in; or more
//                  bytes than some card has, static bytes included. An opt-in is valid for one
//                  launch, so that no launch relies on the opt-in of another launch.
//   parameters     A kernel has more than 4 KiB of parameters, the limit that all versions of CUDA
//                  12 allow.
//   recording      The host waits while work is captured; a graph, kernel or event does not exist;
//                  or a capture ends while the queue does not wait for a copy.
#pragma once

#include <cstdint>
#include <string>

#include "lib/port.h"

namespace reprise::test {

// One architecture, and the bytes of shared memory, static and dynamic, that a block may use after
// an opt-in. They are a multiprocessor's bytes by CUDA 13's cuda_occupancy.h, minus 1 KiB that the
// driver reserves for each block (CUDA C++ Programming Guide, "Compute Capabilities").
struct CardLimits {
  uint32_t architecture, shared_bytes;
};
constexpr CardLimits kCardLimits[] = {{80, 163 * 1024}, {86, 99 * 1024},  {87, 163 * 1024}, {89, 99 * 1024},
                                      {90, 227 * 1024}, {100, 227 * 1024}, {120, 99 * 1024}};

struct DryReport {
  std::string fault;                             // text of the first refusal; "" if there was none
  uint64_t launches = 0, copies = 0, fills = 0;  // counts of accepted calls of each kind
  uint64_t replayed = 0;                         // count of launches, copies and fills in replayed graphs
  uint64_t max_shared_bytes = 0, max_parameter_bytes = 0;  // maximum over all launches
};

class DryCard {
 public:
  // True if nvcc's objects are linked.
  static bool has_kernels();

  // Returns a stream, which becomes the only queue on which work may be requested.
  static void* make_queue();
  static void* make_copy_queue();  // a second stream, only for copies
  static void* make_event();
  // Returns an arena that has addresses but no memory; it is the same in every call. An access to
  // it ends the program.
  static Arena addresses(uint64_t bytes);
  // Returns the report of all calls since the last call of this function. A capture must have
  // ended.
  static DryReport take_report();
};

}  // namespace reprise::test
