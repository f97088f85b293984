// Token files: little-endian integers of two or four bytes, or any file as text, whose bytes are the tokens.
// Here because a language model's batch is nothing but windows of one long row of numbers.
#include <algorithm>

#include "tools/data/sample_order.h"
#include "tools/data/sources.h"
#include "tools/data/token_window.h"
#include "tools/formats/error.h"
#include "tools/formats/input_file.h"

namespace reprise {
namespace {

class TokenDataset : public Dataset {
 public:
  TokenDataset(const Recipe& recipe, Split split, const std::string& path)
      : file_(path),
        token_bytes_(recipe.data.kind == DataSource::Kind::kText ? 1 : static_cast<uint64_t>(recipe.data.token_bytes)),
        sequence_(static_cast<uint64_t>(recipe.sequence)),
        window_(sequence_),
        stored_((sequence_ + 1) * token_bytes_),
        order_(recipe, split, count_windows()) {
    require_vocabulary(static_cast<uint32_t>(describe_model(recipe.model).vocabulary));
    size_ = count_windows();
    batch_ = static_cast<uint64_t>(recipe.batch);
  }

  uint64_t fill(uint64_t step, uint64_t micro, BatchSink& sink) override {
    uint64_t real = 0;
    for (uint64_t b = 0; b < batch_; ++b) {
      const std::optional<uint64_t> sample = order_.sample_at(step, micro, b);
      const uint64_t first = sample.value_or(0) * sequence_;
      if (sample) file_.read(first * token_bytes_, stored_.data(), stored_.size());
      window_.add_to(sink, sample, [this, first](uint64_t index) { return static_cast<int32_t>(token(stored_.data(), index - first)); });
      real += sample.has_value();
    }
    return real;
  }

 private:
  uint32_t token(const unsigned char* stored, uint64_t index) const {
    const unsigned char* bytes = stored + index * token_bytes_;
    uint32_t value = bytes[0];
    if (token_bytes_ >= 2) value |= uint32_t{bytes[1]} << 8;
    if (token_bytes_ == 4) value |= uint32_t{bytes[2]} << 16 | uint32_t{bytes[3]} << 24;
    return value;
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

  void require_vocabulary(uint32_t vocabulary) const {
    constexpr uint64_t kPiece = uint64_t{1} << 18;  // tokens
    const uint64_t tokens = file_.bytes() / token_bytes_;
    std::vector<unsigned char> piece(std::min(kPiece, tokens) * token_bytes_);
    for (uint64_t at = 0; at < tokens; at += kPiece) {
      const uint64_t count = std::min(kPiece, tokens - at);
      file_.read(at * token_bytes_, piece.data(), count * token_bytes_);
      for (uint64_t i = 0; i < count; ++i) {
        if (const uint32_t value = token(piece.data(), i); value >= vocabulary) refuse_token(at + i, value, vocabulary);
      }
    }
  }

  [[noreturn]] void refuse_token(uint64_t index, uint32_t value, uint32_t vocabulary) const {
    throw UserError(file_.path() + ": token " + std::to_string(index) + " is " + std::to_string(value) + ", must be from 0 to " +
                    std::to_string(vocabulary - 1) + " (model.vocab_size is " + std::to_string(vocabulary) + ")");
  }

  InputFile file_;
  uint64_t token_bytes_, sequence_;
  TokenWindow window_;
  std::vector<unsigned char> stored_;  // one sample's tokens and the one behind them, as the file has them
  SampleOrder order_;
};

}  // namespace

std::unique_ptr<Dataset> open_tokens(const Recipe& recipe, Split split) {
  if (split == Split::kTraining) return std::make_unique<TokenDataset>(recipe, split, recipe.data.path);
  if (recipe.data.eval_path.empty()) return nullptr;
  return std::make_unique<TokenDataset>(recipe, split, recipe.data.eval_path);
}

}  // namespace reprise
