// Normalises a text in two passes, each of which reads each character once. If accents are
// stripped, the text is decomposed between the passes.
#include "tools/files/tokenizer/bert_text.h"

#include <unicode/uchar.h>

#include <iterator>

#include "tools/files/io/error.h"
#include "tools/files/tokenizer/characters.h"

namespace reprise {
namespace {

// Returns the general category in Unicode 8, as a mask. The cases are characters whose category has
// changed since Unicode 8 in a way that affects the normalisation: removed characters, accents,
// punctuation.
uint32_t category_in_unicode_8(uint32_t code) {
  switch (code) {
    case 0x166D:
    case 0x111C9: return U_GC_PO_MASK;
    case 0x1734: return U_GC_MN_MASK;
    case 0x1885:
    case 0x1886: return U_GC_LO_MASK;
    case 0xA9BD: return U_GC_MC_MASK;
    default: break;
  }
  UVersionInfo age;
  u_charAge(static_cast<UChar32>(code), age);
  return age[0] <= 8 ? U_GET_GC_MASK(static_cast<UChar32>(code)) : U_GC_CN_MASK;
}

bool is_of_unicode_8(uint32_t code, uint32_t categories) { return (category_in_unicode_8(code) & categories) != 0; }

bool is_cleaned_away(uint32_t code) {
  constexpr uint32_t kReplacement = 0xFFFD;
  if (code == '\t' || code == '\n' || code == '\r') return false;
  if (code < 0x80) return code < ' ' || code == 0x7F;
  return code == kReplacement || is_of_unicode_8(code, U_GC_CC_MASK | U_GC_CF_MASK | U_GC_CO_MASK);
}

bool is_chinese(uint32_t code) {
  constexpr struct {
    uint32_t first, last;
  } kRanges[] = {{0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},   {0x20000, 0x2A6DF},
                 {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF}, {0x2F800, 0x2FA1F}};
  if (code < kRanges[0].first) return false;
  for (const auto& [first, last] : kRanges) {
    if (code >= first && code <= last) return true;
  }
  return false;
}

void append_code(uint32_t code, std::string& to) {
  char bytes[U8_MAX_LENGTH];
  size_t count = 0;
  U8_APPEND_UNSAFE(bytes, count, code);
  to.append(bytes, count);
}

// Returns the lower case of a letter that Unicode 16 or 17 added (UnicodeData.txt) and ICU 72 does
// not have.
uint32_t lowered_since(uint32_t code) {
  constexpr struct {
    uint32_t first, last, small;  // `small` is the lower case of `first`
  } kAdded[] = {{0x1C89, 0x1C89, 0x1C8A},   {0xA7CB, 0xA7CB, 0x264},  {0xA7CC, 0xA7CC, 0xA7CD},
                {0xA7CE, 0xA7CE, 0xA7CF},   {0xA7D2, 0xA7D2, 0xA7D3}, {0xA7D4, 0xA7D4, 0xA7D5},
                {0xA7DA, 0xA7DA, 0xA7DB},   {0xA7DC, 0xA7DC, 0x19B},  {0x10D50, 0x10D65, 0x10D70},
                {0x16EA0, 0x16EB8, 0x16EBB}};
  for (const auto& [first, last, small] : kAdded) {
    if (code >= first && code <= last) return code - first + small;
  }
  return code;
}

uint32_t lowered(uint32_t code) {
  const auto c = static_cast<UChar32>(code);
  return U_GET_GC_MASK(c) == U_GC_CN_MASK ? lowered_since(code) : static_cast<uint32_t>(u_tolower(c));
}

void append_lowered(uint32_t code, std::string& to) {
  constexpr uint32_t kDottedI = 0x130;
  if (code < 0x80) return to.push_back(static_cast<char>(code >= 'A' && code <= 'Z' ? code - 'A' + 'a' : code));
  if (code == kDottedI) return void(to += "i\u0307");  // the only character whose lower case is two characters
  append_code(lowered(code), to);
}

std::string cleaned(const BertRules& rules, std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Character next = character_at(text, at);
    const std::string_view bytes = text.substr(at, next.bytes);
    at += next.bytes;
    if (rules.cleans && is_cleaned_away(next.code)) continue;
    if (rules.cleans && next.kind == CharacterClass::kSpace) {
      result.push_back(' ');
    } else if (rules.parts_chinese && is_chinese(next.code)) {
      result.append(" ").append(bytes).append(" ");
    } else {
      result.append(bytes);
    }
  }
  return result;
}

}  // namespace

std::string_view bert_text(const BertRules& rules, std::string_view text, std::string& buffer) {
  const std::string clean = cleaned(rules, text);
  if (clean.size() > INT32_MAX)
    throw UserError("text: " + std::to_string(clean.size()) +
                    " bytes when Chinese characters are parted; give it in pieces");
  std::string parts;
  const std::string_view form = rules.strips_accents ? decomposed(clean, parts) : clean;
  buffer.clear();
  for (size_t at = 0; at < form.size();) {
    const Character next = character_at(form, at);
    const bool is_accent = rules.strips_accents && next.code >= 0x80 && is_of_unicode_8(next.code, U_GC_MN_MASK);
    if (!is_accent && rules.lowers) append_lowered(next.code, buffer);
    if (!is_accent && !rules.lowers) buffer.append(form.substr(at, next.bytes));
    at += next.bytes;
  }
  return buffer;
}

bool is_bert_punctuation(uint32_t code) {
  if (code < 0x80) return code > ' ' && code < 0x7F && kAsciiClasses[code] == CharacterClass::kOther;
  return is_of_unicode_8(code, U_GC_P_MASK);
}

}  // namespace reprise
