// A JPEG in memory, decoded by libjpeg-turbo. stb_image would fill the missing end of a file with
// grey; libjpeg-turbo reports it. PyTorch and TensorFlow use this library, too, so that a net sees
// the same pixels here.
#pragma once

#include <cstdint>
#include <string>

#include "tools/run/data/images.h"

namespace reprise {

class JpegFile {
 public:
  static bool is_jpeg(const std::string& bytes);  // True if the first two bytes are those of a JPEG.

  // Reads the header. Borrows `bytes` for the object's lifetime. Throws UserError "FILE: cannot be
  // decoded: ...".
  JpegFile(const std::string& bytes, const std::string& path);
  ~JpegFile();
  JpegFile(const JpegFile&) = delete;
  JpegFile& operator=(const JpegFile&) = delete;

  int height() const;
  int width() const;

  // Fills `target` with bytes [H, W, C] in the picture's own size. C is `channels`: 1 (grey) or 3
  // (red, green, blue). May be called once. Throws UserError if the data are damaged or end before
  // the picture does.
  void decode(int channels, uint8_t* target);

 private:
  struct Decoder;
  std::string path_;
  Decoder* decoder_;
};

}  // namespace reprise
