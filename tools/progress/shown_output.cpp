// See shown_output.h. Runs of plain text pass without a copy and without the heap.
#include "tools/progress/shown_output.h"

#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <mutex>
#include <streambuf>
#include <string>
#include <string_view>

#include "tools/formats/shown_text.h"

namespace reprise {
namespace {

bool is_plain(char c) { return (c >= 0x20 && c < 0x7f) || c == '\n' || c == '\t'; }

}  // namespace

// Stands in front of the buffer that a stream had. Threads may print at the same time, as on std::cout and std::cerr without it.
class ShownBuffer : public std::streambuf {
 public:
  ShownBuffer(std::ostream& stream, bool shortens) : stream_(stream), to_(stream.rdbuf(this)), shortens_(shortens) {}
  ~ShownBuffer() override {
    write_held();
    stream_.rdbuf(to_);
  }
  ShownBuffer(const ShownBuffer&) = delete;
  ShownBuffer& operator=(const ShownBuffer&) = delete;

  void pass_all() {
    const std::lock_guard lock(mutex_);
    write_held();
    passes_all_ = true;
  }

 protected:
  int_type overflow(int_type c) override {
    if (traits_type::eq_int_type(c, traits_type::eof())) return traits_type::not_eof(c);
    const char byte = traits_type::to_char_type(c);
    return xsputn(&byte, 1) == 1 ? c : traits_type::eof();
  }
  std::streamsize xsputn(const char* text, std::streamsize count) override {
    const std::lock_guard lock(mutex_);
    return take({text, static_cast<size_t>(count)}) ? count : 0;
  }
  int sync() override { return to_->pubsync(); }

 private:
  bool put(std::string_view text) { return to_->sputn(text.data(), static_cast<std::streamsize>(text.size())) == static_cast<std::streamsize>(text.size()); }

  bool take(std::string_view text) {
    if (passes_all_) return put(text);
    while (!held_.empty() && !text.empty()) {  // at most three bytes complete the character, or show that it is none
      held_ += text.front();
      text.remove_prefix(1);
      const size_t rest = unfinished_bytes(held_);
      if (!write_shown(std::string_view(held_).substr(0, held_.size() - rest))) return false;
      held_.erase(0, held_.size() - rest);
    }
    const size_t rest = unfinished_bytes(text);
    held_ += text.substr(text.size() - rest);
    return write_shown(text.substr(0, text.size() - rest));
  }

  bool write_shown(std::string_view text) {
    constexpr size_t kLongWord = 200;
    if (shortens_ && text.size() > kLongWord) return put(shortened_words(escaped_text(text, "\n\t")));
    for (auto at = text.begin(); at != text.end();) {
      const auto special = std::find_if_not(at, text.end(), is_plain);
      const auto plain = std::find_if(special, text.end(), is_plain);
      if (special != at && !put({at, special})) return false;
      if (plain != special && !put(escaped_text({special, plain}))) return false;
      at = plain;
    }
    return true;
  }

  void write_held() {
    (void)write_shown(held_);
    held_.clear();
  }

  std::ostream& stream_;
  std::streambuf* const to_;
  const bool shortens_;  // long words, which are names of a file: of messages, which are for persons alone
  std::mutex mutex_;
  std::string held_;  // the begin of a character; at most three bytes, so never on the heap
  bool passes_all_ = false;
};

ShownOutput::ShownOutput() : output_(std::make_unique<ShownBuffer>(std::cout, false)), messages_(std::make_unique<ShownBuffer>(std::cerr, true)) {}
ShownOutput::~ShownOutput() = default;

void warn(const std::string& words) { std::cerr << "warning: " << shown_line(words) << "\n"; }

void pass_exact_output() {
  auto* const buffer = dynamic_cast<ShownBuffer*>(std::cout.rdbuf());
  if (buffer != nullptr && ::isatty(STDOUT_FILENO) != 1) buffer->pass_all();
}

}  // namespace reprise
