// Token files: little-endian integers of two or four bytes, or any file as text whose bytes are the
// tokens. The samples are windows of one long sequence of tokens.
#include <algorithm>
#include <cstring>

#include "tools/files/io/error.h"
#include "tools/files/io/file_kind.h"
#include "tools/files/io/input_file.h"
#include "tools/run/data/held_out.h"
#include "tools/run/data/sample_order.h"
#include "tools/run/data/sources.h"
#include "tools/run/data/token_window.h"

namespace reprise {
namespace {

// Returns token `index` of a file's bytes: little-endian, at any alignment.
template <typename Stored>
uint32_t stored_token(const unsigned char* stored, uint64_t index) {
  Stored value;
  std::memcpy(&value, stored + index * sizeof value, sizeof value);
  return value;
}

// Calls visit(Stored{}) with the integer type of `token_bytes` bytes, so that loops over tokens are
// compiled for each type.
template <typename Visit>
void with_stored_type(uint64_t token_bytes, const Visit& visit) {
  switch (token_bytes) {
    case 1: return visit(uint8_t{});
    case 2: return visit(uint16_t{});
    default: return visit(uint32_t{});
  }
}

// Returns the path of the token file. Throws UserError if the file is of another kind; this is
// checked before its length.
std::string path_of_tokens(const Recipe& recipe, const DataPart& part) {
  if (recipe.data.kind == DataSource::Kind::kText) {
    refuse_other_kinds(InputFile(part.path()), "a text in UTF-8", {FileKind::kHtml, FileKind::kXml});
  } else {
    refuse_other_kinds(InputFile(part.path()), "a row of raw integers",
                       {FileKind::kUtf16, FileKind::kUtf32, FileKind::kPickle});
  }
  return part.path();
}

class TokenDataset : public Dataset {
 public:
  TokenDataset(const Recipe& recipe, Split split, const DataPart& part, const DataLook* look)
      : part_(part), file_(path_of_tokens(recipe, part)),
        token_bytes_(recipe.data.kind == DataSource::Kind::kText ? 1 : static_cast<uint64_t>(recipe.data.token_bytes)),
        sequence_(static_cast<uint64_t>(recipe.sequence)),
        window_(sequence_),
        stored_((sequence_ + 1) * token_bytes_),
        order_(recipe, split, part_.size(count_windows())) {
    const uint64_t looked_at = std::min(file_.bytes(), look != nullptr ? look->max_bytes : UINT64_MAX);
    require_vocabulary(static_cast<uint32_t>(describe_model(recipe.model).vocabulary), looked_at / token_bytes_);
    set_size(recipe, part_.size(count_windows()), sequence_);
    fingerprint_ = fingerprint_of(size_, "", {part.path()});
  }

  uint64_t fill(uint64_t step, uint64_t micro, BatchSink& sink) override {
    uint64_t real = 0;
    for (uint64_t b = 0; b < batch_; ++b) {
      std::optional<uint64_t> sample = order_.sample_at(step, micro, b);
      if (sample) sample = part_.sample(*sample);
      window_.add_to(sink, sample,
                     [this](uint64_t first, uint64_t count, int32_t* to) { read_tokens(first, count, to); });
      real += sample.has_value();
    }
    return real;
  }

 private:
  // Reads `count` tokens, at most sequence + 1, from token `first` on.
  void read_tokens(uint64_t first, uint64_t count, int32_t* to) {
    file_.read(first * token_bytes_, stored_.data(), count * token_bytes_);
    with_stored_type(token_bytes_, [&](auto type) {
      for (uint64_t i = 0; i < count; ++i)
        to[i] = static_cast<int32_t>(stored_token<decltype(type)>(stored_.data(), i));
    });
  }

  uint64_t count_windows() const {
    if (file_.bytes() % token_bytes_ != 0) {
      throw UserError(file_.path() + ": truncated: " + std::to_string(file_.bytes()) +
                      " bytes are no multiple of data.token_bytes (" + std::to_string(token_bytes_) + ")");
    }
    const uint64_t tokens = file_.bytes() / token_bytes_;
    if (tokens < sequence_ + 1) {
      throw UserError(file_.path() + ": too short: " + std::to_string(tokens) + " tokens, but one sample of sequence " +
                      std::to_string(sequence_) + " needs " + std::to_string(sequence_ + 1));
    }
    return (tokens - 1) / sequence_;
  }

  // Throws UserError if one of the first `tokens` tokens is not in the vocabulary.
  void require_vocabulary(uint32_t vocabulary, uint64_t tokens) const {
    constexpr uint64_t kPiece = uint64_t{1} << 15;  // number of tokens that are read at once
    std::vector<unsigned char> piece(std::min(kPiece, tokens) * token_bytes_);
    for (uint64_t at = 0; at < tokens; at += kPiece) {
      const uint64_t count = std::min(kPiece, tokens - at);
      file_.read(at * token_bytes_, piece.data(), count * token_bytes_);
      with_stored_type(token_bytes_, [&](auto type) {
        uint32_t largest = 0;
        for (uint64_t i = 0; i < count; ++i) largest = std::max(largest, stored_token<decltype(type)>(piece.data(), i));
        for (uint64_t i = 0; i < count && largest >= vocabulary; ++i) {
          const uint32_t value = stored_token<decltype(type)>(piece.data(), i);
          if (value >= vocabulary) refuse_token(at + i, value, vocabulary);
        }
      });
    }
  }

  [[noreturn]] void refuse_token(uint64_t index, uint32_t value, uint32_t vocabulary) const {
    throw UserError(file_.path() + ": token " + std::to_string(index) + " is " + std::to_string(value) +
                    ", must be from 0 to " + std::to_string(vocabulary - 1) + " (model.vocab_size is " +
                    std::to_string(vocabulary) + ")");
  }

  const DataPart part_;
  InputFile file_;
  uint64_t token_bytes_, sequence_;
  TokenWindow window_;
  std::vector<unsigned char> stored_;  // tokens of one sample and the next token, as the file stores them
  SampleOrder order_;
};

}  // namespace

std::unique_ptr<Dataset> open_tokens(const Recipe& recipe, Split split, DataLook* look) {
  return open_part<TokenDataset>(recipe, split, look);
}

}  // namespace reprise
