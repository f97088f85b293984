// A folder that is written whole or not at all: DIR.tmp is filled, flushed, then exchanged with DIR.
// A run killed at any moment, or a full disk, leaves the last good snapshot.
#pragma once

#include <string>
#include <vector>

namespace reprise {

// One snapshot being written. Throws UserError with the path and the system's reason.
//   SnapshotDirectory snapshot("out");
//   ... write files to snapshot.file("model.safetensors") ...
//   snapshot.commit();
// Without commit() the destructor deletes DIR.tmp and DIR stays as it was. Only plain files, no sub-folders.
class SnapshotDirectory {
 public:
  explicit SnapshotDirectory(const std::string& path);  // removes the DIR.tmp of a killed run, creates a new one
  ~SnapshotDirectory();
  SnapshotDirectory(const SnapshotDirectory&) = delete;
  SnapshotDirectory& operator=(const SnapshotDirectory&) = delete;

  std::string file(const std::string& name) const { return temporary_ + "/" + name; }

  // Refuses, and changes nothing, where DIR holds a file that this snapshot has not: somebody else's would be lost.
  void commit();

 private:
  std::string path_, temporary_;
  bool committed_ = false;
};

// For the start of a run, before hours are spent: throws UserError where DIR could not be written, is no folder, or
// holds anything but files of these names.
void check_snapshot_target(const std::string& path, const std::vector<std::string>& file_names);

// For the start of a resume: on file systems that cannot exchange two folders, a kill between two renames can leave the
// last good snapshot in DIR.old; this puts it back. Throws UserError where there is no folder at DIR then.
void recover_snapshot(const std::string& path);

}  // namespace reprise
