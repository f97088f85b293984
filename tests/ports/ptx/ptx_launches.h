// Runs the launches of a test program by the PTX that nvcc has made of the same kernels. So one
// program, with the same host code, can run every kernel twice: on fibres and by PTX.
//
// A launch names its kernel by a function pointer. The program's symbol table gives the function's
// name, which, demangled, is the name of an .entry in the PTX. A kernel with internal linkage is
// searched only in the PTX of its own file.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/ports/fibres/cuda_fibre_device.h"
#include "tests/ports/ptx/ptx_machine.h"
#include "tests/ports/ptx/ptx_text.h"

namespace reprise::ptx {

// One name of a function of this program, with the file to which it is local.
struct FunctionName {
  std::string name;    // demangled
  std::string source;  // file to which the function is local, for example "linear.cu"; "" if it is not local
};
// Returns all names of the function at an address. There are several if the linker has merged
// functions with equal code.
std::vector<FunctionName> names_of(const void* function);
std::string demangle(const std::string& name);

struct PtxFile {
  std::string name, text;  // name of the file, for example "linear.ptx"; its text
};
// Returns the PTX files of a folder, sorted by name; none if the folder has none or cannot be read.
std::vector<PtxFile> read_ptx_files(const std::string& folder);

class Kernels {
 public:
  explicit Kernels(std::vector<PtxFile> files);

  // Returns the decoded kernel. Throws a PtxError if the kernel does not exist or contains an
  // unknown instruction.
  const Program& find(const void* function);
  const Program& find(const std::string& name, const std::string& source);
  // Returns all kernels, sorted by name, each as "linear.ptx: void reprise::...".
  std::vector<std::string> all() const;
  // Returns the kernels that find() has returned so far, in the format of all().
  const std::set<std::string>& found() const { return found_; }
  // Decodes all kernels. Returns the first error text, or "" if the decoder supports all kernels.
  std::string check();

 private:
  struct Entry {
    const ModuleText* module = nullptr;
    const KernelPlace* place = nullptr;
    std::unique_ptr<Program> program;
  };
  const Program& program_of(Entry& entry);

  std::vector<std::unique_ptr<ModuleText>> modules_;
  std::map<std::string, std::vector<Entry>> entries_;  // key: demangled name
  std::map<const void*, const Program*> by_function_;  // decoded kernels, by the host function that a launch names
  std::set<std::string> found_;
};

// While an object of this class exists, launches run by PTX instead of on fibres.
class PtxLaunches {
 public:
  PtxLaunches(Kernels& kernels, Machine& machine);
  ~PtxLaunches() { fibre::Device::instance().set_runner(nullptr); }
  PtxLaunches(const PtxLaunches&) = delete;
  PtxLaunches& operator=(const PtxLaunches&) = delete;
};

}  // namespace reprise::ptx
