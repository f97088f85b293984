// See streamed_weights.h.
#include "tools/run/snapshots/streamed_weights.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"
#include "tools/files/io/file_lock.h"
#include "tools/files/io/output.h"
#include "tools/files/io/output_file.h"
#include "tools/files/io/text.h"
#include "tools/files/progress/long_work.h"

namespace reprise {

namespace {

using nlohmann::json;
namespace fs = std::filesystem;

// Returns a description of everything that determines the bytes of the file.
json description(const Plan& plan, const StreamedOrigin& origin) {
  json tensors = json::array();
  for (const StateTensor& state : plan.state) {
    if (state.kind != StateKind::kStreamed) continue;
    const Tensor& t = state.tensor;
    tensors.push_back({{"name", state.name},
                       {"dtype", dtype_info(t.dtype).name},
                       {"shape", std::vector<uint32_t>(t.shape, t.shape + t.rank)},
                       {"offset", t.offset}});
  }
  json from = {{"seed", plan.seed}, {"skip", origin.rules.skip}, {"allow_missing", origin.rules.allow_missing}};
  if (origin.base != nullptr) {
    from["base"] = base_json(*origin.base);
    from["base"].erase("path");  // the path does not matter
  }
  return {{"format", 1}, {"from", from}, {"tensors", tensors}};
}

// Returns the path of the file's note. If `path` is a link, the note is next to the file to which
// it leads.
std::string note_of(const std::string& path) {
  std::error_code error;
  const fs::path file = fs::canonical(path, error);
  return (error ? path : file.string()) + ".json";
}

bool is_own_note(const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return false;
  const json note = json_or_discarded(read_file(path));
  return note.is_object() && note.value("weights", json()).is_object() &&
         note.value("bytes", json()).is_number_unsigned() && note.value("xxh3", json()).is_string();
}

bool holds(const std::string& path, const json& wanted) {
  std::error_code ignored;
  if (!fs::exists(path, ignored) || !fs::exists(note_of(path), ignored)) return false;
  const json note = json_or_discarded(read_file(note_of(path)));
  if (note.is_discarded() || !note.is_object() || note.value("weights", json()) != wanted) return false;
  const FileSum sum = sum_of_file(path);
  return note.value("bytes", json()) == sum.bytes && note.value("xxh3", json()) == sum.checksum;
}

// True if this program wrote the file: its note states the file's size as the size of the weights,
// or as the size of the file that they replace. The second case occurs if a process was killed
// after it wrote the note and before it replaced the file.
bool is_own_file(const std::string& path) {
  std::error_code error;
  const uint64_t bytes = fs::file_size(path, error);
  if (error || !is_own_note(note_of(path))) return false;
  const json note = json_or_discarded(read_file(note_of(path)));
  return note["bytes"] == bytes || note.value("replaced_bytes", json()) == bytes;
}

constexpr OutputKind kStreamedFile = {"streamed weights", is_own_file, true}, kStreamedNote = {"streamed", is_own_note};

}  // namespace

bool prepare_streamed_weights(const Plan& plan, const Workers& workers, const StreamedOrigin& origin,
                              const std::string& path, const std::function<void()>& before_piece,
                              const std::vector<std::string>& inputs) {
  const json wanted = description(plan, origin);
  if (holds(path, wanted)) return true;
  const Output output(path, kStreamedFile, inputs), note(note_of(path), kStreamedNote, inputs);
  std::error_code ignored;
  std::optional<FileLock> lock;  // a lock on the folder itself, because a lock file would remain in it
  const std::string folder = fs::absolute(path).parent_path().string();
  if (fs::is_directory(folder, ignored))
    lock.emplace(folder, "waiting for another process that writes in " + folder, before_piece);
  if (lock && holds(path, wanted)) return true;
  const LongWork work("writing " + path + ", " + bytes_text(plan.streamed_bytes) + " of streamed weights");
  FileSum sum;
  const uint64_t replaced = fs::exists(path, ignored) ? fs::file_size(path, ignored) : 0;
  const std::string staged = output.stage([&](const std::string& to) {
    OutputFile file(to);
    write_streamed_weights(plan, workers, origin.source, origin.rules, file, before_piece);
    file.finish();
    sum = file.sum();
  });
  try {
    note.write(marked_json(kStreamedNote, json({{"weights", wanted},
                                                {"bytes", sum.bytes},
                                                {"xxh3", sum.checksum},
                                                {"replaced_bytes", replaced}})
                                              .dump(2)) +
               "\n");
  } catch (const UserError&) {
    fs::remove(staged, ignored);
    throw;
  }
  output.place(staged);
  return false;
}

}  // namespace reprise
