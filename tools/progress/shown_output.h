// Prints text as a terminal may show it.
// Here because about a hundred places print text of files, and a rule that each of them must follow would be forgotten in one.
#pragma once

#include <memory>
#include <string>

namespace reprise {

class ShownBuffer;

// Escapes what is printed on std::cout and std::cerr (escaped_text, except line ends and tabs) from its making to its end; each main function
// holds one. Words of more than 200 characters are shortened on std::cerr (shortened_words). Escapes are those of JSON, so JSON on stdout keeps its meaning. A character whose bytes are printed in pieces is held until its
// last byte. Terminal control that is wanted is written by ::write, and the text in it by shown_text.
class ShownOutput {
 public:
  ShownOutput();
  ~ShownOutput();
  ShownOutput(const ShownOutput&) = delete;
  ShownOutput& operator=(const ShownOutput&) = delete;

 private:
  std::unique_ptr<ShownBuffer> output_, messages_;
};

// Prints "warning: WORDS" on stderr, as one line (shown_line).
void warn(const std::string& words);

// Lets every byte pass that is printed on std::cout from here on, unless stdout is a terminal: for output that is data, as decoded tokens are.
void pass_exact_output();

}  // namespace reprise
