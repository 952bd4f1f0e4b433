// Engines whose checksums are right and whose contents are anybody's: an error, or a model that answers.
//
// Input: 't' and a table; or 's' and sections (fuzz_parts.h).
#include <lzma.h>
#include <unistd.h>

#include <filesystem>

#include "app/engine.h"
#include "app/fuzz_parts.h"
#include "formats/engine_file.h"

namespace {

using namespace bolide;

void fuzz_table(Bytes table) {
  std::string file("BOLIDE\0\1", 8);
  const uint64_t head[] = {table.size(), lzma_crc64(reinterpret_cast<const uint8_t*>(table.data()), table.size(), 0)};
  file.append(reinterpret_cast<const char*>(head), sizeof(head)).append(as_text(table));
  file.resize(file.size() + 20000, 'x');
  const auto sections = parse_engine_table(as_bytes(file));
  if (!sections) return;
  for (const EngineSection& section : *sections)
    BOLIDE_CHECK(section.offset <= file.size() && section.bytes <= file.size() - section.offset, "outside the file");
}

void fuzz_sections(Bytes rest) {
  std::vector<EngineSectionData> sections;
  for (FuzzPart& part : fuzz_parts(rest)) sections.push_back({std::move(part.name), part.bytes});
  static const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("bolide-fuzz-" + std::to_string(::getpid()) + ".engine");
  BOLIDE_CHECK(write_engine_file(path, sections).has_value(), "cannot write {}", path.string());
  ModelOptions options;
  options.threads = 1;
  options.context = 8;
  options.tokens_per_step = 4;
  auto model = open_model(path, options);
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
  if (!model) return;
  Generator generator(*model->runner, model->tokenizer);
  GenerateRequest request;
  request.prompt = {1, 0, 2, 1, 0};
  (void)generator.generate(request, [](std::string_view) {});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const Bytes rest(reinterpret_cast<const std::byte*>(data + 1), size - 1);
  if (data[0] == 't') fuzz_table(rest);
  if (data[0] == 's') fuzz_sections(rest);
  return 0;
}
