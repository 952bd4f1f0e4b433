// Published templates with the text that transformers renders: data beside the repository, if it is there.
#include "text/chat_template.h"

#include <gtest/gtest.h>
#include <lzma.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace bolide {
namespace {

using Json = nlohmann::ordered_json;

std::filesystem::path shared_folder() {
  if (const char* given = std::getenv("BOLIDE_SHARED"); given != nullptr) return given;
  return std::filesystem::path(BOLIDE_SOURCE_DIR) / "../shared";
}

std::string file_text(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

std::string unpack_xz(const std::string& packed) {
  std::string out(64 << 20, '\0');
  uint64_t memory = 256 << 20;
  size_t read = 0, written = 0;
  const auto status =
      lzma_stream_buffer_decode(&memory, 0, nullptr, reinterpret_cast<const uint8_t*>(packed.data()), &read,
                                packed.size(), reinterpret_cast<uint8_t*>(out.data()), &written, out.size());
  EXPECT_EQ(status, LZMA_OK);
  out.resize(written);
  return out;
}

TEST(ChatTemplate, RendersPublishedTemplates) {
  const auto folder = shared_folder() / "data/tokenizers";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no " << folder << ": set BOLIDE_SHARED";
  size_t cases = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (!std::filesystem::exists(entry.path() / "golden.json.xz")) continue;
    const Json config = Json::parse(file_text(entry.path() / "tokenizer_config.json"), nullptr, false);
    const Json golden = Json::parse(unpack_xz(file_text(entry.path() / "golden.json.xz")), nullptr, false);
    ASSERT_TRUE(config.is_object() && golden.is_object()) << entry.path();
    const auto parsed = ChatTemplate::parse(config["chat_template"], entry.path().filename());
    ASSERT_TRUE(parsed.has_value()) << parsed.error().text;
    for (const Json& chat : golden["chat"]) {
      ++cases;
      ChatInput input;
      input.messages = chat["messages"];
      input.add_generation_prompt = chat["add_generation_prompt"];
      if (chat.contains("tools")) input.tools = chat["tools"];
      if (chat.contains("kwargs")) input.variables = chat["kwargs"];
      for (const char* token : {"bos_token", "eos_token", "pad_token", "unk_token"})
        if (config.contains(token) && config[token].is_string())
          input.special_tokens.emplace_back(token, config[token]);
      const auto text = parsed->render(input);
      if (chat.contains("error")) {
        ASSERT_FALSE(text.has_value()) << chat["name"];
        EXPECT_EQ(text.error().text, chat["error"].get<std::string>()) << chat["name"];
      } else {
        ASSERT_TRUE(text.has_value()) << chat["name"] << ": " << text.error().text;
        EXPECT_EQ(*text, chat["text"].get<std::string>()) << chat["name"];
      }
    }
  }
  EXPECT_GT(cases, 40U);
}

}  // namespace
}  // namespace bolide
