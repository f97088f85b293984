// A folder that is written whole or not at all, by one process at a time.
// A run killed at any moment, or a full disk, leaves the last good snapshot; a second run that saves there is refused.
//
//   DIR                 the last whole snapshot
//   DIR.saving/lock     names the process that saves into DIR, and is locked by it as long as it lives
//   DIR.saving/new/     the snapshot being written; exchanged with DIR when it is whole
//   DIR.saving/old/     on file systems without an exchange, for a moment: the snapshot of before
//
// Only files of the snapshot's names, and folders that they leave empty, are ever removed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/formats/leftovers.h"

namespace reprise {

// The right to save into one folder, from the start of a run to its end. Throws UserError with the path and the system's reason.
//   SnapshotDirectory out("out", {"model.safetensors", "training.json"});
//   for each snapshot: out.begin(); ... write all files to out.file(name) ...; out.commit();
// Without commit() DIR stays as it was.
class SnapshotDirectory {
 public:
  // Refuses where another run saves there, where DIR or DIR.saving hold what is not a snapshot's, or where they cannot be written.
  // Takes up what a killed run left.
  SnapshotDirectory(const std::string& path, const std::vector<std::string>& file_names);
  ~SnapshotDirectory();  // removes DIR.saving
  SnapshotDirectory(const SnapshotDirectory&) = delete;
  SnapshotDirectory& operator=(const SnapshotDirectory&) = delete;

  const std::string& path() const { return path_; }

  void begin();
  std::string file(const std::string& name) const { return fresh_ + "/" + name; }
  // Refuses, and changes nothing, where DIR holds a file that is not a snapshot's: it would be lost. The snapshot of before is removed, or
  // kept under the path that is given, where nothing may be.
  void commit(const std::string& keep_old_as = "");
  void abandon() noexcept;  // removes what begin() began

 private:
  void take_lock();
  bool try_lock();
  std::string put_in_place();

  std::string path_, saving_, fresh_, old_;
  std::vector<std::string> names_;
  int lock_ = -1;
  std::optional<Leftover> saving_leftover_, lock_leftover_, fresh_leftover_;
  bool made_saving_ = false;  // DIR.saving is this program's, and goes with the last snapshot
};

// For a folder that a person names as a target: refuses one that is an input, or holds weights which this program has not written, as a
// published model's. Both may have no file but those of a snapshot's names, and would be lost.
void require_replaceable(const std::string& folder, const std::vector<std::string>& inputs);

// Removes the files of these names and, if nothing else lies there, the folder. Throws UserError where something does.
void remove_snapshot(const std::string& folder, const std::vector<std::string>& names);

// For the start of a resume: on file systems that cannot exchange two folders, a kill between two renames can leave the last good
// snapshot in DIR.saving/old; this puts it back. Throws UserError where there is no folder at DIR then.
void recover_snapshot(const std::string& path, const std::vector<std::string>& file_names);

}  // namespace reprise
