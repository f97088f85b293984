// ICU's answers to characters.h.
#include "tools/tokenizer/characters.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/stringpiece.h>

#include <algorithm>
#include <cstring>
#include <new>

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

}  // namespace

CharacterClass class_of_code(uint32_t code) {
  const auto c = static_cast<UChar32>(code);
  const uint32_t category = U_GET_GC_MASK(c);
  if ((category & U_GC_L_MASK) != 0) return CharacterClass::kLetter;
  if ((category & U_GC_N_MASK) != 0) return CharacterClass::kNumber;
  return u_isUWhiteSpace(c) ? CharacterClass::kSpace : CharacterClass::kOther;
}

bool is_word_character(uint32_t code) {
  const auto c = static_cast<UChar32>(code);
  return u_isUAlphabetic(c) || (U_GET_GC_MASK(c) & (U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK)) != 0 || u_hasBinaryProperty(c, UCHAR_JOIN_CONTROL);
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

std::string_view composed(std::string_view text, std::string& buffer) {
  if (ascii_bytes(text, 0) == text.size()) return text;
  UErrorCode error = U_ZERO_ERROR;
  const icu::Normalizer2* form = icu::Normalizer2::getNFCInstance(error);
  if (U_FAILURE(error)) throw std::bad_alloc();
  const icu::StringPiece piece(text.data(), static_cast<int32_t>(text.size()));
  if (form->isNormalizedUTF8(piece, error) && U_SUCCESS(error)) return text;
  buffer.clear();
  icu::StringByteSink<std::string> sink(&buffer);
  error = U_ZERO_ERROR;
  form->normalizeUTF8(0, piece, sink, nullptr, error);
  if (U_FAILURE(error)) throw std::bad_alloc();  // of a valid text nothing else can fail
  return buffer;
}

}  // namespace reprise
