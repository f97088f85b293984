// Finds the folder with the descriptions of published boards, one file for each board.
#pragma once

#include <string>

namespace reprise {

// Returns the folder that has the files of tools/boards: installed with this program, or in the
// checkout in which it was built. Returns "" if there is none.
std::string find_boards();

}  // namespace reprise
