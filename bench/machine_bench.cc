// Prints this machine's roofs as a table and as JSON. Argument: the number of threads; default one per core.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "measure/machine.h"

int main(int argc, char** argv) {
  const bolide::CpuInfo cpu = bolide::detect_cpu();
  bolide::Workers workers(std::clamp(argc > 1 ? std::atoi(argv[1]) : cpu.cores(), 1, 1024));
  const auto start = std::chrono::steady_clock::now();
  const bolide::MachineRoofs machine = bolide::measure_machine(workers, cpu);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  fmt::print("{}buffer {} MiB, measured in {:.2f} s\n{}\n", machine.to_text(), machine.memory_bytes >> 20, seconds,
             machine.to_json());
  return 0;
}
