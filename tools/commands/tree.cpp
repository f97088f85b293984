// See tree.h.
#include "tools/commands/tree.h"

#include <filesystem>

namespace reprise {

namespace fs = std::filesystem;

namespace {

fs::path folder_of_this() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error).parent_path();
}

// The folder above it, and those above that, that has such a file; empty where none has.
fs::path folder_with(const fs::path& file) {
  for (fs::path folder = folder_of_this().parent_path(); folder != folder.parent_path(); folder = folder.parent_path()) {
    if (fs::exists(folder / file)) return folder;
  }
  return {};
}

}  // namespace

std::optional<Tree> find_tree() {
  const fs::path here = folder_of_this(), prefix = here.parent_path();
  const Tree installed = {prefix / "include/reprise", prefix / "lib/libreprise-tools.a", prefix / "lib/libreprise.a", prefix / "lib/libreprise-cuda.a"};
  if (fs::exists(installed.main_source())) return installed;
  const Tree built = {folder_with("tools/train.cpp"), here / "libtools.a", here / "libreprise.a", here / "libreprise-cuda.a"};
  if (fs::exists(built.main_source()) && fs::exists(built.library)) return built;
  return std::nullopt;
}

std::string find_boards() {
  const fs::path installed = folder_of_this().parent_path() / "share/reprise/boards";
  if (fs::exists(installed)) return installed;
  const fs::path folder = folder_with("tools/boards");
  return folder.empty() ? "" : (folder / "tools/boards").string();
}

}  // namespace reprise
