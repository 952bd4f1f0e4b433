// Photos as inputs of networks.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "formats/image.h"
#include "onnx/import.h"
#include "tensor/value.h"

namespace bolide {

// True for FILE.jpg, .jpeg, .png or .bmp, with or without ":options".
bool is_image_input(std::string_view text);

// FILE[:layout=nchw|nhwc,channels=rgb|bgr|gray,size=WxH,mean=A[/B/C],scale=A[/B/C]]: the photo resized (bilinear,
// half-pixel centres, no antialiasing), its channels in that order, (pixel - mean) * scale with pixels of 0 to 255.
// What is not said comes from what the input declares: the layout from where there are 1 or 3 channels, the size from
// fixed dims, else from the photo. `note` says what was done.
Result<Tensor> image_input(const OnnxProgram::Port& port, std::string_view text, std::string* note);

// [height, width, 3] > [to_height, to_width, 3].
std::vector<float> resize_bilinear(const Image& image, int64_t to_width, int64_t to_height);

}  // namespace bolide
