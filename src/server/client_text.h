// Errors as clients may read them: where a model's files lie is nobody's business who asks it.
//
// Thread rules: pure functions.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace bolide::server {

// The text with `name` in place of the model's path, and without the folder of other files beside it.
std::string without_path(std::string_view text, const std::filesystem::path& path, std::string_view name);

}  // namespace bolide::server
