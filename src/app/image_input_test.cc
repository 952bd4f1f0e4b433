#include "app/image_input.h"

#include <gtest/gtest.h>

#include <fstream>
#include <random>

namespace bolide {
namespace {

// A BMP of 24 bits a pixel without compression; rgb [height, width, 3].
void write_bmp(const std::string& path, uint32_t width, uint32_t height, const std::vector<uint8_t>& rgb) {
  const uint32_t stride = (width * 3 + 3) / 4 * 4;
  std::string file = "BM";
  const auto put = [&](uint32_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) file += static_cast<char>(value >> (8 * i));
  };
  put(54 + stride * height, 4), put(0, 4), put(54, 4), put(40, 4), put(width, 4), put(height, 4);
  put(1, 2), put(24, 2), put(0, 4), put(stride * height, 4), put(2835, 4), put(2835, 4), put(0, 4), put(0, 4);
  for (uint32_t y = height; y-- > 0;) {
    for (uint32_t x = 0; x < width; ++x)
      for (int c = 2; c >= 0; --c) file += static_cast<char>(rgb[(y * width + x) * 3 + static_cast<uint32_t>(c)]);
    for (uint32_t x = width * 3; x < stride; ++x) file += '\0';
  }
  std::ofstream(path, std::ios::binary) << file;
}

OnnxProgram::Port port_of(int64_t element, const std::vector<int64_t>& dims) {
  OnnxProgram::Port port;
  port.name = "image";
  port.type.kind = OnnxType::Kind::kTensor;
  port.type.element = element;
  port.type.dims.emplace();
  for (const int64_t dim : dims) port.type.dims->push_back(dim < 0 ? OnnxDim{std::nullopt, "N"} : OnnxDim{dim, {}});
  return port;
}

constexpr int64_t kFloat = 1, kU8 = 2;

class ImageInput : public ::testing::Test {
 protected:
  void SetUp() override {
    std::mt19937 random(7);
    rgb_.resize(kWidth * kHeight * 3);
    for (uint8_t& value : rgb_) value = static_cast<uint8_t>(random());
    path_ = testing::TempDir() + "image_input_test.bmp";
    write_bmp(path_, kWidth, kHeight, rgb_);
  }
  float pixel(size_t y, size_t x, size_t c) const { return rgb_[(y * kWidth + x) * 3 + c]; }

  static constexpr uint32_t kWidth = 5, kHeight = 4;
  std::vector<uint8_t> rgb_;
  std::string path_;
};

TEST_F(ImageInput, LayoutsOrdersMeanAndScale) {
  std::string note;
  const auto nchw = image_input(port_of(kFloat, {-1, 3, kHeight, kWidth}), path_ + ":mean=1/2/3,scale=0.5", &note);
  ASSERT_TRUE(nchw) << nchw.error().text;
  EXPECT_EQ(nchw->shape(), Shape({1, 3, kHeight, kWidth}));
  const auto nhwc = image_input(port_of(kU8, {kHeight, kWidth, 3}), path_ + ":channels=bgr", &note);
  ASSERT_TRUE(nhwc) << nhwc.error().text;
  EXPECT_NE(note.find("5x4 pixels as they are, bgr, nhwc"), std::string::npos) << note;
  for (size_t y = 0; y < kHeight; ++y)
    for (size_t x = 0; x < kWidth; ++x)
      for (size_t c = 0; c < 3; ++c) {
        EXPECT_EQ(nchw->as<float>()[(c * kHeight + y) * kWidth + x], (pixel(y, x, c) - static_cast<float>(c + 1)) / 2);
        EXPECT_EQ(nhwc->as<uint8_t>()[(y * kWidth + x) * 3 + 2 - c], pixel(y, x, c));
      }
}

TEST_F(ImageInput, ResizesToWhatTheInputOrTheUserSays) {
  // Twice the size: half-pixel centres give quarters and three quarters of neighbours.
  const auto doubled = image_input(port_of(kFloat, {1, 3, 2 * kHeight, 2 * kWidth}), path_, nullptr);
  ASSERT_TRUE(doubled) << doubled.error().text;
  const auto at = [&](size_t y, size_t x) { return doubled->as<float>()[y * 2 * kWidth + x]; };
  EXPECT_FLOAT_EQ(at(0, 0), pixel(0, 0, 0));
  EXPECT_FLOAT_EQ(at(0, 1), pixel(0, 0, 0) * 0.75f + pixel(0, 1, 0) * 0.25f);
  EXPECT_FLOAT_EQ(at(3, 2), (pixel(1, 0, 0) * 0.25f + pixel(1, 1, 0) * 0.75f) * 0.75f +
                                (pixel(2, 0, 0) * 0.25f + pixel(2, 1, 0) * 0.75f) * 0.25f);
  const auto small = image_input(port_of(kFloat, {1, 1, -1, -1}), path_ + ":size=1x2", nullptr);
  ASSERT_TRUE(small) << small.error().text;
  EXPECT_EQ(small->shape(), Shape({1, 1, 2, 1}));
  const auto free = image_input(port_of(kFloat, {1, 3, -1, -1}), path_, nullptr);
  ASSERT_TRUE(free) << free.error().text;
  EXPECT_EQ(free->shape(), Shape({1, 3, kHeight, kWidth}));
}

TEST_F(ImageInput, RefusesWhatItCannotMean) {
  const auto refused = [&](const std::string& options, const std::vector<int64_t>& dims, const std::string& word) {
    const auto result = image_input(port_of(kFloat, dims), path_ + options, nullptr);
    ASSERT_FALSE(result) << options;
    EXPECT_NE(result.error().text.find(word), std::string::npos) << result.error().text;
  };
  const std::vector<int64_t> fine = {1, 3, kHeight, kWidth};
  refused(":layout=chw", fine, "nchw or nhwc");
  refused(":mean=1/2", fine, "three");
  refused(":mean=", fine, "a number");
  refused(":scale=nan", fine, "a number");
  refused(":size=0x4", fine, "WIDTHxHEIGHT");
  refused(":size=99999x4", fine, "WIDTHxHEIGHT");
  refused(":colour=1", fine, "colour");
  refused(":channels=gray", fine, "3 channels");
  refused("", {1, 4, kHeight, kWidth}, "layout");
  refused(":layout=nchw", {1, 4, kHeight, kWidth}, "4 channels");
  refused("", {2, 3, kHeight, kWidth}, "batch");
  refused("", {3, kHeight}, "3 or 4 dims");
  EXPECT_FALSE(image_input(port_of(kFloat, fine), "nothing.png", nullptr));
  std::ofstream(path_, std::ios::binary | std::ios::trunc) << "BMP?";
  refused("", fine, "no JPEG, PNG, BMP or PNM");
}

TEST(IsImageInput, ByTheEndingOfTheName) {
  EXPECT_TRUE(is_image_input("a.jpg"));
  EXPECT_TRUE(is_image_input("a:b/c.PNG:mean=1"));
  EXPECT_FALSE(is_image_input("a.npy"));
  EXPECT_FALSE(is_image_input("random:1x3"));
}

}  // namespace
}  // namespace bolide
