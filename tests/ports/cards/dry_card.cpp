// Implements dry_card.h. CUDA's functions and types are declared here as in cuda_runtime_api.h and
// crt/host_runtime.h of CUDA 13, so that the file compiles without a toolkit: a cudaError_t is an
// int, and handles are void*.
#include "tests/ports/cards/dry_card.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include "tests/ports/ptx/ptx_launches.h"
#include "tests/runtime/programs/process.h"

namespace reprise::test {
namespace {

constexpr int kSuccess = 0, kInvalidValue = 1, kInvalidConfiguration = 9, kInvalidFunction = 98, kInvalidHandle = 400,
              kOutOfResources = 701, kCaptureUnsupported = 900;
constexpr uint64_t kAlwaysShared = 48 * 1024, kMaxParameterBytes = 4096;
constexpr uint32_t kMaxThreads = 1024, kMaxThreadsInZ = 64, kMaxBlocksInX = 0x7fffffff, kMaxBlocksInYAndZ = 65535;

}  // namespace

// CUDA's dim3, declared so that it is passed in the same way.
struct Extent {
  uint32_t x, y, z;
  uint64_t count() const { return uint64_t{x} * y * z; }
  std::string text() const { return std::to_string(x) + " x " + std::to_string(y) + " x " + std::to_string(z); }
};

namespace {

// A kernel that nvcc's code has registered before main().
struct DryKernel {
  std::string mangled;
  uint64_t opted_in_bytes = 0;
  bool known = false;  // true: the fields below have been read from the PTX
  std::string name;
  uint64_t parameter_bytes = 0, static_bytes = 0;
  uint32_t max_threads = 0;
};

struct Graph {
  uint64_t nodes = 0;
};

constexpr uint64_t kOfQueue = ~uint64_t{0};

struct Configuration {
  Extent grid, block;
  size_t shared_bytes;
  void* stream;
};

// The state of the card. The process has one card.
struct Card {
  std::map<const void*, DryKernel> kernels;  // key: the host function that a launch names
  std::vector<Configuration> configurations;  // configurations of launches that have not begun yet
  // For each event that was recorded on the copy queue, the number of copies requested before the
  // event; for other events, kOfQueue.
  std::map<void*, uint64_t> events;
  std::map<void*, std::unique_ptr<Graph>> graphs;
  void *queue = nullptr, *copy_queue = nullptr;
  // True if, since its last copy, the copy queue has waited for an event of the main queue.
  bool copies_may_start = false;
  uint64_t copies_started = 0, copies_joined = 0;
  bool captures = false, capture_broke = false;
  uint64_t captured = 0;
  int last_error = kSuccess;
  DryReport report;
};
Card& card() {
  static Card the_card;
  return the_card;
}

int refuse(int error, const std::string& why) {
  if (card().report.fault.empty()) card().report.fault = why;
  return card().last_error = error;
}

// ---- kernels, as described by their PTX ----

uint64_t rounded_up(uint64_t value, uint64_t step) { return (value + step - 1) / step * step; }

struct PtxModules {
  std::vector<std::unique_ptr<ptx::ModuleText>> modules;
  std::map<std::string, std::pair<const ptx::ModuleText*, const ptx::KernelPlace*>> places;  // key: mangled name
  PtxModules() {
    for (ptx::PtxFile& file : ptx::read_ptx_files(build_folder() + "/cuda")) {
      modules.push_back(std::make_unique<ptx::ModuleText>(std::move(file.name), std::move(file.text)));
      for (const ptx::KernelPlace& place : modules.back()->kernels())
        places[place.name] = {modules.back().get(), &place};
    }
  }
};

bool read_ptx(DryKernel& kernel) {
  static const PtxModules kModules;
  const auto found = kModules.places.find(kernel.mangled);
  if (found == kModules.places.end()) return false;
  const auto& [module, place] = found->second;
  const ptx::KernelText text = module->take_apart(*place);
  const auto add = [](uint64_t& end, const ptx::Variable& each) { end = rounded_up(end, each.alignment) + each.bytes; };
  for (const ptx::Variable& each : text.parameters) add(kernel.parameter_bytes, each);
  for (const ptx::Variable& each : text.shared) add(kernel.static_bytes, each);
  kernel.max_threads = text.max_threads;
  kernel.name = ptx::demangle(kernel.mangled);
  return kernel.known = true;
}

// Returns the kernel of a host function. Returns null if the function is not registered, or if the
// PTX is of another build and does not contain the kernel.
DryKernel* find_kernel(const void* function) {
  const auto found = card().kernels.find(function);
  if (found == card().kernels.end()) return nullptr;
  return found->second.known || read_ptx(found->second) ? &found->second : nullptr;
}

// ---- streams ----

// Returns kSuccess if the stream is the queue. Otherwise records a refusal and returns an error.
int require_queue(const void* stream, const std::string& what) {
  if (stream != nullptr && stream == card().queue) return kSuccess;
  return refuse(kInvalidHandle, what + " is asked for on " +
                                    (stream == nullptr ? "the default stream" : "a stream that is not the queue"));
}

int require_event(void* event, const std::string& what) {
  return card().events.count(event) != 0 ? kSuccess
                                         : refuse(kInvalidHandle, what + " names an event that does not exist");
}

int wait(const std::string& what) {
  if (!card().captures) return kSuccess;
  card().capture_broke = true;
  return refuse(kCaptureUnsupported, what + " waits while work is captured");
}

int take_work(uint64_t& count) {
  ++count;
  if (card().captures) ++card().captured;
  return kSuccess;
}

// ---- launches ----

bool is_extent(const Extent& extent, uint32_t x, uint32_t y, uint32_t z) {
  return extent.count() != 0 && extent.x <= x && extent.y <= y && extent.z <= z;
}

int require_shape(const DryKernel& kernel, const Extent& grid, const Extent& block) {
  if (!is_extent(grid, kMaxBlocksInX, kMaxBlocksInYAndZ, kMaxBlocksInYAndZ)) {
    return refuse(kInvalidConfiguration, kernel.name + " is launched with a grid of " + grid.text() + " blocks");
  }
  if (!is_extent(block, kMaxThreads, kMaxThreads, kMaxThreadsInZ) || block.count() > kMaxThreads) {
    return refuse(kInvalidConfiguration, kernel.name + " is launched with a block of " + block.text() + " threads");
  }
  if (kernel.max_threads != 0 && block.count() > kernel.max_threads) {
    return refuse(kOutOfResources, kernel.name + " is compiled for " + std::to_string(kernel.max_threads) +
                                       " threads and launched with " + block.text());
  }
  return kSuccess;
}

int require_shared(DryKernel& kernel, uint64_t dynamic_bytes) {
  const uint64_t bytes = kernel.static_bytes + dynamic_bytes, opted_in = std::exchange(kernel.opted_in_bytes, 0);
  if (bytes > kAlwaysShared && dynamic_bytes > opted_in) {
    return refuse(kInvalidValue, kernel.name + " is launched with " + std::to_string(bytes) +
                                     " bytes of shared memory, " + std::to_string(kernel.static_bytes) +
                                     " of them static, and " + std::to_string(opted_in) + " are opted in");
  }
  for (const CardLimits& each : kCardLimits) {
    if (bytes > each.shared_bytes) {
      return refuse(kInvalidValue, kernel.name + " takes " + std::to_string(bytes) +
                                       " bytes of shared memory, and a block of sm_" +
                                       std::to_string(each.architecture) + " has " + std::to_string(each.shared_bytes));
    }
  }
  return kSuccess;
}

int launch(const void* function, const Extent& grid, const Extent& block, uint64_t shared_bytes, const void* stream) {
  DryKernel* const kernel = find_kernel(function);
  if (kernel == nullptr)
    return refuse(kInvalidFunction,
                  "a function is launched that is no kernel of the PTX in " + build_folder() + "/cuda");
  if (const int error = require_shared(*kernel, shared_bytes)) return error;
  if (const int error = require_queue(stream, kernel->name)) return error;
  if (const int error = require_shape(*kernel, grid, block)) return error;
  if (kernel->parameter_bytes > kMaxParameterBytes) {
    return refuse(kInvalidValue,
                  kernel->name + " has " + std::to_string(kernel->parameter_bytes) + " bytes of parameters");
  }
  DryReport& report = card().report;
  report.max_shared_bytes = std::max(report.max_shared_bytes, kernel->static_bytes + shared_bytes);
  report.max_parameter_bytes = std::max(report.max_parameter_bytes, kernel->parameter_bytes);
  return take_work(report.launches);
}

Graph* find_graph(void* graph, const std::string& what) {
  const auto found = card().graphs.find(graph);
  if (found != card().graphs.end()) return found->second.get();
  (void)refuse(kInvalidHandle, what + " names a graph that does not exist");
  return nullptr;
}

void* keep_graph(uint64_t nodes) {
  auto graph = std::make_unique<Graph>(Graph{nodes});
  void* const handle = graph.get();
  card().graphs[handle] = std::move(graph);
  return handle;
}

int destroy_graph(void* graph, const std::string& what) {
  return card().graphs.erase(graph) != 0 ? kSuccess
                                         : refuse(kInvalidHandle, what + " names a graph that does not exist");
}

}  // namespace

bool DryCard::has_kernels() { return !card().kernels.empty(); }

void* DryCard::make_queue() {
  static std::vector<std::unique_ptr<char>> streams;
  streams.push_back(std::make_unique<char>());
  return card().queue = streams.back().get();
}

void* DryCard::make_copy_queue() {
  static std::vector<std::unique_ptr<char>> streams;
  streams.push_back(std::make_unique<char>());
  return card().copy_queue = streams.back().get();
}

void* DryCard::make_event() {
  static std::vector<std::unique_ptr<char>> events;
  events.push_back(std::make_unique<char>());
  card().events[events.back().get()] = kOfQueue;
  return events.back().get();
}

Arena DryCard::addresses(uint64_t bytes) {
  constexpr uint64_t kBytes = uint64_t{1} << 42;
  static void* const kBase = mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (kBase == MAP_FAILED || bytes > kBytes)
    throw std::runtime_error("no addresses for an arena of " + std::to_string(bytes) + " bytes");
  return {{static_cast<unsigned char*>(kBase)}, bytes};
}

DryReport DryCard::take_report() {
  if (!card().configurations.empty()) (void)refuse(kInvalidConfiguration, "a launch is begun and not made");
  if (card().captures) (void)refuse(kCaptureUnsupported, "work is still captured");
  card().configurations.clear();
  card().captures = false;
  card().last_error = kSuccess;
  return std::exchange(card().report, {});
}

}  // namespace reprise::test

// ---- called by the objects ----

using namespace reprise::test;

extern "C" {

// Code generated by nvcc calls these functions before main() to register a file's kernels.
void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 0; }  // for managed variables; there are none
void __cudaRegisterFunction(void**, const char* function, char*, const char* name, int, void*, void*, void*, void*,
                            int*) {
  card().kernels[function].mangled = name;
}
int __cudaGetKernel(void** kernel, const void* function) {
  *kernel = const_cast<void*>(function);
  return kSuccess;
}

// nvcc compiles kernel<<<grid, block, shared_bytes, stream>>>(...) to a call of the first function.
// The host code of the kernel then calls the second one, and launches with the configuration that
// it returns.
unsigned __cudaPushCallConfiguration(Extent grid, Extent block, size_t shared_bytes, void* stream) {
  card().configurations.push_back({grid, block, shared_bytes, stream});
  return 0;
}
int __cudaPopCallConfiguration(Extent* grid, Extent* block, size_t* shared_bytes, void* stream) {
  if (card().configurations.empty()) return refuse(kInvalidConfiguration, "a kernel is called like a function");
  const Configuration top = card().configurations.back();
  card().configurations.pop_back();
  *grid = top.grid, *block = top.block, *shared_bytes = top.shared_bytes, *static_cast<void**>(stream) = top.stream;
  return kSuccess;
}
int __cudaLaunchKernel(void* kernel, Extent grid, Extent block, void**, size_t shared_bytes, void* stream) {
  return launch(kernel, grid, block, shared_bytes, stream);
}
// Launches a kernel; code compiled by CUDA 12 calls this name.
int cudaLaunchKernel(const void* function, Extent grid, Extent block, void**, size_t shared_bytes, void* stream) {
  return launch(function, grid, block, shared_bytes, stream);
}

int cudaFuncSetAttribute(const void* function, int attribute, int value) {
  constexpr int kMaxDynamicSharedBytes = 8;
  DryKernel* const kernel = find_kernel(function);
  if (kernel == nullptr) return refuse(kInvalidFunction, "an attribute is set of what is no kernel");
  if (attribute != kMaxDynamicSharedBytes || value < 0)
    return refuse(kInvalidValue, kernel->name + " is given an attribute that nobody knows here");
  kernel->opted_in_bytes = static_cast<uint64_t>(value);
  return kSuccess;
}
struct DryFunctionAttributes {
  size_t shared_bytes, constant_bytes, local_bytes;
  int max_threads, registers, ptx_version, architecture, others[25];
};
int cudaFuncGetAttributes(DryFunctionAttributes* attributes, const void* function) {
  if (find_kernel(function) == nullptr)
    return refuse(kInvalidFunction, "the attributes are asked for of what is no kernel");
  attributes->architecture = kCardLimits[0].architecture;
  return kSuccess;
}

int cudaMemcpyAsync(void*, const void*, size_t, int, void* stream) {
  if (stream != nullptr && stream == card().copy_queue) {
    if (!std::exchange(card().copies_may_start, false))
      return refuse(kInvalidHandle, "a copy begins that does not wait for the queue");
    ++card().copies_started;
    return take_work(card().report.copies);
  }
  const int error = require_queue(stream, "a copy");
  return error != kSuccess ? error : take_work(card().report.copies);
}
int cudaMemsetAsync(void*, int, size_t, void* stream) {
  const int error = require_queue(stream, "a fill");
  return error != kSuccess ? error : take_work(card().report.fills);
}
int cudaStreamSynchronize(void* stream) {
  const int error = stream != nullptr && stream == card().copy_queue ? kSuccess : require_queue(stream, "a wait");
  return error != kSuccess ? error : wait("a stream");
}
int cudaEventRecord(void* event, void* stream) {
  const bool of_copies = stream != nullptr && stream == card().copy_queue;
  if (const int error = of_copies ? kSuccess : require_queue(stream, "an event")) return error;
  if (const int error = require_event(event, "a record")) return error;
  card().events[event] = of_copies ? card().copies_started : kOfQueue;
  return kSuccess;
}
int cudaStreamWaitEvent(void* stream, void* event, unsigned) {
  const bool of_copies = stream != nullptr && stream == card().copy_queue;
  if (const int error = of_copies ? kSuccess : require_queue(stream, "a wait for an event")) return error;
  if (const int error = require_event(event, "a wait")) return error;
  const uint64_t copies = card().events[event];
  if (of_copies != (copies == kOfQueue)) return refuse(kInvalidHandle, "a queue waits for itself");
  if (of_copies) card().copies_may_start = true;
  else card().copies_joined = std::max(card().copies_joined, copies);
  return kSuccess;
}
int cudaEventSynchronize(void* event) {
  const int error = require_event(event, "a wait");
  return error != kSuccess ? error : wait("an event");
}

int cudaStreamBeginCapture(void* stream, int) {
  if (const int error = require_queue(stream, "a capture")) return error;
  if (card().captures) return refuse(kCaptureUnsupported, "a capture begins within another");
  card().captures = true;
  card().capture_broke = false;
  card().captured = 0;
  return kSuccess;
}
int cudaStreamEndCapture(void* stream, void** graph) {
  *graph = nullptr;
  if (const int error = require_queue(stream, "the end of a capture")) return error;
  if (!std::exchange(card().captures, false) || card().capture_broke)
    return refuse(kCaptureUnsupported, "a capture ends that is none any more");
  if (card().copies_joined < card().copies_started)
    return refuse(kCaptureUnsupported, "a capture ends while the queue does not wait for a copy");
  *graph = keep_graph(card().captured);
  return kSuccess;
}
int cudaGraphInstantiate(void** executable, void* graph, unsigned long long) {
  const Graph* const found = find_graph(graph, "an instantiation");
  if (found == nullptr) return kInvalidHandle;
  *executable = keep_graph(found->nodes);
  return kSuccess;
}
int cudaGraphUpload(void* executable, void* stream) {
  if (const int error = require_queue(stream, "an upload")) return error;
  return find_graph(executable, "an upload") != nullptr ? kSuccess : kInvalidHandle;
}
int cudaGraphLaunch(void* executable, void* stream) {
  if (const int error = require_queue(stream, "a replay")) return error;
  const Graph* const found = find_graph(executable, "a replay");
  if (found == nullptr) return kInvalidHandle;
  card().report.replayed += found->nodes;
  return kSuccess;
}
int cudaGraphDestroy(void* graph) { return destroy_graph(graph, "a destruction"); }
int cudaGraphExecDestroy(void* executable) { return destroy_graph(executable, "a destruction"); }

int cudaGetLastError() { return std::exchange(card().last_error, kSuccess); }
const char* cudaGetErrorString(int error) {
  switch (error) {
    case kSuccess: return "no error";
    case kInvalidValue: return "invalid argument";
    case kInvalidConfiguration: return "invalid configuration argument";
    case kInvalidFunction: return "invalid device function";
    case kInvalidHandle: return "invalid resource handle";
    case kOutOfResources: return "too many resources requested for launch";
    default: return "an error that the dry card does not name";
  }
}

}  // extern "C"
