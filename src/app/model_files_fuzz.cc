// A model as its files: an error, or a model that answers.
//
// Input: files (fuzz_parts.h). If the first is called *.gguf it is the model, and the others may be its shards; if not,
// the folder with all of them is.
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "app/fuzz_parts.h"
#include "app/model.h"
#include "engine/generator.h"

namespace {

using namespace bolide;

constexpr size_t kFilesMax = 16;
constexpr size_t kNameBytesMax = 64;

bool is_file_name(std::string_view name) {
  return !name.empty() && name.size() <= kNameBytesMax && name != "." && name != ".." &&
         name.find('/') == std::string_view::npos && name.find('\0') == std::string_view::npos;
}

const std::filesystem::path& folder() {
  static const auto path = std::filesystem::temp_directory_path() / ("bolide-fuzz-" + std::to_string(::getpid()));
  return path;
}

// A few tokens.
void answer(const Model& model) {
  Generator generator(*model.runner, model.tokenizer);
  GenerateRequest request;
  request.prompt = {1, 0, 2, 1, 0};
  (void)generator.generate(request, [](std::string_view) {});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::vector<FuzzPart> files = fuzz_parts({reinterpret_cast<const std::byte*>(data), size});
  if (files.empty() || files.size() > kFilesMax) return 0;
  for (const FuzzPart& file : files)
    if (!is_file_name(file.name)) return 0;
  std::filesystem::create_directories(folder());
  for (const FuzzPart& file : files) std::ofstream(folder() / file.name, std::ios::binary) << as_text(file.bytes);

  ModelOptions options;
  options.threads = 1;
  options.context = 8;
  options.tokens_per_step = 4;
  const std::string& first = files.front().name;
  if (auto model = open_model(first.ends_with(".gguf") ? folder() / first : folder(), options)) answer(*model);
  std::filesystem::remove_all(folder());
  return 0;
}
