// The loops that measure a machine's roofs, one file per instruction set. Plain pointers and no templates of the
// standard library: what ISA files include must not leave weak symbols behind.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bolide::roofs {

// Reads [data, data + bytes) once; bytes is a multiple of kReadUnit. Returns something that depends on every byte.
using ReadLoop = uint64_t (*)(const std::byte* data, int64_t bytes);
constexpr int64_t kReadUnit = 4096;

struct ReadVariant {
  const char* name;  // "avx512, 4 streams, prefetch 1024 B ahead"
  ReadLoop loop;
};

// Does `iterations` rounds of arithmetic in registers. Returns something that depends on all of it.
using ArithmeticLoop = float (*)(int64_t iterations);

struct Arithmetic {
  const char* method;           // "avx512 vfmadd231ps"
  ArithmeticLoop loop;          // null: not on this machine
  double operations_per_round;  // a multiply-add counts as two
};

template <class T>
struct List {
  const T* items;
  int count;
};

List<ReadVariant> read_scalar();
Arithmetic fp32_scalar();
#if defined(__x86_64__)
List<ReadVariant> read_avx2();
List<ReadVariant> read_avx512();
Arithmetic fp32_avx2();
Arithmetic fp32_avx512();
Arithmetic bf16_avx512();
Arithmetic int8_vnni();
Arithmetic int8_amx();
Arithmetic bf16_amx();
#endif

}  // namespace bolide::roofs
