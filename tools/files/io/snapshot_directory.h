// A folder that is written completely or not at all, by one process at a time. If the run is killed
// or the disk is full, the last good snapshot remains. A second run that saves there is refused.
//
//   DIR                 the last complete snapshot
//   DIR.saving/lock     names the process that saves into DIR; it is locked until the process ends
//   DIR.saving/new/     the snapshot being written; exchanged with DIR when it is complete
//   DIR.saving/old/     briefly the previous snapshot, on file systems without an exchange
//
// Only files with the names of a snapshot, and folders that become empty, are removed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/files/io/leftovers.h"

namespace reprise {

// A kind of folder that is written as a whole.
struct FolderKind {
  const char* name;                // name in messages, for example "snapshot"
  std::vector<std::string> files;  // names of all files that such a folder may contain
  // Returns true if this program wrote a folder that contains some of these files. Does not throw.
  bool (*is_own)(const std::string& folder);
  const char* option = "--save";  // the command line's option for such a folder, for messages
};

// Throws UserError unless the folder may be replaced. It may be replaced if it contains only files
// that `kind` names, and is empty or was written by this program. It must not be one of `inputs`,
// or directly contain one that is a file, under any name. An input that is "" or does not exist is
// ignored.
void require_replaceable(const std::string& folder, const FolderKind& kind, const std::vector<std::string>& inputs);

// The right to save into one folder, from the start of a run to its end. Throws UserError with the
// path and the system's reason.
//   SnapshotDirectory out("out", snapshot_folder(), {recipe.data.path});
//   for each snapshot: out.begin(); ... write all files to out.file(name) ...; out.commit();
// Only commit() changes DIR; the constructor restores it if a killed run left it missing.
class SnapshotDirectory {
 public:
  // Locks the folder, and repairs what a killed run left. Throws UserError if another run saves
  // there, if DIR must not be replaced (require_replaceable), or if DIR.saving was not made by a
  // run. Also throws UserError if DIR or DIR.saving cannot be written.
  SnapshotDirectory(const std::string& path, const FolderKind& kind, const std::vector<std::string>& inputs = {});
  ~SnapshotDirectory();  // removes DIR.saving
  SnapshotDirectory(const SnapshotDirectory&) = delete;
  SnapshotDirectory& operator=(const SnapshotDirectory&) = delete;

  const std::string& path() const { return path_; }

  // Starts a new snapshot: empties DIR.saving/new.
  void begin();
  // Returns the path at which to write a file of the new snapshot.
  std::string file(const std::string& name) const { return fresh_ + "/" + name; }
  // Puts the new snapshot in DIR's place. The previous snapshot is removed, or renamed to
  // `keep_old_as` if this is not ""; no file may exist at that path. Throws UserError and changes
  // nothing if DIR can no longer be replaced.
  void commit(const std::string& keep_old_as = "");
  void abandon() noexcept;  // removes what begin() created

 private:
  void take_lock();
  bool try_lock();
  std::string put_in_place();

  std::string path_, saving_, fresh_, old_;
  const FolderKind kind_;
  const std::vector<std::string> inputs_;
  int lock_ = -1;
  std::optional<Leftover> saving_leftover_, lock_leftover_, fresh_leftover_;
  bool made_saving_ = false;  // true if this process made DIR.saving; the destructor then removes it
};

// Removes the files with these names, then the folder. Throws UserError if the folder contains
// anything else.
void remove_snapshot(const std::string& folder, const std::vector<std::string>& names);

// Restores a snapshot before a resume. On file systems that cannot exchange two folders, a kill
// between two renames can leave the last good snapshot in DIR.saving/old. This function moves it
// back. Throws UserError if DIR is not a folder afterwards.
void recover_snapshot(const std::string& path, const FolderKind& kind);

}  // namespace reprise
