// The log as TensorBoard reads it: an event file of its own for each run, in a folder that holds those of the runs before.
// Here because people watch trainings there. The format is TensorFlow's: records with checksums, each a protobuf message.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "tools/training/step_log.h"

namespace reprise {

class EventFile {
 public:
  EventFile() = default;
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  // Makes the folder where there is none, and in it a new file. What earlier files of the folder say of steps behind `resumed_step` counts no
  // more. Throws UserError.
  void open(const std::string& folder, uint64_t resumed_step);
  bool is_open() const { return descriptor_ >= 0; }
  // Each is written at once. Throws UserError where there is no room.
  void write(const StepLine& line);
  void write(const EvaluationLine& line);

 private:
  void write_scalars(uint64_t step, std::initializer_list<std::pair<const char*, double>> scalars);
  void write_event(uint64_t step, uint32_t field, const std::string& value);
  std::string path_;
  std::string values_, event_, record_;  // kept for their memory
  int descriptor_ = -1;
};

}  // namespace reprise
