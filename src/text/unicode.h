// Properties of characters as the tokenizers library sees them, and the four normal forms. Data: utf8proc.
#pragma once

#include <string>
#include <string_view>

#include "formats/tokenizer_spec.h"

namespace bolide::unicode {

bool is_whitespace(char32_t c);   // the White_Space property
bool is_numeric(char32_t c);      // Nd, Nl, No
bool is_punctuation(char32_t c);  // P*, and the ASCII symbols
bool is_mark(char32_t c);         // Mn, Mc, Me
bool is_nonspacing(char32_t c);   // Mn
bool is_other(char32_t c);        // Cc, Cf, Co
bool is_word(char32_t c);         // \w: alphabetic, marks, decimal digits, connectors
bool is_chinese(char32_t c);      // BERT's ranges of ideographs

void append_lowercase(std::string& out, char32_t c);

// Linear but for sorting runs of combining marks. `text` must be valid UTF-8.
std::string normal_form(std::string_view text, normalizer::Form form);

// Whether an extended grapheme cluster ends between two neighbours; *state is 0 at the start of a text.
bool grapheme_break(char32_t before, char32_t after, int* state);

// The printable character that stands for a byte in byte-level vocabularies, and back (-1: stands for none).
char32_t byte_to_char(unsigned char byte);
int char_to_byte(char32_t c);

}  // namespace bolide::unicode
