// Puts the data into the page of page.h.
#include "tools/audit/page.h"

#include <zlib.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <unordered_map>

namespace reprise {

using nlohmann::json;

extern const char kPageText[];  // page.html with its styles and scripts, from the build

namespace {

std::string text_of(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

json column_of(const json& objects, const std::string& name) {
  json all = json::array(), values = json::array(), index = json::array();
  std::unordered_map<std::string, size_t> seen;
  for (const json& object : objects) {
    const auto field = object.find(name);
    const json value = field == object.end() ? json(nullptr) : *field;
    const auto [place, is_new] = seen.emplace(text_of(value), values.size());
    if (is_new) values.push_back(value);
    index.push_back(place->second);
    all.push_back(value);
  }
  if (2 * values.size() > all.size()) return all;
  return {{"values", std::move(values)}, {"index", std::move(index)}};
}

json manifest_by_columns(json manifest) {
  for (const char* list : {"state", "carried", "slots", "disk", "host", "actions", "regions"}) {
    if (manifest.contains(list)) manifest[list] = by_columns(manifest[list]);
  }
  for (json& program : manifest.at("programs")) program["rows"] = by_columns(program.at("rows"));
  return manifest;
}

// zlib's format, which a browser calls "deflate".
std::string deflated(const std::string& text) {
  uLongf size = compressBound(static_cast<uLong>(text.size()));
  std::string packed(size, '\0');
  const int answer = compress2(reinterpret_cast<Bytef*>(packed.data()), &size, reinterpret_cast<const Bytef*>(text.data()), static_cast<uLong>(text.size()), 9);
  if (answer != Z_OK) throw std::runtime_error("zlib cannot deflate the page's data");
  packed.resize(size);
  return packed;
}

std::string base64(const std::string& bytes) {
  const char* const kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t three = 0;
    for (size_t k = 0; k < 3; ++k) three = three << 8 | (i + k < bytes.size() ? static_cast<uint8_t>(bytes[i + k]) : 0u);
    for (size_t k = 0; k < 4; ++k) text += i + k <= bytes.size() ? kLetters[three >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

// The title names the recipe, whose name may be anything: at most 80 bytes of it, escaped.
std::string title_of(const json& data) {
  const json& recipe = data.at("plans").at(data.value("shown", size_t{0})).at("recipe");
  std::string name = json::parse(text_of(recipe.value("name", json("a plan")))).get<std::string>();
  size_t length = std::min(name.size(), size_t{80});
  while (length < name.size() && (static_cast<uint8_t>(name[length]) & 0xc0) == 0x80) --length;  // not within a letter
  name.resize(length);
  std::string title;
  for (const char c : name) {
    const char* const escaped = c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : c == '"' ? "&quot;" : nullptr;
    if (escaped != nullptr) title += escaped;
    else title += static_cast<uint8_t>(c) < 0x20 || c == 0x7f ? ' ' : c;
  }
  return title + ": memory audit";
}

void put_in_place(std::string& page, const std::string& mark, const std::string& text) {
  const size_t at = page.find(mark);
  if (at == std::string::npos) throw std::logic_error("the page lacks " + mark);
  page.replace(at, mark.size(), text);
}

}  // namespace

json by_columns(const json& objects) {
  std::set<std::string> names;
  for (const json& object : objects) {
    for (const auto& [name, value] : object.items()) names.insert(name);
  }
  json columns = json::object();
  for (const std::string& name : names) columns[name] = column_of(objects, name);
  return {{"length", objects.size()}, {"columns", std::move(columns)}};
}

std::string audit_page(const json& data) {
  json packed = data;
  for (json& manifest : packed.at("plans")) manifest = manifest_by_columns(std::move(manifest));
  std::string page = kPageText;
  put_in_place(page, "@DATA@", base64(deflated(text_of(packed))));  // first: a title could hold this mark
  put_in_place(page, "@TITLE@", title_of(data));
  return page;
}

}  // namespace reprise
