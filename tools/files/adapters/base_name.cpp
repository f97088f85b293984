// See base_name.h. The keys are from llama.cpp's converter (gguf-py, constants.py).
#include "tools/files/adapters/base_name.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tools/files/formats/gguf.h"
#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"
#include "tools/files/io/output_file.h"

namespace reprise {
namespace {

namespace fs = std::filesystem;

// Returns the name ORG/NAME if the text is such a name or its address on the Hub; "" otherwise.
std::string hub_name_in(std::string text) {
  for (const char* start : {"https://", "http://"}) {
    if (text.starts_with(start)) text.erase(0, std::string(start).size());
  }
  for (const char* host : {"huggingface.co/", "www.huggingface.co/", "hf.co/"}) {
    if (!text.starts_with(host)) continue;
    text.erase(0, std::string(host).size());
    const size_t slash = text.find('/'),
                 end = slash == std::string::npos ? slash : text.find_first_of("/?#", slash + 1);
    text = text.substr(0, end);
  }
  return is_hub_name(text) ? text : "";
}

std::string lower_letters(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// Finds the name in the file's metadata. general.base_model names either this model in another
// number format, or the model from which this one was fine-tuned. A name that contains the file's
// general.finetune is the former; only such a name is used.
void find_in_gguf(const GgufFile& file, BaseName& base) {
  const auto take = [&](const std::string& key) {
    const std::string name = hub_name_in(file.text(key).value_or(""));
    if (!name.empty()) base.name = name, base.said_by = key + " of " + file.path();
    return !name.empty();
  };
  for (const char* key : {"general.source.huggingface.repository", "general.source.repo_url", "general.source.url"}) {
    if (take(key)) return;
  }
  if (file.unsigned_integer("general.base_model.count").value_or(1) != 1) return;
  const std::string tuning = file.text("general.finetune").value_or("");
  for (const char* key : {"general.base_model.0.repo_url", "general.base_model.0.url"}) {
    const std::string name = hub_name_in(file.text(key).value_or(""));
    if (name.empty()) continue;
    if (lower_letters(name).find(lower_letters(tuning)) != std::string::npos) {
      take(key);
    } else {
      base.doubt = std::string(key) + " names " + name + ", which is not called " + json_shown(tuning) +
                   " as the file's general.finetune has it";
    }
    return;
  }
}

// Returns ORG/NAME or NAME if a folder of the path is called models--ORG--NAME or models--NAME; ""
// otherwise.
std::string name_in_cache(const std::string& path) {
  const std::string start = "models--";
  for (const fs::path& part : fs::path(path)) {
    std::string name = part.string();
    if (!name.starts_with(start)) continue;
    name.erase(0, start.size());
    if (const size_t dashes = name.find("--"); dashes != std::string::npos) name.replace(dashes, 2, "/");
    return name;
  }
  return "";
}

void find_in_folder(const std::string& folder, BaseName& base) {
  if (const std::string name = name_in_cache(folder); !name.empty()) {
    base.name = name;
    base.said_by = "the folder's place in a cache of the Hub";
    return;
  }
  const std::string file = folder + "/config.json";
  std::error_code ignored;
  if (!fs::is_regular_file(file, ignored)) return;
  const nlohmann::json config = json_or_discarded(read_file(file)),
                       said = config.is_object() ? config.value("_name_or_path", nlohmann::json()) : nlohmann::json();
  if (!said.is_string() || !is_hub_name(said)) return;
  base.name = said;
  base.said_by = "_name_or_path of " + file;
}

// Returns the text as a JSON string, which is also a Python literal that a user can copy.
std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

bool is_hub_name(const std::string& name) {
  const size_t slash = name.find('/');
  if (slash == std::string::npos || slash == 0 || slash + 1 == name.size() || name[0] == '.' || name[slash + 1] == '.')
    return false;
  const auto is_part = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.';
  };
  return std::all_of(name.begin(), name.begin() + static_cast<int64_t>(slash), is_part) &&
         std::all_of(name.begin() + static_cast<int64_t>(slash) + 1, name.end(), is_part);
}

BaseName base_name_of(const ModelPlace& place) {
  BaseName base = {.name = fs::path(place.path()).filename().string(), .said_by = "", .doubt = ""};
  if (!place.hub_name.empty()) return {.name = place.hub_name, .said_by = "the recipe's model.hub_name", .doubt = ""};
  try {
    std::error_code ignored;
    if (!place.gguf.empty() && fs::is_regular_file(place.gguf, ignored)) find_in_gguf(GgufFile(place.gguf), base);
    if (!place.huggingface.empty()) find_in_folder(place.huggingface, base);
  } catch (const UserError&) {  // a file that can no longer be read yields no name
  }
  return base;
}

std::string base_line(const ModelPlace& place, const std::string& folder) {
  const BaseName base = base_name_of(place);
  const auto load = [&](const std::string& model) {
    return "PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(" + model + "), " + quoted(folder) + ")";
  };
  if (!base.said_by.empty())
    return "base: " + base.name + ", by " + base.said_by + "; load: " + load(quoted(base.name));
  const fs::path path = place.path();
  const std::string local =
      place.gguf.empty() ? quoted(path.string())
                         : quoted(path.parent_path().string()) + ", gguf_file=" + quoted(path.filename().string());
  return "base: " + quoted(base.name) + ", which is no name on the Hugging Face Hub" +
         (base.doubt.empty() ? "" : " (" + base.doubt + ")") + "; load: " + load(local) +
         ", or give model.hub_name in the recipe";
}

}  // namespace reprise
