// Reads the program's ELF symbol table, looks up names of kernels, and switches the device to PTX.
#include "tests/ports/ptx/ptx_launches.h"

#include <cxxabi.h>
#include <elf.h>
#include <link.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

namespace reprise::ptx {
namespace {

std::string text_of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

struct Symbol {
  uint64_t address = 0;
  std::string name, source;
};

template <typename T>
T read_at(const std::string& bytes, uint64_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

// Returns the program's load address minus the address in its file.
uint64_t load_offset() {
  uint64_t offset = 0;
  const auto take_first = [](dl_phdr_info* info, size_t, void* to) {
    *static_cast<uint64_t*>(to) = info->dlpi_addr;
    return 1;
  };
  dl_iterate_phdr(take_first, &offset);
  return offset;
}

// Returns the functions of .symtab, sorted by address. The name of a source file precedes the local
// symbols of that file in .symtab.
std::vector<Symbol> read_symbols() {
  const std::string program = text_of_file("/proc/self/exe");
  const auto header = read_at<Elf64_Ehdr>(program, 0);
  const auto section = [&](uint64_t index) {
    return read_at<Elf64_Shdr>(program, header.e_shoff + index * header.e_shentsize);
  };
  const uint64_t offset = load_offset();
  std::vector<Symbol> symbols;
  for (uint64_t index = 0; index < header.e_shnum; ++index) {
    const Elf64_Shdr table = section(index);
    if (table.sh_type != SHT_SYMTAB) continue;
    const char* names = program.data() + section(table.sh_link).sh_offset;
    std::string source;
    for (uint64_t at = 0; at < table.sh_size; at += table.sh_entsize) {
      const auto symbol = read_at<Elf64_Sym>(program, table.sh_offset + at);
      const uint8_t type = ELF64_ST_TYPE(symbol.st_info);
      if (type == STT_FILE) source = names + symbol.st_name;
      if (type != STT_FUNC || symbol.st_shndx == SHN_UNDEF) continue;
      const bool local = ELF64_ST_BIND(symbol.st_info) == STB_LOCAL;
      symbols.push_back({symbol.st_value + offset, names + symbol.st_name, local ? source : std::string()});
    }
  }
  std::sort(symbols.begin(), symbols.end(), [](const Symbol& a, const Symbol& b) { return a.address < b.address; });
  return symbols;
}

std::string stem(const std::string& name) { return name.substr(0, name.rfind('.')); }

}  // namespace

std::string demangle(const std::string& name) {
  int status = 0;
  char* const text = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  std::string demangled = status == 0 ? text : name;
  std::free(text);
  return demangled;
}

std::vector<FunctionName> names_of(const void* function) {
  static const std::vector<Symbol> kSymbols = read_symbols();
  const auto address = reinterpret_cast<uint64_t>(function);
  std::vector<FunctionName> names;
  auto at = std::lower_bound(kSymbols.begin(), kSymbols.end(), address,
                             [](const Symbol& symbol, uint64_t a) { return symbol.address < a; });
  for (; at != kSymbols.end() && at->address == address; ++at) names.push_back({demangle(at->name), at->source});
  return names;
}

std::vector<PtxFile> read_ptx_files(const std::string& folder) {
  std::vector<PtxFile> files;
  std::error_code error;
  for (const auto& each : std::filesystem::directory_iterator(folder, error)) {
    if (each.path().extension() == ".ptx") files.push_back({each.path().filename(), text_of_file(each.path())});
  }
  std::sort(files.begin(), files.end(), [](const PtxFile& a, const PtxFile& b) { return a.name < b.name; });
  return files;
}

Kernels::Kernels(std::vector<PtxFile> files) {
  for (PtxFile& file : files)
    modules_.push_back(std::make_unique<ModuleText>(std::move(file.name), std::move(file.text)));
  for (const auto& module : modules_) {
    for (const KernelPlace& place : module->kernels())
      entries_[demangle(place.name)].push_back({module.get(), &place, nullptr});
  }
}

const Program& Kernels::program_of(Entry& entry) {
  if (entry.program == nullptr) entry.program = std::make_unique<Program>(decode(*entry.module, *entry.place));
  return *entry.program;
}

const Program& Kernels::find(const std::string& name, const std::string& source) {
  const auto found = entries_.find(name);
  if (found != entries_.end()) {
    for (Entry& entry : found->second) {
      if (!source.empty() && stem(source) != stem(entry.module->file())) continue;
      found_.insert(entry.module->file() + ": " + name);
      return program_of(entry);
    }
  }
  throw PtxError(source.empty() ? "the PTX" : stem(source) + ".ptx", 0, "there is no kernel " + name);
}

const Program& Kernels::find(const void* function) {
  const Program*& program = by_function_[function];
  if (program != nullptr) return *program;
  const std::vector<FunctionName> names = names_of(function);
  if (names.empty()) throw PtxError("the program", 0, "the launched kernel has no name in the table of symbols");
  for (const FunctionName& each : names) {
    if (entries_.contains(each.name) || &each == &names.back()) return *(program = &find(each.name, each.source));
  }
  return *program;
}

std::vector<std::string> Kernels::all() const {
  std::vector<std::string> names;
  for (const auto& [name, entries] : entries_) {
    for (const Entry& entry : entries) names.push_back(entry.module->file() + ": " + name);
  }
  return names;
}

std::string Kernels::check() {
  try {
    for (auto& [name, entries] : entries_) {
      for (Entry& entry : entries) (void)program_of(entry);
    }
  } catch (const PtxError& error) {
    return error.what();
  }
  return "";
}

PtxLaunches::PtxLaunches(Kernels& kernels, Machine& machine) {
  fibre::Device::instance().set_runner([&kernels, &machine](const fibre::Launch& launch) -> fibre::Report {
    try {
      const Program& program = kernels.find(launch.function);
      return machine.run(program, {launch.grid, launch.block, static_cast<uint32_t>(launch.shared_bytes),
                                   launch.arguments, fibre::Device::instance().ranges()});
    } catch (const PtxError& error) {
      return {fibre::Fault::kLaunch, error.what()};
    }
  });
}

}  // namespace reprise::ptx
