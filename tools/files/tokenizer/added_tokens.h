// Finds the added tokens in a text: from left to right, the longest token at each position. They
// are cut out before the text is cut into words. Control tokens, which structure a conversation,
// are found only if the caller allows it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/files/tokenizer/tokenizer_file.h"

namespace reprise {

// The set of added tokens of a tokenizer.
class AddedTokens {
 public:
  struct Match {
    size_t begin, end;  // range that includes the white space around the token, if the token takes it
    int32_t id;
    size_t text_begin, text_end;  // range of the token itself
  };
  // Decides whether bytes [begin, end) of the text may be read as control token `id`; true: they
  // may.
  using ControlFilter = std::function<bool(size_t begin, size_t end, int32_t id)>;

  // Limits. kLongest: bytes of a token, because it is compared at each position of a text.
  // kMaxNodes: nodes in the tree of prefixes; a node has about 64 bytes.
  static constexpr size_t kLongest = 512, kMaxNodes = size_t{1} << 22;
  // Adds a token that is found as `text`, at most kLongest bytes; an empty text is never found.
  // Requires !is_full().
  void add(const AddedToken& token, std::string_view text, bool is_control);
  bool is_full() const { return nodes_.size() + kLongest > kMaxNodes; }

  // Returns the first match at or after `from`, with the white space that it includes; none if
  // there is no more. The text is UTF-8. Control tokens are found only if `with_control`, and only
  // where `may_be`, if given, returns true.
  std::optional<Match> find(std::string_view text, size_t from, bool with_control,
                            const ControlFilter& may_be = {}) const;

 private:
  // A node of the tree of prefixes; node 0 is the empty prefix.
  struct Node {
    std::vector<std::pair<uint8_t, uint32_t>> next;  // (byte, index of the child node), ascending by byte
    int32_t token = -1;                              // index in tokens_ of the token that ends here; -1: none
  };
  struct Token {
    AddedToken token;
    bool is_control;
  };
  const uint32_t* child(uint32_t node, uint8_t byte) const;
  const Token* longest_at(std::string_view text, size_t at, bool with_control, size_t& end) const;

  std::vector<Node> nodes_ = {{}};
  std::vector<Token> tokens_;
  bool begins_[256] = {};  // true: a token begins with this byte
};

}  // namespace reprise
