// How rows of GGUF's block schemes lie for the GPU's products of few tokens (gemv_cuda.cuh): a run of windows of 64
// bytes, then the constants of eight windows at a time, the last eight whole. Nothing is rounded or kept twice, so a
// row is as long as the file's but for its last windows (q6_k 1 %, q4_k and q5_k 3 % longer).
//
// Columns and codes (offset so that they are unsigned):
//   q8_0    a window has 64 columns, and 16 bytes for each thread t of four: word 2 j + s has the codes of columns
//           32 j + 8 t + 4 s .. + 3, a byte each
//   others  a window has 128 columns, word j of thread t's 16 bytes has the low 4 bits of columns 32 j + 8 t .. + 7,
//           from the lowest nibble up 0 2 4 6 1 3 5 7
// The bits above the fourth are planes among the constants. Of element e = 4 s + 2 p + h of a word they are at bits
// 4 + 4 p + 16 h and up of the plane's word rotated right: beside the nibble, where that is multiplied.
//   q5_k    one word a thread and window, rotated by j + 8 s
//   q6_k    two, of j / 2; rotated by 2 (j % 2) + 8 s
//
// Constants of eight windows, w the window:
//   q4_0    8 w: four f16 scales
//   q4_1    16 w: four times f16 scale, f16 minimum
//   q8_0    4 w: two f16 scales
//   q4_k    8 w: four scales and four minima, a byte each. Then 4 (w / 2): f16 scale and f16 scale of minima
//   q5_k    16 w: the planes of threads 0 to 3. Then as q4_k
//   q6_k    32 w: two words of planes for each thread. Then 8 w: scales of 16 columns each. Then 2 (w / 2): the f16
//           scale of both windows
#pragma once

namespace bolide::block_pieces {

inline constexpr int kWindowBytes = 64, kWindowsTogether = 8;

// Bytes of the constants of eight windows: multiples of 16.
inline constexpr int kQ4_0 = 64, kQ4_1 = 128, kQ4_K = 80, kQ5_K = 208, kQ6_K = 336, kQ8_0 = 32;
// Places in them.
inline constexpr int kQ5_KHeads = 128, kKFactors = 64, kQ6_KScales = 256, kQ6_KFactors = 320;

// The columns of a word are in this order of nibbles.
constexpr int nibble_of(int element) { return element / 2 + element % 2 * 4; }
// Where the plane has the bits of an element of word j.
constexpr int q5_bit(int j, int element) {
  const int s = element / 4, p = element / 2 % 2, h = element % 2;
  return (4 + 4 * p + 16 * h + j + 8 * s) % 32;
}
constexpr int q6_bit(int j, int element) {
  const int s = element / 4, p = element / 2 % 2, h = element % 2;
  return (4 + 4 * p + 16 * h + 2 * (j % 2) + 8 * s) % 32;
}

}  // namespace bolide::block_pieces
