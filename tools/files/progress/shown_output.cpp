// See shown_output.h. Plain text is passed on without a copy and without heap memory.
#include "tools/files/progress/shown_output.h"

#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <mutex>
#include <streambuf>
#include <string>
#include <string_view>

#include "tools/files/io/shown_text.h"

namespace reprise {
namespace {

bool is_plain(char c) { return (c >= 0x20 && c < 0x7f) || c == '\n' || c == '\t'; }

}  // namespace

// Replaces the buffer of a stream and forwards the stream's text, made safe, to the old buffer.
// Several threads may print at the same time, as with std::cout and std::cerr.
class ShownBuffer : public std::streambuf {
 public:
  ShownBuffer(std::ostream& stream, bool is_messages)
      : stream_(stream), to_(stream.rdbuf(this)), is_messages_(is_messages) {}
  ~ShownBuffer() override {
    write_pending();
    write_line();
    stream_.rdbuf(to_);
  }
  ShownBuffer(const ShownBuffer&) = delete;
  ShownBuffer& operator=(const ShownBuffer&) = delete;

  void pass_all() {
    const std::lock_guard lock(mutex_);
    write_pending();
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
  int sync() override {
    const std::lock_guard lock(mutex_);
    const bool is_written = write_line();
    return to_->pubsync() == 0 && is_written ? 0 : -1;
  }

 private:
  bool write(std::string_view text) {
    return to_->sputn(text.data(), static_cast<std::streamsize>(text.size())) ==
           static_cast<std::streamsize>(text.size());
  }

  bool write_line() {
    const size_t length = line_length_;
    line_length_ = 0;
    return length == 0 || write({line_, length});
  }

  // Writes the complete lines of a message with one call, so that a signal handler or another
  // process cannot write into the middle of a line.
  bool put(std::string_view text) {
    if (!is_messages_) return write(text);
    const size_t complete = text.rfind('\n') + 1;  // 0 if no line ends here
    const bool fits = line_length_ + text.size() <= sizeof line_;
    if (!fits && !write_line()) return false;
    if (text.size() > sizeof line_) return write(text);
    std::copy(text.begin(), text.end(), line_ + line_length_);
    line_length_ += text.size();
    if (complete == 0) return true;
    const size_t rest = text.size() - complete, written = line_length_ - rest;
    const bool is_written = write({line_, written});
    std::copy(line_ + written, line_ + line_length_, line_);
    line_length_ = rest;
    return is_written;
  }

  bool take(std::string_view text) {
    if (passes_all_) return put(text);
    // The loop ends after at most three more bytes: they complete the character or show that it is
    // invalid.
    while (!held_.empty() && !text.empty()) {
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
    if (is_messages_ && text.size() > kLongWord) return put(shortened_words(escaped_text(text, "\n\t")));
    for (auto at = text.begin(); at != text.end();) {
      const auto special = std::find_if_not(at, text.end(), is_plain);
      const auto plain = std::find_if(special, text.end(), is_plain);
      if (special != at && !put({at, special})) return false;
      if (plain != special && !put(escaped_text({special, plain}))) return false;
      at = plain;
    }
    return true;
  }

  void write_pending() {
    (void)write_shown(held_);
    held_.clear();
  }

  std::ostream& stream_;
  std::streambuf* const to_;
  // True for messages, which only people read: long words, such as names of files, are shortened,
  // and a line is written when it is complete.
  const bool is_messages_;
  char line_[4096];  // text of a message that is not written yet, because its line is not complete
  size_t line_length_ = 0;
  std::mutex mutex_;
  std::string held_;  // the bytes of an incomplete character: at most three, which need no heap memory
  bool passes_all_ = false;
};

ShownOutput::ShownOutput()
    : output_(std::make_unique<ShownBuffer>(std::cout, false)),
      messages_(std::make_unique<ShownBuffer>(std::cerr, true)) {
  std::cerr << std::nounitbuf;
}
ShownOutput::~ShownOutput() { std::cerr << std::unitbuf; }

void warn(const std::string& words) { std::cerr << "warning: " << shown_line(words) << "\n"; }

void pass_exact_output() {
  auto* const buffer = dynamic_cast<ShownBuffer*>(std::cout.rdbuf());
  if (buffer != nullptr && ::isatty(STDOUT_FILENO) != 1) buffer->pass_all();
}

}  // namespace reprise
