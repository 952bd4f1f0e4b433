// Tables of quantised codes that are normally distributed: 16 bits of codes for each 12 random ones, for
// fill_from_table. Each place of a word has the quantiles of the normal distribution once, in an order of its own.
//
// A step is how many standard deviations of the decoded values lie between two codes.
// Thread rules: made when first asked for, constant then.
#pragma once

#include "synth/random_fill.h"

namespace bolide {

using CodeTable = std::array<uint16_t, kQuantiles>;

const CodeTable& nibble_codes();  // four codes of 4 bits around 8
const CodeTable& int8_codes();    // two codes of 8 bits around 0, -127 to 127
const CodeTable& float8_codes();  // two codes of f8e4m3

float nibble_step();
float int8_step();
float float8_step();

}  // namespace bolide
