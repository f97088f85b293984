// Decides what an output may replace: nothing, an empty file, or a file of its own kind that this program wrote; never an input.
// Here because every writer needs the same rule, or one of them loses somebody's file.
//
//   const Output output(path, kChain, {recipe});   before long work: refuses what may not be replaced
//   ...
//   output.write(text);                            asks again, writes beside the file, then renames
//
// SnapshotDirectory has the same rule for folders. Nothing else in tools puts a file where one may be.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace reprise {

// A kind of file, and how one that this program wrote is recognised.
struct OutputKind {
  // The kind's word, as "chain": a part of its mark.
  const char* name;
  // Returns whether the file at `path`, a regular one that is not empty, is of this kind and this program's; null: whether it has the mark.
  // Does not throw.
  bool (*is_own)(const std::string& path) = nullptr;
  // True if a file whose writer was killed cannot be recognised, because its mark comes last or is missing.
  bool ends_with_mark = false;
};

// Returns "reprise NAME", which says in a file of that kind who wrote it, under the key "written_by" (kWriterKey).
std::string mark_of(const OutputKind& kind);

// Returns the text of a JSON object with the kind's mark as its first key.
std::string marked_json(const OutputKind& kind, const std::string& json_object);

// Returns whether the file's first 4 KiB hold "written_by" and, behind at most 16 bytes that are no letters and digits, the kind's mark.
bool has_mark(const std::string& path, const OutputKind& kind);

class Output {
 public:
  // Throws UserError where `path` must not be written: where it is one of `inputs` by any name (a link, another spelling), a folder, a link
  // to nothing, or a file that is not empty and not this program's. An input that is "" or is not there counts for nothing. A device, a pipe,
  // or a descriptor (/dev/stdout, /proc/self/fd/3) is written in place.
  Output(const std::string& path, const OutputKind& kind, std::vector<std::string> inputs);

  // Returns the path as it was given.
  const std::string& path() const { return path_; }

  // Throws UserError where the file could not be made, for a writer that comes to it after long work. Nothing changes.
  void require_writable() const;

  // Throws where the constructor would by now.
  void check() const;

  // Puts a file that holds `text`, or that `write` makes at the path which it is given, in the output's place: a file of that name is the
  // old one or the new one, whatever happens. One that has come since the constructor, and is not this program's, is refused. Before that it
  // removes what killed runs left beside the file. Throws UserError.
  void write(const std::string& text) const;
  void write(const std::function<void(const std::string& path)>& write) const;

  // The two halves of write(), for files that come to their places together: stage() returns the new file's path, which place() puts in the
  // output's place.
  std::string stage(const std::function<void(const std::string& path)>& write) const;
  void place(const std::string& staged) const;

 private:
  void remove_leftovers() const;

  std::string path_, target_;  // as it was given, and with links followed
  OutputKind kind_;
  std::vector<std::string> inputs_;
  bool in_place_ = false;  // no regular file
};

// Throws UserError of status kUsage where two of these outputs, option and path, would be one file. A path may be "".
void require_different(const std::vector<std::pair<const char*, std::string>>& outputs);

// Describes what a run will write: where, how many bytes at once, and what, for example "the snapshot".
struct SpaceNeed {
  std::string path, what;
  uint64_t bytes;
};
// Throws UserError where a file system has less room than all that will be written there, before anything is. A path need not be there.
void require_space(const std::vector<SpaceNeed>& needs);

// Returns `path` as it is seen from `folder`, so that what is written there holds no place of this machine.
std::string relative_path(const std::string& path, const std::string& folder);

// Returns whether both name the same file or folder, which is there.
bool is_same_file(const std::string& one, const std::string& other);

}  // namespace reprise
