// Byte-pair encoding (Sennrich et al. 2016) over bytes, as in GPT-2, or over characters, as in
// SentencePiece. A step finds the first merge in the list that applies to neighbouring symbols of a
// word, and joins their leftmost pair. Steps are repeated until no merge applies. This code
// determines the ids; the code before it only determines where words end.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tools/files/tokenizer/tokenizer_file.h"

namespace reprise {

// The merges of one vocabulary.
class BytePairs {
 public:
  // Builds the tables of a vocabulary. `bytes` are the bytes of each of its tokens and must outlive
  // this object. Throws UserError if a merge names a token that does not exist.
  BytePairs(const TokenizerFile& file, const std::vector<std::string>& bytes);

  // Appends the ids of one word of fewer than 2^31 bytes. Takes O(n log n) steps for n bytes.
  void encode(std::string_view word, std::vector<int32_t>& ids) const;

 private:
  struct Merge {
    uint64_t pair;  // left id * 2^32 + right id
    uint32_t rank;
    int32_t result;
  };
  static constexpr uint32_t kNoRank = UINT32_MAX;

  void take_bytes(const TokenizerFile& file, const std::unordered_map<std::string_view, int32_t>& id_of_name);
  void take_characters(const TokenizerFile& file);
  void add_merges(const TokenizerFile& file, const std::unordered_map<std::string_view, int32_t>& id_of_name);
  void add_scored_merges(const TokenizerFile& file);
  void reserve(size_t merges);
  Merge& place_for(uint64_t pair);  // returns the entry for this pair, or the free entry in which to store it
  uint64_t place_of(uint64_t pair) const;
  const Merge& find(int32_t left, int32_t right) const;  // returns an entry with rank kNoRank if no merge joins them
  void encode_short(std::string_view word, std::vector<int32_t>& ids) const;
  void encode_long(std::string_view word, std::vector<int32_t>& ids) const;
  // Appends the symbols before any merge: at most one for each byte.
  void append_symbols(std::string_view word, std::vector<int32_t>& ids) const;

  bool by_characters_;
  std::array<int32_t, 256> id_of_byte_;  // id of each byte's token; kLeftOut if it has none
  // Ids of ASCII characters, used if by_characters_; kLeftOut if the character is not a token.
  std::array<int32_t, 128> id_of_ascii_;
  std::unordered_map<uint32_t, int32_t> id_of_character_;  // ids of the other characters
  std::vector<Merge> table_;  // open addressing; its size is a power of two, and it is at most half full
  int shift_ = 0;             // a 64-bit hash shifted right by shift_ is an index into the table
  // Ids of whole words; empty unless words are looked up before merging
  std::unordered_map<std::string_view, int32_t> id_of_word_;
};

}  // namespace reprise
