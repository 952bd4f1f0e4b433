// ONNX models of published architectures with seeded random weights: speed can be measured where the weights cannot be
// had. Their answers mean nothing.
//
// Graphs are as PyTorch's exporters make them: normalisation, GELU and attention in their parts, batch normalisation
// behind its convolution (YOLO: folded into it, SiLU in its parts), symbolic batch and sequence. Weights are of the
// scale at which activations stay of order 1 however deep the network is; the statistics of batch normalisations are
// those that the layer in front gives. The same name, options and seed give the same bytes everywhere.
// Thread rules: constants and plain values.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "formats/onnx_write.h"

namespace bolide {

// 0: the model's own. kInvalid names an option that the model has no use for.
struct ZooOptions {
  uint64_t seed = 0;
  int64_t opset = 17;
  int64_t layers = 0;  // transformers: at most their own
  int64_t image = 0;   // side of the image, of networks that see one
  int64_t frames = 0;  // of the spectrogram, of networks that hear one
  int64_t vocab = 0;   // rows of the token table: small ones for tests
};
inline constexpr int64_t kZooOpsetMin = 13, kZooOpsetMax = 23;

struct ZooModel {
  OnnxDraft file;
  int64_t parameters = 0;  // trained numbers: statistics of batch normalisations do not count
};

struct ZooEntry {
  std::string_view name;      // "resnet-50"
  std::string_view sentence;  // for people
  bool has_layers, has_image, has_frames, has_vocab;
  int64_t layers_max;  // of has_layers
  int64_t image_step;  // of has_image: sides are its multiples
  ZooModel (*build)(std::string_view name, const ZooOptions& options);
};
std::span<const ZooEntry> zoo();
// kNotFound names the nearest and all known ones.
Result<const ZooEntry*> find_zoo_entry(std::string_view name);
Result<ZooModel> make_zoo_model(std::string_view name, const ZooOptions& options = {});

}  // namespace bolide
