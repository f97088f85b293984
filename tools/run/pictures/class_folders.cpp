// See class_folders.h.
#include "tools/run/pictures/class_folders.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <filesystem>
#include <optional>

#include "tools/files/io/error.h"
#include "tools/files/io/text.h"

namespace reprise {

namespace fs = std::filesystem;

bool is_hidden(const std::string& path) {
  const std::string name = fs::path(path).filename().string();
  return name.starts_with('.') || name == "__MACOSX" || name == "Thumbs.db" || name == "desktop.ini";
}

void sort_class_names(std::vector<std::string>& names) {
  const auto value_of = [](const std::string& name) -> std::optional<double> {
    if (name.find_first_not_of("0123456789.-") != std::string::npos) return std::nullopt;
    double value = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), value);
    return error == std::errc() && end == name.data() + name.size() ? std::optional(value) : std::nullopt;
  };
  const bool are_numbers =
      std::all_of(names.begin(), names.end(), [&](const std::string& name) { return value_of(name).has_value(); });
  std::sort(names.begin(), names.end(), [&](const std::string& a, const std::string& b) {
    const double first = are_numbers ? *value_of(a) : 0, second = are_numbers ? *value_of(b) : 0;
    return first != second ? first < second : a < b;
  });
}

bool is_picture(const std::string& path) {
  if (is_hidden(path)) return false;
  std::string ending = fs::path(path).extension().string();
  for (char& c : ending) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const char* known : {".jpg", ".jpeg", ".png", ".bmp", ".ppm", ".pgm"}) {
    if (ending == known) return true;
  }
  return false;
}

namespace {

std::vector<fs::path> sorted_entries(const std::string& folder) {
  std::error_code error;
  std::vector<fs::path> paths;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    if (!is_hidden(entry->path().string())) paths.push_back(entry->path());
  if (error)
    throw UserError(folder + ": cannot be listed: " + error.message() +
                    "; data.path must be a folder with one sub-folder for each class");
  std::sort(paths.begin(), paths.end());
  return paths;
}

bool is_class_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored) && !is_hidden(path.string());
}

}  // namespace

std::vector<std::string> class_names(const std::string& folder, int classes) {
  std::vector<std::string> names;
  for (const fs::path& path : sorted_entries(folder)) {
    if (is_class_folder(path)) names.push_back(path.filename().string());
  }
  if (names.empty()) throw UserError(folder + ": has no sub-folders; it must have one for each class");
  if (names.size() > static_cast<size_t>(classes)) {
    throw UserError(folder + ": has " + std::to_string(names.size()) +
                    " sub-folders, one for each class, but model.classes is " + std::to_string(classes));
  }
  sort_class_names(names);
  return names;
}

PictureList list_pictures(const std::string& folder, const std::vector<std::string>& names,
                          const std::string& training_folder) {
  PictureList list;
  std::vector<std::string> unknown;
  for (const fs::path& sub_folder : sorted_entries(folder)) {
    if (!is_class_folder(sub_folder)) continue;
    const auto name = std::find(names.begin(), names.end(), sub_folder.filename().string());
    if (name == names.end()) {
      unknown.push_back(sub_folder.filename().string());
      continue;
    }
    for (const fs::path& path : sorted_entries(sub_folder.string())) {
      if (is_picture(path)) {
        list.pictures.push_back({path.string(), static_cast<int32_t>(name - names.begin())});
      } else if (list.left_out++ == 0) {
        list.first_left_out = path.string();
      }
    }
  }
  if (!unknown.empty()) {
    throw UserError(folder + ": has " +
                    (unknown.size() == 1 ? "1 folder that is" : std::to_string(unknown.size()) + " folders that are") +
                    " no class of the training set " + training_folder + ": " + some_of(unknown) +
                    "; its classes are " + some_of(names));
  }
  if (list.pictures.empty())
    throw UserError(folder + ": its sub-folders hold no images (.jpg .jpeg .png .bmp .ppm .pgm)");
  return list;
}

}  // namespace reprise
