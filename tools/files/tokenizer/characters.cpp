// Implements characters.h with ICU.
#include "tools/files/tokenizer/characters.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/stringpiece.h>
#include <unicode/uniset.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <new>
#include <utility>
#include <vector>

namespace reprise {
namespace {

size_t ascii_bytes(std::string_view text, size_t at) {
  constexpr uint64_t kTopBits = 0x8080808080808080;
  for (uint64_t eight; at + sizeof eight <= text.size(); at += sizeof eight) {
    std::memcpy(&eight, text.data() + at, sizeof eight);
    if ((eight & kTopBits) != 0) break;
  }
  while (at < text.size() && static_cast<uint8_t>(text[at]) < 0x80) ++at;
  return at;
}

// A range of letters or numbers that Unicode 15.1 or 16.0 added (UnicodeData.txt of 16.0).
struct Range {
  uint32_t first, last;
  CharacterClass kind;
};
constexpr CharacterClass L = CharacterClass::kLetter, N = CharacterClass::kNumber;
constexpr Range kAdded[] = {{0x1C89, 0x1C8A, L},   {0xA7CB, 0xA7CD, L},   {0xA7DA, 0xA7DC, L},   {0x105C0, 0x105F3, L},
                            {0x10D40, 0x10D49, N}, {0x10D4A, 0x10D65, L}, {0x10D6F, 0x10D85, L}, {0x10EC2, 0x10EC4, L},
                            {0x11380, 0x11389, L}, {0x1138B, 0x1138B, L}, {0x1138E, 0x1138E, L}, {0x11390, 0x113B5, L},
                            {0x113B7, 0x113B7, L}, {0x113D1, 0x113D1, L}, {0x113D3, 0x113D3, L}, {0x116D0, 0x116E3, N},
                            {0x11BC0, 0x11BE0, L}, {0x11BF0, 0x11BF9, N}, {0x13460, 0x143FA, L}, {0x16100, 0x1611D, L},
                            {0x16130, 0x16139, N}, {0x16D40, 0x16D6C, L}, {0x16D70, 0x16D79, N}, {0x18CFF, 0x18CFF, L},
                            {0x1CCF0, 0x1CCF9, N}, {0x1E5D0, 0x1E5ED, L}, {0x1E5F0, 0x1E5F0, L}, {0x1E5F1, 0x1E5FA, N},
                            {0x2EBF0, 0x2EE5D, L}};

CharacterClass class_added(uint32_t code) {
  const Range* range = std::lower_bound(std::begin(kAdded), std::end(kAdded), code,
                                        [](const Range& each, uint32_t c) { return each.last < c; });
  return range != std::end(kAdded) && range->first <= code ? range->kind : CharacterClass::kOther;
}

icu::UnicodeSet characters_of_unicode_9() {
  UErrorCode error = U_ZERO_ERROR;
  icu::UnicodeSet characters(u"[:Age=9.0:]", error);
  if (U_FAILURE(error)) throw std::bad_alloc();
  characters.freeze();  // makes look-ups faster
  return characters;
}

}  // namespace

CharacterClass class_of_code(uint32_t code) {
  const auto c = static_cast<UChar32>(code);
  const uint32_t category = U_GET_GC_MASK(c);
  if (category == U_GC_CN_MASK) return class_added(code);
  if ((category & U_GC_L_MASK) != 0) return CharacterClass::kLetter;
  if ((category & U_GC_N_MASK) != 0) return CharacterClass::kNumber;
  return u_isUWhiteSpace(c) ? CharacterClass::kSpace : CharacterClass::kOther;
}

bool is_word_character(uint32_t code) {
  const auto c = static_cast<UChar32>(code);
  return u_isUAlphabetic(c) || (U_GET_GC_MASK(c) & (U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK)) != 0 ||
         u_hasBinaryProperty(c, UCHAR_JOIN_CONTROL);
}

size_t first_byte_not_utf8(std::string_view text) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
  for (size_t at = ascii_bytes(text, 0); at < text.size(); at = ascii_bytes(text, at)) {
    const size_t begin = at;
    UChar32 code;
    U8_NEXT(bytes, at, text.size(), code);
    if (code < 0) return begin;
  }
  return std::string_view::npos;
}

namespace {

const icu::UnicodeSet& unicode_9() {
  static const icu::UnicodeSet kCharacters = characters_of_unicode_9();
  return kCharacters;
}

// Sorts long runs of combining marks before ICU gets them. ICU inserts each mark into its position
// among the marks before it, which takes quadratic time unless they are already in order.
class LongMarks {
 public:
  LongMarks() {
    UErrorCode error = U_ZERO_ERROR;
    form_ = icu::Normalizer2::getNFDInstance(error);
    if (U_FAILURE(error)) throw std::bad_alloc();
  }

  // Returns the text with long runs of marks in order; it is in `buffer` if there are any such
  // runs. Its normal forms are equal to those of `text`.
  std::string_view in_order(std::string_view text, std::string& buffer) {
    size_t kept = 0;  // text before `kept` is in the buffer
    for (size_t at = kLong; at < text.size(); at += kLong) {
      size_t begin = character_before(text, at + 1), end = begin;
      if (!is_mark(text, begin)) continue;
      while (begin > kept && is_mark(text, character_before(text, begin))) begin = character_before(text, begin);
      while (end < text.size() && is_mark(text, end)) end += character_at(text, end).bytes;
      if (end - begin > kLong) {
        if (kept == 0) buffer.clear();
        buffer.append(text.substr(kept, begin - kept));
        append_in_order(text.substr(begin, end - begin), buffer);
        kept = end;
      }
      at = std::max(at, end);
    }
    if (kept == 0) return text;
    buffer.append(text.substr(kept));
    return buffer;
  }

 private:
  static constexpr size_t kLong = 256;  // minimum bytes of a long run

  // Returns the character in normal form D.
  const icu::UnicodeString& parts_of(uint32_t code) {
    const auto c = static_cast<UChar32>(code);
    if (!unicode_9().contains(c) || !form_->getDecomposition(c, parts_)) parts_.setTo(c);
    return parts_;
  }
  bool is_mark(std::string_view text, size_t at) {
    const uint32_t code = character_at(text, at).code;
    return code >= 0x300 && unicode_9().contains(static_cast<UChar32>(code)) &&
           form_->getCombiningClass(parts_of(code).char32At(0)) != 0;
  }
  // Appends the marks in normal form D, ordered by their combining class.
  void append_in_order(std::string_view marks, std::string& to) {
    std::vector<std::pair<uint8_t, UChar32>> codes;  // combining class and character
    for (size_t at = 0; at < marks.size();) {
      const Character next = character_at(marks, at);
      const icu::UnicodeString& parts = parts_of(next.code);
      for (int32_t n = 0; n < parts.length(); n = parts.moveIndex32(n, 1))
        codes.emplace_back(form_->getCombiningClass(parts.char32At(n)), parts.char32At(n));
      at += next.bytes;
    }
    std::stable_sort(codes.begin(), codes.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [ignored, code] : codes) {
      char bytes[U8_MAX_LENGTH];
      size_t count = 0;
      U8_APPEND_UNSAFE(bytes, count, code);
      to.append(bytes, count);
    }
  }

  const icu::Normalizer2* form_;
  icu::UnicodeString parts_;
};

std::string_view normal_form(const icu::Normalizer2& form, std::string_view given, std::string& buffer) {
  UErrorCode error = U_ZERO_ERROR;
  std::string ordered;
  const std::string_view text = LongMarks().in_order(given, ordered);
  const icu::StringPiece piece(text.data(), static_cast<int32_t>(text.size()));
  // If a text is normal in ICU's Unicode, it is also normal in Unicode 9. The characters that
  // Unicode 9 does not have are treated as boundaries, and the parts between them are normal.
  if (form.isNormalizedUTF8(piece, error) && U_SUCCESS(error)) {
    if (text.data() == given.data()) return given;
    buffer = std::move(ordered);
    return buffer;
  }
  buffer.clear();
  icu::StringByteSink<std::string> sink(&buffer);
  error = U_ZERO_ERROR;
  icu::FilteredNormalizer2(form, unicode_9()).normalizeUTF8(0, piece, sink, nullptr, error);
  if (U_FAILURE(error)) throw std::bad_alloc();  // nothing else can fail for a valid text
  return buffer;
}

}  // namespace

std::string_view composed(std::string_view text, std::string& buffer) {
  if (ascii_bytes(text, 0) == text.size()) return text;
  UErrorCode error = U_ZERO_ERROR;
  const icu::Normalizer2* form = icu::Normalizer2::getNFCInstance(error);
  if (U_FAILURE(error)) throw std::bad_alloc();
  return normal_form(*form, text, buffer);
}

std::string_view decomposed(std::string_view text, std::string& buffer) {
  if (ascii_bytes(text, 0) == text.size()) return text;
  UErrorCode error = U_ZERO_ERROR;
  const icu::Normalizer2* form = icu::Normalizer2::getNFDInstance(error);
  if (U_FAILURE(error)) throw std::bad_alloc();
  return normal_form(*form, text, buffer);
}

}  // namespace reprise
