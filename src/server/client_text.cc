#include "server/client_text.h"

namespace bolide::server {
namespace {

void replace_all(std::string& text, std::string_view what, std::string_view by) {
  if (what.empty()) return;
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size())
    text.replace(at, what.size(), by);
}

}  // namespace

std::string without_path(std::string_view text, const std::filesystem::path& path, std::string_view name) {
  std::string out(text);
  // As it was given, and where links in it lead.
  std::error_code unknown;
  const std::filesystem::path places[] = {path, std::filesystem::weakly_canonical(path, unknown)};
  for (const std::filesystem::path& place : places) {
    std::string whole = place.string();
    while (whole.size() > 1 && whole.ends_with('/')) whole.pop_back();
    replace_all(out, whole, name);
  }
  for (const std::filesystem::path& place : places)
    if (const std::string folder = place.parent_path().string(); folder.size() > 1) replace_all(out, folder + "/", "");
  return out;
}

}  // namespace bolide::server
