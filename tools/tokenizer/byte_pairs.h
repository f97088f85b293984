// Byte-pair encoding (Sennrich et al. 2016; over bytes as in GPT-2, or over characters as in SentencePiece): of a word's neighbours that
// some merge joins, those of the first merge are joined, the leftmost of them first, until none is left.
// Here because this is the part that decides the ids; what comes before it only says where words end.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tools/tokenizer/tokenizer_file.h"

namespace reprise {

class BytePairs {
 public:
  // `bytes` are those of each of the file's tokens; they must outlive this. Throws UserError for a merge of what is no token.
  BytePairs(const TokenizerFile& file, const std::vector<std::string>& bytes);

  // Appends the ids of one word of fewer than 2^31 bytes, in time n log n of its bytes.
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
  Merge& place_for(uint64_t pair);  // where it stands or may stand
  uint64_t place_of(uint64_t pair) const;
  const Merge& find(int32_t left, int32_t right) const;  // rank kNoRank: nothing joins them
  void encode_short(std::string_view word, std::vector<int32_t>& ids) const;
  void encode_long(std::string_view word, std::vector<int32_t>& ids) const;
  void append_symbols(std::string_view word, std::vector<int32_t>& ids) const;  // what the merges begin with, at most one for each byte

  bool by_characters_;
  std::array<int32_t, 256> id_of_byte_;                      // kLeftOut: no token stands for it
  std::array<int32_t, 128> id_of_ascii_;                     // by_characters_: kLeftOut where the character is no token
  std::unordered_map<uint32_t, int32_t> id_of_character_;    // the others
  std::vector<Merge> table_;                                 // open addressing; a power of two, at most half full
  int shift_ = 0;                        // of 64 bits to a place of the table
  std::unordered_map<std::string_view, int32_t> id_of_word_;  // where whole words are taken
};

}  // namespace reprise
