#include "base/utf8.h"

#include <gtest/gtest.h>

#include <random>

namespace bolide {
namespace {

TEST(Printable, LeavesOrdinaryTextAlone) {
  for (const char* text : {"", "model.gguf", "Ünïcødé 模型 😀", "a b~!", "\\n as two characters"})
    EXPECT_EQ(printable(text), text);
}

TEST(Printable, ShowsWhatATerminalWouldObey) {
  EXPECT_EQ(printable("\x1b[31mred\x07"), "\\u{1b}[31mred\\u{7}");
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a\\u{0}b");
  EXPECT_EQ(printable("one\ntwo\tthree\rfour"), "one\\ntwo\\tthree\\u{d}four");
  EXPECT_EQ(printable("one\ntwo\tthree\rfour", true), "one\ntwo\tthree\\u{d}four");
  EXPECT_EQ(printable("\u009b2J"), "\\u{9b}2J");                // CSI as one character
  EXPECT_EQ(printable("x\u202egpj.exe"), "x\\u{202e}gpj.exe");  // right-to-left override
  EXPECT_EQ(printable("x\xff\xc3"), "x\uFFFD\uFFFD");
}

TEST(Printable, AnyBytesGiveUtf8WithoutControls) {
  std::mt19937 random(std::random_device{}());
  for (int round = 0; round < 2000; ++round) {
    std::string bytes(random() % 40, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    const std::string shown = printable(bytes);
    ASSERT_EQ(utf8_invalid_at(shown), kUtf8Valid);
    for (const unsigned char byte : shown) ASSERT_TRUE(byte >= 0x20 && byte != 0x7F) << static_cast<int>(byte);
  }
}

}  // namespace
}  // namespace bolide
