// The launches of a test program, run by the PTX that nvcc has made of the same kernels.
// Here so that one program, with one host side, runs every kernel twice: by fibres, and by PTX. Only what a launch does is switched.
//
// A launch knows its kernel as a function. That function's name stands in the program's own table of symbols; demangled it is that of an
// .entry of the PTX. A kernel that only its file can see is looked for in that file's PTX alone.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/ports/cuda_fibre_device.h"
#include "tests/ports/ptx_machine.h"
#include "tests/ports/ptx_text.h"

namespace reprise::ptx {

// A function of this program.
struct FunctionName {
  std::string name;    // demangled
  std::string source;  // "linear.cu" where only this file sees the function, else empty
};
// All of an address: the linker may make one of several that are alike.
std::vector<FunctionName> names_of(const void* function);
std::string demangle(const std::string& name);

struct PtxFile {
  std::string name, text;  // "linear.ptx"
};
// Those of a folder, by name; none where the folder has none.
std::vector<PtxFile> read_ptx_files(const std::string& folder);

class Kernels {
 public:
  explicit Kernels(std::vector<PtxFile> files);

  // Throws a PtxError where there is no such kernel, or an instruction in it is not known.
  const Program& find(const void* function);
  const Program& find(const std::string& name, const std::string& source);
  // By name: what there is, "linear.ptx: void reprise::..." each.
  std::vector<std::string> all() const;
  // Every kernel that was found so far, in the same words.
  const std::set<std::string>& found() const { return found_; }
  // Decodes all kernels, and gives the first text that is not understood, or "".
  std::string check();

 private:
  struct Entry {
    const ModuleText* module = nullptr;
    const KernelPlace* place = nullptr;
    std::unique_ptr<Program> program;
  };
  const Program& program_of(Entry& entry);

  std::vector<std::unique_ptr<ModuleText>> modules_;
  std::map<std::string, std::vector<Entry>> entries_;  // by the demangled name
  std::map<const void*, const Program*> by_function_;
  std::set<std::string> found_;
};

// While it lives, launches run by PTX.
class PtxLaunches {
 public:
  PtxLaunches(Kernels& kernels, Machine& machine);
  ~PtxLaunches() { fibre::Device::instance().set_runner(nullptr); }
  PtxLaunches(const PtxLaunches&) = delete;
  PtxLaunches& operator=(const PtxLaunches&) = delete;
};

}  // namespace reprise::ptx
