// Pictures that a person names, without labels, as micro-batches for a net that knows their classes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tools/data/dataset.h"

namespace reprise {

// The files, and all pictures of the folders and what lies in them, in the order of their names. Throws UserError where one is not there, or
// a folder holds none.
std::vector<std::string> list_pictures(const std::vector<std::string>& paths);

// Resized and normalised as the recipe says; places behind the last are zeros. A picture that cannot be decoded throws when its turn comes.
std::unique_ptr<Dataset> open_pictures(const Recipe& recipe, const std::vector<std::string>& files);

}  // namespace reprise
