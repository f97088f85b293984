// Tests the audit's page as text: its data can be read back, whether stored by columns or not, and
// no name breaks the page. audit_page_test.sh opens the page in a browser.
#include "tools/plan/audit/page.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <nlohmann/json.hpp>

namespace reprise {
namespace {

using nlohmann::json;

json small_data(const json& name) {
  const json rows = json::array(
      {{{"op", "conv"}, {"pass", "forward"}, {"link", name}}, {{"op", "conv"}, {"pass", "forward"}, {"link", name}}});
  const json manifest = {{"recipe", {{"name", name}}},
                         {"slots", json::array({{{"id", 0}, {"name", name}, {"shape", {1, 2}}}})},
                         {"actions",
                          json::array({{{"action", "record"}, {"link", 0}}, {{"action", "drop"}, {"boundary", 1}}})},
                         {"programs", json::array({{{"name", "micro_first"}, {"rows", rows}}})}};
  return {{"plans", json::array({manifest})},
          {"shown", 0},
          {"diff", nullptr},
          {"commands", json::array({"reprise plan"})}};
}

std::string part(const std::string& page, const std::string& before, const std::string& after) {
  const size_t first = page.find(before) + before.size();
  return page.substr(first, page.find(after, first) - first);
}

std::string from_base64(const std::string& text) {
  const std::string letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  for (size_t i = 0; i < text.size(); i += 4) {
    uint32_t four = 0, count = 0;
    for (size_t k = 0; k < 4; ++k) {
      four = four << 6 | (text[i + k] == '=' ? 0u : static_cast<uint32_t>(letters.find(text[i + k])));
      count += text[i + k] != '=';
    }
    for (size_t k = 0; k + 1 < count; ++k) bytes += static_cast<char>(four >> (16 - 8 * k));
  }
  return bytes;
}

json data_of(const std::string& page) {
  const std::string packed = from_base64(part(page, "id=\"data\">", "</script>"));
  std::string text(1 << 20, '\0');
  uLongf size = text.size();
  EXPECT_EQ(uncompress(reinterpret_cast<Bytef*>(text.data()), &size, reinterpret_cast<const Bytef*>(packed.data()),
                       packed.size()),
            Z_OK);
  text.resize(size);
  return json::parse(text);
}

json column(const json& table, const std::string& name, size_t row) {
  const json& values = table.at("columns").at(name);
  return values.is_array() ? values.at(row) : values.at("values").at(values.at("index").at(row).get<size_t>());
}

TEST(AuditPage, HoldsItsData) {
  const json data = small_data("net"), shown = data_of(audit_page(data));
  EXPECT_EQ(shown.at("commands"), data.at("commands"));
  const json& plan = data.at("plans").at(0);
  const json& packed = shown.at("plans").at(0);
  EXPECT_EQ(packed.at("programs").at(0).at("rows").at("length"), 2);
  EXPECT_EQ(column(packed.at("programs").at(0).at("rows"), "link", 1), "net");
  EXPECT_EQ(column(packed.at("slots"), "shape", 0), plan.at("slots").at(0).at("shape"));
  EXPECT_EQ(column(packed.at("actions"), "boundary", 1), 1);
  EXPECT_TRUE(column(packed.at("actions"), "boundary", 0).is_null());
}

TEST(AuditPage, NamesRepeatedAreStoredOnce) {
  json rows = json::array();
  for (int i = 0; i < 8; ++i) rows.push_back({{"op", i % 2 == 0 ? "conv" : "relu"}, {"bytes", i}});
  const json table = by_columns(rows);
  EXPECT_EQ(table.at("columns").at("op").at("values").size(), 2u);
  EXPECT_TRUE(table.at("columns").at("bytes").is_array());
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(column(table, "op", i), rows.at(i).at("op"));
  EXPECT_EQ(by_columns(json::array()).at("length"), 0);
}

TEST(AuditPage, NoNameBreaksIt) {
  const size_t scripts = part(audit_page(small_data("net")), "<body>", "</html>").size();
  for (const std::string& name :
       {std::string("</title><script>alert(1)</script>"), std::string("\xff\xfe no UTF-8 \xc3"),
        std::string("@DATA@ @TITLE@"), std::string(3 << 10, '<'), std::string(79, 'x') + "\xe2\x98\x83",
        std::string("a\0b\n", 4)}) {
    const std::string page = audit_page(small_data(name)), title = part(page, "<title>", "</title>");
    EXPECT_EQ(title.find_first_of("<\"\n"), std::string::npos) << title;
    EXPECT_EQ(page.find("alert(1)") == std::string::npos, title.find("alert") == std::string::npos);
    EXPECT_EQ(json(title).dump(), json(title).dump(-1, ' ', false, json::error_handler_t::ignore))
        << "cut within a letter";
    const std::string packed = part(page, "id=\"data\">", "</script>");
    EXPECT_EQ(packed.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="),
              std::string::npos);
    EXPECT_GT(part(page, "<body>", "</html>").size(), scripts - 200);
    EXPECT_EQ(data_of(page).at("commands").at(0), "reprise plan");
  }
}

TEST(AuditPage, NamesNoOtherHost) {
  const std::string page = audit_page(small_data("net"));
  for (const char* const address : {"http:", "https:", "//cdn", "@import", " src=", "url("})
    EXPECT_EQ(page.find(address), std::string::npos) << address;
}

}  // namespace
}  // namespace reprise
