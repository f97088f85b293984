// See find_boards.h.
#include "tools/run/commands/find_boards.h"

#include <filesystem>

namespace reprise {

namespace fs = std::filesystem;

namespace {

fs::path folder_of_this() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error).parent_path();
}

// Returns the nearest folder above the folder of this program that contains `file`; an empty path
// if there is none.
fs::path folder_with(const fs::path& file) {
  for (fs::path folder = folder_of_this().parent_path(); folder != folder.parent_path();
       folder = folder.parent_path()) {
    if (fs::exists(folder / file)) return folder;
  }
  return {};
}

}  // namespace

std::string find_boards() {
  const fs::path installed = folder_of_this().parent_path() / "share/reprise/boards";
  if (fs::exists(installed)) return installed;
  const fs::path folder = folder_with("tools/boards");
  return folder.empty() ? "" : (folder / "tools/boards").string();
}

}  // namespace reprise
