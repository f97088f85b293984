// Decides which file an output may replace: none, an empty file, or a file of its own kind that
// this program wrote; never an input. All writers use this one rule, so that none destroys a user's
// file.
//
//   const Output output(path, kChain, {recipe});   before long work: refuses a forbidden output
//   ...
//   output.write(text);                            checks again, writes a new file, renames it
//
// SnapshotDirectory has the same rule for folders. No other code in tools creates a file at a path
// where one may exist.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace reprise {

// A kind of file, and how to recognise a file of this kind that this program wrote.
struct OutputKind {
  // The name of the kind, for example "chain"; it is part of the mark.
  const char* name;
  // Returns true if the file at `path`, which is regular and not empty, is of this kind and was
  // written by this program. Null: a file qualifies if it has the mark. Does not throw.
  bool (*is_own)(const std::string& path) = nullptr;
  // True if an unfinished file of this kind cannot be recognised, because its mark comes last or is
  // missing. A leftover of this kind is then removed by its name alone.
  bool ends_with_mark = false;
};

// Returns "reprise NAME". This text, under the key "written_by" (kWriterKey), marks a file of the
// kind as written by this program.
std::string mark_of(const OutputKind& kind);

// Returns the JSON object's text with the kind's mark added as its first key.
std::string marked_json(const OutputKind& kind, const std::string& json_object);

// True if the file's first 4 KiB contain "written_by", then at most 16 bytes without letters or
// digits, then the kind's mark.
bool has_mark(const std::string& path, const OutputKind& kind);

// One output path of a program.
class Output {
 public:
  // Throws UserError if `path` must not be written: it is one of `inputs` by any name (a link,
  // another spelling), a folder, or a link to nothing. The same holds for a non-empty file that
  // this program did not write. An input that is "" or does not exist is ignored. A device, a pipe,
  // or a descriptor (/dev/stdout, /proc/self/fd/3) is written in place.
  Output(const std::string& path, const OutputKind& kind, std::vector<std::string> inputs);

  // Returns the path as the user gave it.
  const std::string& path() const { return path_; }

  // Throws UserError if the file could not be created. It is for writers that need the file only
  // after long work. Changes nothing.
  void require_writable() const;

  // Throws UserError if the constructor would throw now.
  void check() const;

  // Replaces the output by a file that contains `text`, or by the file that `write` creates at the
  // path that it is given. At each moment the output is the old file or the new one. First removes
  // files that killed runs left next to it. Throws UserError, also if a file that this program did
  // not write has appeared since the constructor.
  void write(const std::string& text) const;
  void write(const std::function<void(const std::string& path)>& write) const;

  // Performs write() in two halves, for files that are replaced together. stage() writes the new
  // file and returns its path. place() puts it in the output's place.
  std::string stage(const std::function<void(const std::string& path)>& write) const;
  void place(const std::string& staged) const;

 private:
  void remove_leftovers() const;

  std::string path_, target_;  // path_: as given; target_: with links followed
  OutputKind kind_;
  std::vector<std::string> inputs_;
  bool in_place_ = false;  // true if the output is not a regular file
};

// Throws UserError with status kUsage if two of these outputs are the same file. Each output is an
// option and its path; a path may be "".
void require_different(const std::vector<std::pair<const char*, std::string>>& outputs);

// Space that a run needs at a path: `bytes` at one time, for `what` (for example "the snapshot").
struct SpaceNeed {
  std::string path, what;
  uint64_t bytes;
};
// Throws UserError if a file system has less free space than the needs at all paths in it together.
// A path need not exist.
void require_space(const std::vector<SpaceNeed>& needs);

// Returns `path` relative to `folder`. A file in `folder` that refers to it is then valid on other
// machines.
std::string relative_path(const std::string& path, const std::string& folder);

// True if both paths name the same existing file or folder.
bool is_same_file(const std::string& one, const std::string& other);

}  // namespace reprise
