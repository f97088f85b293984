// Writes the log for TensorBoard: each run creates a new event file in a folder, which may have
// files of earlier runs. The format is TensorFlow's: records with checksums, each a protobuf
// message.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "tools/run/training/step_log.h"

namespace reprise {

// One event file, open for writing.
class EventFile {
 public:
  EventFile() = default;
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  // Creates a new file in `folder`, and the folder if it is missing. Makes TensorBoard ignore what
  // earlier files in the folder contain for steps after `resumed_step`. Throws UserError.
  void open(const std::string& folder, uint64_t resumed_step);
  bool is_open() const { return descriptor_ >= 0; }
  // Writes the values of one line without delay. Throws UserError if the disk is full.
  void write(const StepLine& line);
  void write(const EvaluationLine& line);

 private:
  void write_scalars(uint64_t step, std::initializer_list<std::pair<const char*, double>> scalars);
  void write_event(uint64_t step, uint32_t field, const std::string& value);
  std::string path_;
  std::string values_, event_, record_;  // members, so that their memory is reused
  int descriptor_ = -1;
};

}  // namespace reprise
