// Finds the added tokens in a text: at each place from left to right the longest one that stands there.
// Here because they are cut out before the text is cut into words, and those that control a conversation only where the caller says so.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/tokenizer/tokenizer_file.h"

namespace reprise {

class AddedTokens {
 public:
  struct Match {
    size_t begin, end;
    int32_t id;
  };

  // A text is compared with a token at each of its places, and a tree of them takes some 64 bytes for each byte.
  static constexpr size_t kLongest = 512, kMostNodes = size_t{1} << 22;
  // `text` is what is looked for, at most kLongest bytes; an empty one is never found. The caller asks is_full() before.
  void add(const AddedToken& token, std::string_view text, bool is_control);
  bool is_full() const { return nodes_.size() + kLongest > kMostNodes; }
  bool empty() const { return tokens_.empty(); }

  // The first match at or after `from`, with the white space that it takes; none where there is no further one. The text is UTF-8.
  std::optional<Match> find(std::string_view text, size_t from, bool with_control) const;

 private:
  // A tree of prefixes; node 0 is the empty one.
  struct Node {
    std::vector<std::pair<uint8_t, uint32_t>> next;  // by byte, ascending
    int32_t token = -1;                              // the index of the token that ends here
  };
  struct Token {
    AddedToken token;
    bool is_control;
  };
  const uint32_t* child(uint32_t node, uint8_t byte) const;
  const Token* longest_at(std::string_view text, size_t at, bool with_control, size_t& end) const;

  std::vector<Node> nodes_ = {{}};
  std::vector<Token> tokens_;
  bool begins_[256] = {};  // some token begins with this byte
};

}  // namespace reprise
