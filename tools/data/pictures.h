// Pictures that a person names, without labels, as micro-batches for a net that knows their classes.
#pragma once

#include <string>
#include <vector>

#include "tools/data/images.h"

namespace reprise {

// The files, and all pictures of the folders and what lies in them, in the order of their names. Throws UserError where one is not there, or
// a folder holds none.
std::vector<std::string> list_pictures(const std::vector<std::string>& paths);

// Resized and normalised as the recipe says. Places behind the last are zeros, and so is a picture that cannot be decoded.
class PictureFiles : public Dataset {
 public:
  PictureFiles(const Recipe& recipe, const std::vector<std::string>& files);
  uint64_t fill(uint64_t step, uint64_t micro, BatchSink& sink) override;
  // Why a picture could not be decoded when its turn came; "" where it could.
  const std::string& fault(uint64_t picture) const { return faults_[picture]; }

 private:
  const std::vector<std::string> files_;
  const ImageShape shape_;
  PixelTable table_;
  ImageWalk walk_;
  std::vector<uint8_t> bytes_;
  std::vector<std::string> faults_;
};

}  // namespace reprise
