#include "server/client_text.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "formats/test_files.h"

namespace bolide::server {
namespace {

TEST(ClientText, SaysNothingOfFolders) {
  EXPECT_EQ(without_path("/srv/models/a.onnx: node x: no", "/srv/models/a.onnx", "net"), "net: node x: no");
  EXPECT_EQ(without_path("/srv/qwen/config.json: no, /srv/qwen", "/srv/qwen/", "chat"), "chat/config.json: no, chat");
  EXPECT_EQ(without_path("/srv/models/a.bin, beside /srv/models/a.onnx", "/srv/models/a.onnx", "net"),
            "a.bin, beside net");
  EXPECT_EQ(without_path("a.onnx: no", "a.onnx", "net"), "net: no");
  EXPECT_EQ(without_path("nothing of it", "/srv/a.onnx", "net"), "nothing of it");
  EXPECT_EQ(without_path("/a.onnx: 1/2", "/a.onnx", "net"), "net: 1/2");
  EXPECT_EQ(without_path("text", "", "net"), "text");
}

// A checkpoint of a hub's cache is a link.
TEST(ClientText, FollowsLinks) {
  const test::TemporaryFolder folder;
  const std::string blob = folder.write("blob", "x");
  const std::filesystem::path link = folder.path() / "model.gguf";
  std::filesystem::create_symlink(blob, link);
  EXPECT_EQ(without_path(blob + ": is cut off", link, "chat"), "chat: is cut off");
}

}  // namespace
}  // namespace bolide::server
