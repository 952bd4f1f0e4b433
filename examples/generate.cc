// generate MODEL PROMPT: prints the answer as it is made.
#include <bolide/bolide.h>

#include <iostream>

int main(int argc, char** argv) {
  if (argc != 3) return std::cerr << "usage: generate MODEL PROMPT\n", 2;
  auto model = bolide::LanguageModel::open(argv[1]);
  if (!model) return std::cerr << model.status().message << "\n", 1;
  const auto answer = model->chat({{"user", argv[2]}}, {.max_tokens = 64},
                                  [](std::string_view text) { std::cout << text << std::flush; });
  if (!answer) return std::cerr << answer.status().message << "\n", 1;
  std::cout << "\n" << answer->timings.generated_tokens << " tokens\n";
}
