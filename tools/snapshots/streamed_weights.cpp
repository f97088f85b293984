// See streamed_weights.h.
#include "tools/snapshots/streamed_weights.h"

#include <signal.h>
#include <sys/types.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "tools/formats/error.h"
#include "tools/formats/file_lock.h"
#include "tools/formats/text.h"
#include "tools/progress/long_work.h"

namespace reprise {

namespace {

using nlohmann::json;
namespace fs = std::filesystem;

// All that says which bytes the file holds.
json description(const Plan& plan, const StreamedOrigin& origin) {
  json tensors = json::array();
  for (const StateTensor& state : plan.state) {
    if (state.kind != StateKind::kStreamed) continue;
    const Tensor& t = state.tensor;
    tensors.push_back({{"name", state.name}, {"dtype", dtype_info(t.dtype).name}, {"shape", std::vector<uint32_t>(t.shape, t.shape + t.rank)}, {"offset", t.offset}});
  }
  json from = {{"seed", plan.seed}, {"skip", origin.rules.skip}, {"allow_missing", origin.rules.allow_missing}};
  if (origin.base != nullptr) {
    from["base"] = base_json(*origin.base);
    from["base"].erase("path");  // wherever it lies
  }
  return {{"format", 1}, {"from", from}, {"tensors", tensors}};
}

std::string note_of(const std::string& path) { return path + ".json"; }

bool holds(const std::string& path, const json& wanted) {
  std::error_code ignored;
  if (!fs::exists(path, ignored) || !fs::exists(note_of(path), ignored)) return false;
  const json note = json::parse(read_file(note_of(path)), nullptr, false);
  if (note.is_discarded() || !note.is_object() || note.value("weights", json()) != wanted) return false;
  const FileSum sum = sum_of_file(path);
  return note.value("bytes", json()) == sum.bytes && note.value("xxh3", json()) == sum.checksum;
}

// A process that was killed while it made the file has left its own behind.
void remove_abandoned(const std::string& path) {
  const std::string start = fs::path(path).filename().string() + ".new-";
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(fs::absolute(path).parent_path(), ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.compare(0, start.size(), start) != 0) continue;
    const pid_t process = static_cast<pid_t>(std::atoi(name.c_str() + start.size()));
    const bool is_gone = process > 0 && ::kill(process, 0) != 0 && errno == ESRCH;  // another user's answers with another error
    if (is_gone) fs::remove(entry.path(), ignored);
  }
}

}  // namespace

bool prepare_streamed_weights(const Plan& plan, const Workers& workers, const StreamedOrigin& origin, const std::string& path,
                              const std::function<void()>& before_piece) {
  const json wanted = description(plan, origin);
  if (holds(path, wanted)) return true;
  std::error_code ignored;
  std::optional<FileLock> lock;  // of the folder, so that nothing else is left there
  const std::string folder = fs::absolute(path).parent_path().string();
  if (fs::is_directory(folder, ignored)) lock.emplace(folder, "waiting for another process that writes in " + folder, before_piece);
  if (lock && holds(path, wanted)) return true;
  const LongWork work("writing " + path + ", " + bytes_text(plan.streamed_bytes) + " of streamed weights");
  remove_abandoned(path);
  FileSum sum;
  fs::remove(note_of(path), ignored);  // it says nothing about what comes
  replace_file(path, [&](const std::string& to) {
    OutputFile file(to);
    write_streamed_weights(plan, workers, origin.source, origin.rules, file, before_piece);
    file.finish();
    sum = file.sum();
  });
  replace_file(note_of(path), json({{"weights", wanted}, {"bytes", sum.bytes}, {"xxh3", sum.checksum}}).dump(2) + "\n");
  return false;
}

}  // namespace reprise
