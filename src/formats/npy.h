// numpy's files: .npy (one array, format versions 1 to 3) and .npz (a zip archive of them, stored or deflated).
// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
//
// Hostile bytes in: sizes are checked against what is there, deflated entries against what they say they hold.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "tensor/value.h"

namespace bolide {

// Little-endian numbers, bool and, as written by us, f16; fixed-width texts ('<U7', '|S7') become strings. Fortran
// order is turned. kUnsupported: objects, complex, structured, big-endian arrays; types that numpy has no name for
// (bf16, f8) are written by write_npy as integers of their bits.
Result<Tensor> parse_npy(Bytes file, const std::string& label);
Result<std::map<std::string, Tensor>> parse_npz(Bytes file, const std::string& label);

Result<std::vector<std::byte>> write_npy(const Tensor& tensor);
// Stored, not deflated.
Result<std::vector<std::byte>> write_npz(const std::vector<std::pair<std::string, Tensor>>& arrays);

}  // namespace bolide
