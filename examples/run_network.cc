// run_network MODEL.onnx: runs a face detector (UltraFace RFB-320) on a black image.
#include <bolide/network.h>

#include <iostream>

int main(int argc, char** argv) {
  auto network = bolide::Network::open(argc > 1 ? argv[1] : "ultraface-rfb-320.onnx");
  if (!network) return std::cerr << network.status().message << "\n", 1;
  const std::vector<float> image(3 * 240 * 320);
  const auto outputs = network->run({{"input", bolide::Array::view<float>(image, {1, 3, 240, 320})}});
  if (!outputs) return std::cerr << outputs.status().message << "\n", 1;
  for (const auto& [name, array] : *outputs) std::cout << name << ": " << array.size() << " values\n";
}
