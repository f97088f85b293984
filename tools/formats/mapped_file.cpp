// A whole file as read-only memory, by mmap.
// Here because both safetensors and token files are read this way.
#include "tools/formats/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tools/formats/error.h"

namespace reprise {

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // never wait for a pipe's writer
  if (descriptor < 0) throw UserError(path + ": cannot be opened: " + std::strerror(errno));
  struct stat status;
  if (::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(descriptor);
    throw UserError(path + ": must be a regular file");
  }
  bytes_ = static_cast<uint64_t>(status.st_size);
  void* mapping = bytes_ == 0 ? nullptr : ::mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE, descriptor, 0);
  const int mapping_error = errno;
  ::close(descriptor);
  if (mapping == MAP_FAILED) throw UserError(path + ": cannot be mapped: " + std::strerror(mapping_error));
  data_ = static_cast<const unsigned char*>(mapping);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<unsigned char*>(data_), bytes_);
}

}  // namespace reprise
