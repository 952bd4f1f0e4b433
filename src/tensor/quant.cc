#include "tensor/quant.h"

#include <array>

namespace bolide {
namespace {

constexpr std::array kSchemes = {&kQ4_0, &kQ4_1, &kQ5_0,   &kQ5_1,   &kQ8_0,   &kQ2_K,   &kQ3_K,   &kQ4_K,
                                 &kQ5_K, &kQ6_K, &kIQ4_NL, &kIQ4_XS, &kW4_G32, &kW4_G64, &kW4_G128};

}  // namespace

std::span<const QuantScheme* const> block_schemes() { return kSchemes; }

const QuantScheme* quant_from_string(std::string_view name) {
  for (const QuantScheme* scheme : kSchemes)
    if (scheme->name == name) return scheme;
  return nullptr;
}

}  // namespace bolide
