// See shown_text.h. UTF-8 is decoded here, because bytes that are not UTF-8 must be shown, not
// refused.
#include "tools/files/io/shown_text.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>

namespace reprise {
namespace {

struct Character {
  uint32_t code = 0;
  size_t bytes = 0;  // bytes of the character; 0 if it is not UTF-8
};

// Returns the character that begins at `at`, by the rules of RFC 3629: no surrogates, no overlong
// forms.
Character character_at(std::string_view text, size_t at) {
  const auto byte = [&](size_t n) { return static_cast<uint32_t>(static_cast<unsigned char>(text[at + n])); };
  const uint32_t first = byte(0);
  if (first < 0x80) return {first, 1};
  const size_t bytes = first >= 0xf0 && first <= 0xf4  ? 4
                       : first >= 0xe0 && first < 0xf0 ? 3
                       : first >= 0xc2 && first < 0xe0 ? 2
                                                       : 0;
  if (bytes == 0 || text.size() - at < bytes) return {};
  uint32_t code = first & (0xffu >> (bytes + 1));
  for (size_t n = 1; n < bytes; ++n) {
    if ((byte(n) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(n) & 0x3f);
  }
  constexpr uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool is_surrogate = code >= 0xd800 && code < 0xe000;
  if (code < kSmallest[bytes] || code > 0x10ffff || is_surrogate) return {};
  return {code, bytes};
}

// True if a terminal interprets the character, or if the character hides or reorders other
// characters. This is not the case for the joiners U+200C and U+200D, which Persian, Hindi and
// emoji need.
bool is_hidden(uint32_t code) {
  if (code < 0x20 || (code >= 0x7f && code < 0xa0)) return true;
  if (code >= 0xe0000 && code < 0xe0080) return true;  // tags
  return code == 0x00ad || code == 0x061c || code == 0x180e || code == 0x200b || code == 0x200e || code == 0x200f ||
         (code >= 0x2028 && code <= 0x202e) || (code >= 0x2060 && code <= 0x206f) || code == 0xfeff ||
         (code >= 0xfff9 && code <= 0xfffb);
}

std::string escape_of(uint32_t code) {
  char text[16];
  if (code < 0x10000) {
    std::snprintf(text, sizeof text, "\\u%04x", code);
  } else {
    std::snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xd800 + ((code - 0x10000) >> 10),
                  0xdc00 + ((code - 0x10000) & 0x3ff));
  }
  return text;
}

// Calls use(text) for each character, escaped if necessary, until `use` returns false.
template <typename Use>
void for_each_shown(std::string_view text, std::string_view kept, const Use& use) {
  for (size_t at = 0; at < text.size();) {
    const Character character = character_at(text, at);
    const bool stays =
        character.bytes != 0 &&
        (!is_hidden(character.code) || (character.bytes == 1 && kept.find(text[at]) != std::string_view::npos));
    char byte[8];
    std::snprintf(byte, sizeof byte, "\\x%02x", static_cast<unsigned>(static_cast<unsigned char>(text[at])));
    const std::string shown = stays                  ? std::string(text.substr(at, character.bytes))
                              : character.bytes == 0 ? std::string(byte)
                                                     : escape_of(character.code);
    if (!use(shown)) return;
    at += character.bytes == 0 ? 1 : character.bytes;
  }
}

}  // namespace

std::string escaped_text(std::string_view text, std::string_view kept) {
  std::string out;
  for_each_shown(text, kept, [&](const std::string& shown) {
    out += shown;
    return true;
  });
  return out;
}

std::string shown_text(std::string_view text, size_t longest) {
  std::string out;
  size_t characters = 0;
  for_each_shown(text, "", [&](const std::string& shown) {
    if (++characters > longest) {
      out += "...";
      return false;
    }
    out += shown;
    return true;
  });
  return out;
}

std::string shortened_words(std::string_view text) {
  constexpr size_t kLongest = 200, kBegin = 120, kEnd = 77;
  const auto is_of_word = [](char c) { return c > ' ' && c < 0x7f; };
  std::string out;
  for (auto at = text.begin(); at != text.end();) {
    const auto word = std::find_if(at, text.end(), is_of_word), end = std::find_if_not(word, text.end(), is_of_word);
    out.append(at, word);
    if (static_cast<size_t>(end - word) <= kLongest) {
      out.append(word, end);
    } else {
      out.append(word, word + kBegin).append("...").append(end - kEnd, end);
    }
    at = end;
  }
  return out;
}

size_t unfinished_bytes(std::string_view text) {
  for (size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if (byte < 0x80) return 0;
    if (byte >= 0xc0) return back < (byte >= 0xf0 ? 4u : byte >= 0xe0 ? 3u : 2u) ? back : 0;
  }
  return 0;
}

std::string shown_line(std::string_view text) {
  constexpr size_t kLongest = 1200;
  const std::string shown = shortened_words(escaped_text(text));
  if (shown.size() <= kLongest) return shown;
  const auto is_inside_character = [&](size_t at) { return (static_cast<unsigned char>(shown[at]) & 0xc0) == 0x80; };
  size_t end = kLongest / 2, begin = shown.size() - kLongest / 2;
  while (end > 0 && is_inside_character(end)) --end;
  while (begin < shown.size() && is_inside_character(begin)) ++begin;
  return shown.substr(0, end) + " ... " + shown.substr(begin);
}

}  // namespace reprise
