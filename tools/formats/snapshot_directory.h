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

// A kind of folder that is written whole.
struct FolderKind {
  const char* name;                 // for messages, as "snapshot"
  std::vector<std::string> files;  // the names of all files that one may hold
  // Returns whether a folder that holds some of these files is one that this program wrote. Does not throw.
  bool (*is_own)(const std::string& folder);
};

// Throws UserError where the folder must not be replaced: where it holds a file of another name, where it is not empty and not of this kind and
// this program's, and where one of `inputs` is the folder or a file in it, by any name. An input that is "" or is not there counts for nothing.
void require_replaceable(const std::string& folder, const FolderKind& kind, const std::vector<std::string>& inputs);

// The right to save into one folder, from the start of a run to its end. Throws UserError with the path and the system's reason.
//   SnapshotDirectory out("out", snapshot_folder(), {recipe.data.path});
//   for each snapshot: out.begin(); ... write all files to out.file(name) ...; out.commit();
// Without commit() DIR stays as it was.
class SnapshotDirectory {
 public:
  // Refuses where another run saves there, where DIR must not be replaced (require_replaceable), where DIR.saving is not a run's, or where they
  // cannot be written. Takes up what a killed run left.
  SnapshotDirectory(const std::string& path, const FolderKind& kind, const std::vector<std::string>& inputs = {});
  ~SnapshotDirectory();  // removes DIR.saving
  SnapshotDirectory(const SnapshotDirectory&) = delete;
  SnapshotDirectory& operator=(const SnapshotDirectory&) = delete;

  const std::string& path() const { return path_; }

  void begin();
  std::string file(const std::string& name) const { return fresh_ + "/" + name; }
  // Refuses, and changes nothing, where DIR must not be replaced by now. The snapshot of before is removed, or
  // kept under the path that is given, where nothing may be.
  void commit(const std::string& keep_old_as = "");
  void abandon() noexcept;  // removes what begin() began

 private:
  void take_lock();
  bool try_lock();
  std::string put_in_place();

  std::string path_, saving_, fresh_, old_;
  const FolderKind kind_;
  const std::vector<std::string> inputs_;
  int lock_ = -1;
  std::optional<Leftover> saving_leftover_, lock_leftover_, fresh_leftover_;
  bool made_saving_ = false;  // DIR.saving is this program's, and goes with the last snapshot
};

// Removes the files of these names and, if nothing else lies there, the folder. Throws UserError where something does.
void remove_snapshot(const std::string& folder, const std::vector<std::string>& names);

// For the start of a resume: on file systems that cannot exchange two folders, a kill between two renames can leave the last good
// snapshot in DIR.saving/old; this puts it back. Throws UserError where there is no folder at DIR then.
void recover_snapshot(const std::string& path, const FolderKind& kind);

}  // namespace reprise
