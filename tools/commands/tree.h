// What stands beside this program: installed with it, or in the checkout that it was built in.
// Here because training programs are compiled from it, and boards are found in it by their names.
#pragma once

#include <optional>
#include <string>

namespace reprise {

struct Tree {
  std::string include, tools_library, library, cuda_library;  // the sources and headers of training programs; what they are linked with
  std::string main_source(const char* name = "train") const { return include + "/tools/" + name + ".cpp"; }
};

// None: the program stands alone, or with its boards.
std::optional<Tree> find_tree();

// A folder of files as tools/boards has them; "" where there is none.
std::string find_boards();

}  // namespace reprise
