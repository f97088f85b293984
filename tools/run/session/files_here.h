// Finds the files that a recipe names. A program or plan file may run on another machine than the
// one that planned it, and the recipe has the paths of that machine.
#pragma once

#include <string>
#include <vector>

#include "tools/run/session/program_options.h"

namespace reprise {

// Returns the recipe's text with the paths that the options give. A path that does not exist on
// this machine is replaced by a file or folder with the same name. It is searched for in `folder`
// (the program's folder), then in the working folder; each replacement adds a line to `said`.
// Throws UserError if the recipe has no key for an option's path, or if data that the run needs are
// not found.
std::string recipe_with_files_here(const std::string& recipe, const std::string& name, const ProgramOptions& options,
                                   const std::string& folder, std::vector<std::string>& said);

}  // namespace reprise
