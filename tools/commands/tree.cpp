// See tree.h.
#include "tools/commands/tree.h"

#include <filesystem>

namespace reprise {

std::optional<Tree> find_tree() {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path here = fs::read_symlink("/proc/self/exe", error).parent_path(), prefix = here.parent_path();
  const Tree installed = {prefix / "include/reprise", prefix / "lib/libreprise-tools.a", prefix / "lib/libreprise.a", prefix / "lib/libreprise-cuda.a", prefix / "share/reprise/boards"};
  if (fs::exists(installed.main_source())) return installed;
  for (fs::path folder = prefix; folder != folder.parent_path(); folder = folder.parent_path()) {
    const Tree built = {folder, here / "libtools.a", here / "libreprise.a", here / "libreprise-cuda.a", folder / "tools/boards"};
    if (fs::exists(built.main_source()) && fs::exists(built.library)) return built;
  }
  return std::nullopt;
}

}  // namespace reprise
