// Makes all printed text safe for a terminal. About a hundred places print text from files, so this
// module escapes the text of all of them in one place.
#pragma once

#include <memory>
#include <string>

namespace reprise {

class ShownBuffer;

// While the object exists, escapes all text on std::cout and std::cerr (escaped_text, but line ends
// and tabs are kept). Each main function has one object. Words of more than 200 characters are
// shortened on std::cerr (shortened_words), and each line is written there by one call when it is
// complete, or at std::flush. The escapes are those of JSON, so that JSON on stdout keeps its
// meaning. A character that is printed in pieces is buffered until its last byte. Code that prints
// terminal control codes must use ::write, with text from shown_text.
class ShownOutput {
 public:
  ShownOutput();
  ~ShownOutput();
  ShownOutput(const ShownOutput&) = delete;
  ShownOutput& operator=(const ShownOutput&) = delete;

 private:
  std::unique_ptr<ShownBuffer> output_, messages_;
};

// Prints "warning: WORDS" as one line on stderr (shown_line).
void warn(const std::string& words);

// Disables escaping on std::cout from now on, unless stdout is a terminal. It is for output that is
// data, for example decoded tokens.
void pass_exact_output();

}  // namespace reprise
