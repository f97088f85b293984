// Tests how a message shows text from a file: tools/files/io/shown_text.h, and the one line of a
// UserError.
#include "tools/files/io/shown_text.h"

#include <gtest/gtest.h>

#include "tools/files/io/error.h"

namespace reprise {
namespace {

TEST(ShownText, KeepsTextThatPeopleRead) {
  EXPECT_EQ(shown_text("layer.0/conv \"x\""), "layer.0/conv \"x\"");
  EXPECT_EQ(shown_text("Größe 尺寸 😀"), "Größe 尺寸 😀");
}

TEST(ShownText, EscapesWhatATerminalObeys) {
  EXPECT_EQ(shown_text("\x1b]0;title\x07"), "\\u001b]0;title\\u0007");
  EXPECT_EQ(shown_text("a\r\nb\tc\x7f"), "a\\u000d\\u000ab\\u0009c\\u007f");
  EXPECT_EQ(shown_text(std::string("a\0b", 3)), "a\\u0000b");
  EXPECT_EQ(shown_text("\xc2\x9b" "31m"), "\\u009b31m");                  // CSI as one character
  EXPECT_EQ(shown_text("a\xe2\x80\xae" "b"), "a\\u202eb");                // right-to-left override
  EXPECT_EQ(shown_text("\xe2\x80\x8b\xef\xbb\xbf"), "\\u200b\\ufeff");    // characters of zero width
  EXPECT_EQ(shown_text("\xf3\xa0\x81\x81"), "\\udb40\\udc41");            // a tag
}

TEST(ShownText, ShowsBytesThatAreNotUtf8) {
  EXPECT_EQ(shown_text("\x9b" "31m"), "\\x9b31m");
  EXPECT_EQ(shown_text("\xc3"), "\\xc3");                          // truncated
  EXPECT_EQ(shown_text("\xc0\xaf"), "\\xc0\\xaf");                 // an overlong encoding
  EXPECT_EQ(shown_text("\xed\xa0\x80"), "\\xed\\xa0\\x80");        // a surrogate
  EXPECT_EQ(shown_text("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");  // beyond Unicode
}

TEST(ShownText, IsCutByCharacters) {
  EXPECT_EQ(shown_text(std::string(200, 'x')), std::string(200, 'x'));
  EXPECT_EQ(shown_text(std::string(201, 'x')), std::string(200, 'x') + "...");
  EXPECT_EQ(shown_text("ääää", 3), "äää...");
  EXPECT_EQ(shown_text("\x1b\x1b\x1b", 2), "\\u001b\\u001b...");
}

TEST(ShownText, KeepsTheControlCharactersThatAreAskedFor) {
  EXPECT_EQ(escaped_text("a\nb\tc\x1b", "\n\t"), "a\nb\tc\\u001b");
}

TEST(ShownText, ShortensWordsThatNobodyWrites) {
  EXPECT_EQ(shortened_words("f: " + std::string(200, 'x') + " y"), "f: " + std::string(200, 'x') + " y");
  EXPECT_EQ(shortened_words("f: " + std::string(201, 'x') + "\ny"),
            "f: " + std::string(120, 'x') + "..." + std::string(77, 'x') + "\ny");
  std::string chinese;
  for (int i = 0; i < 300; ++i) chinese += "尺寸";
  EXPECT_EQ(shortened_words(chinese), chinese);
}

TEST(ShownText, KnowsWhatACharacterLacks) {
  EXPECT_EQ(unfinished_bytes("a"), 0u);
  EXPECT_EQ(unfinished_bytes("\xe2\x80"), 2u);
  EXPECT_EQ(unfinished_bytes("\xe2\x80\xae"), 0u);
  EXPECT_EQ(unfinished_bytes("x\xf0\x9f\x98"), 3u);
  EXPECT_EQ(unfinished_bytes("\x80\x80\x80\x80"), 0u);
}

TEST(UserErrorText, IsOneLineWithoutControlCharacters) {
  EXPECT_STREQ(UserError("f.onnx: op \"\x1b[2J\n\": unknown").what(), "f.onnx: op \"\\u001b[2J\\u000a\": unknown");
}

TEST(UserErrorText, KeepsTheFileAndTheAdviceOfALongLine) {
  const std::string line = UserError("f.onnx: " + std::string(100000, 'x') + "; give another").what();
  EXPECT_LT(line.size(), 300u);
  EXPECT_TRUE(line.starts_with("f.onnx: "));
  EXPECT_TRUE(line.ends_with("; give another"));
  std::string words;
  for (int i = 0; i < 1000; ++i) words += "\x1b ";
  const std::string escaped = UserError("f.onnx: " + words + "; give another").what();
  EXPECT_LT(escaped.size(), 1300u);
  EXPECT_TRUE(escaped.starts_with("f.onnx: \\u001b "));
  EXPECT_TRUE(escaped.ends_with("; give another"));
}

}  // namespace
}  // namespace reprise
