// A JPEG in memory, decoded by libjpeg-turbo.
// Here because stb_image gives grey for the missing end of a file, and libjpeg-turbo says that it is missing. PyTorch's and TensorFlow's readers
// use the same library, so that a net sees the same pixels here.
#pragma once

#include <cstdint>
#include <string>

#include "tools/data/images.h"

namespace reprise {

class JpegFile {
 public:
  static bool is_jpeg(const std::string& bytes);  // by how it begins

  // Reads the header. Borrows `bytes` for the object's life. Throws UserError "FILE: cannot be decoded: ...".
  JpegFile(const std::string& bytes, const std::string& path);
  ~JpegFile();
  JpegFile(const JpegFile&) = delete;
  JpegFile& operator=(const JpegFile&) = delete;

  int height() const;
  int width() const;

  // Fills `target`, [H, W, C] bytes of the picture's own size and `channels` channels, 1 (grey) or 3 (red, green, blue). To be called once.
  // Throws UserError where the data are damaged or end before the picture does.
  void decode(int channels, uint8_t* target);

 private:
  struct Decoder;
  std::string path_;
  Decoder* decoder_;
};

}  // namespace reprise
