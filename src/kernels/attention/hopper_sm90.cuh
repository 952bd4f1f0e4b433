// What the tensor cores and the copy engine of sm_90a need in PTX: barriers in shared memory, copies of boxes of
// tensors (TMA), products of warpgroups (wgmma), registers moved between warpgroups. For *_sm90.cu files.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>

#include <cstdint>

namespace bolide::cuda {

inline constexpr int kWarpgroup = 128;

__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// --- Barriers: 8 bytes of shared memory each. A phase ends when all have arrived and all expected bytes have come.
__device__ __forceinline__ void barrier_init(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// After the inits, before the __syncthreads() after which others use them.
__device__ __forceinline__ void barrier_init_done() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void barrier_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// True once the phase of this parity has ended; waits a while for it.
__device__ __forceinline__ bool barrier_try(uint32_t barrier, uint32_t parity) {
  uint32_t done;
  asm volatile(
      "{\n\t.reg .pred p;\n\t"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
      "selp.u32 %0, 1, 0, p;\n\t}"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done != 0;
}

// Generic writes to shared memory become visible to copies and products of the asynchronous proxy.
__device__ __forceinline__ void fence_async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// --- Copies of a box of a tensor into shared memory, whose bytes the barrier counts.
__device__ __forceinline__ void prefetch_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
__device__ __forceinline__ void copy_box(uint32_t to, const CUtensorMap* map, uint32_t barrier, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(
          to),
      "l"(map), "r"(barrier), "r"(x), "r"(y)
      : "memory");
}
__device__ __forceinline__ void copy_box(uint32_t to, const CUtensorMap* map, uint32_t barrier, int x, int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::
          "r"(to),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z)
      : "memory");
}

// --- Registers. All warps of a warpgroup call it; the block was launched with as many as its launch bounds allow.
template <int kCount>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}
template <int kCount>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}

// --- Named barriers (1 to 15; 0 is __syncthreads): `threads` of them wait or only arrive.
__device__ __forceinline__ void meet(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void pass(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// --- Products. A warpgroup multiplies [64, 16] by [16, N] into f32 registers: of thread t, d[4i + 2h + e] is row
// t / 32 * 16 + t % 32 / 4 + 8h, column 8i + t % 4 * 2 + e. As left operand in registers, a[0..3] are the bf16 pairs
// (h, i) = (0, 0), (1, 0), (0, 1), (1, 1) of 16 columns of the same layout.
__device__ __forceinline__ void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// The compiler must not move uses of these registers across: products write them behind its back.
template <int kCount>
__device__ __forceinline__ void settle(float (&x)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(x[i])::"memory");
}
template <int kCount>
__device__ __forceinline__ void settle(uint32_t (&x)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+r"(x[i])::"memory");
}

// A matrix in shared memory as copy_box left it: panels of kSwizzle bytes a row, swizzled. `panel_bytes` lie between
// panels; it is used where the panel's rows are the summed dimension (transposed), elsewhere a product stays inside one
// panel. Add bytes / 16 to move on; rows by eights only.
template <int kSwizzle>
__device__ __forceinline__ uint64_t panel_descriptor(uint32_t address, int panel_bytes) {
  static_assert(kSwizzle == 128 || kSwizzle == 64);
  constexpr uint64_t kLayout = kSwizzle == 128 ? 1 : 2;
  return kLayout << 62 | uint64_t{kSwizzle * 8 / 16} << 32 | static_cast<uint64_t>(panel_bytes / 16) << 16 |
         (address & 0x3ffff) >> 4;
}

#define BOLIDE_D4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define BOLIDE_D16(d, i) BOLIDE_D4(d, i), BOLIDE_D4(d, i + 4), BOLIDE_D4(d, i + 8), BOLIDE_D4(d, i + 12)
#define BOLIDE_N0 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define BOLIDE_N16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define BOLIDE_N32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define BOLIDE_N48 ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"

// d[64, N] = a * transposed(b) + (add ? d : 0): a [64, 16] and b [N, 16] in shared memory, rows along the panels.
__device__ __forceinline__ void product_shared(float (&d)[64], uint64_t a, uint64_t b, int add) {
  asm volatile(
      "{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %66, 0;\n\t"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" BOLIDE_N0 BOLIDE_N16 BOLIDE_N32 BOLIDE_N48
      "}, %64, %65, p, 1, 1, 0, 0;\n\t}"
      : BOLIDE_D16(d, 0), BOLIDE_D16(d, 16), BOLIDE_D16(d, 32), BOLIDE_D16(d, 48)
      : "l"(a), "l"(b), "r"(add));
}

// d[64, N] += a * b: a [64, 16] in registers, b [16, N] in shared memory, its columns along the panels.
__device__ __forceinline__ void product_registers(float (&d)[32], const uint32_t* a, uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" BOLIDE_N0 BOLIDE_N16
               "}, {%32,%33,%34,%35}, %36, 1, 1, 1, 1;"
               : BOLIDE_D16(d, 0), BOLIDE_D16(d, 16)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
__device__ __forceinline__ void product_registers(float (&d)[48], const uint32_t* a, uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 {" BOLIDE_N0 BOLIDE_N16 BOLIDE_N32
               "}, {%48,%49,%50,%51}, %52, 1, 1, 1, 1;"
               : BOLIDE_D16(d, 0), BOLIDE_D16(d, 16), BOLIDE_D16(d, 32)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
__device__ __forceinline__ void product_registers(float (&d)[64], const uint32_t* a, uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" BOLIDE_N0 BOLIDE_N16 BOLIDE_N32 BOLIDE_N48
               "}, {%64,%65,%66,%67}, %68, 1, 1, 1, 1;"
               : BOLIDE_D16(d, 0), BOLIDE_D16(d, 16), BOLIDE_D16(d, 32), BOLIDE_D16(d, 48)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

#undef BOLIDE_D4
#undef BOLIDE_D16
#undef BOLIDE_N0
#undef BOLIDE_N16
#undef BOLIDE_N32
#undef BOLIDE_N48

}  // namespace bolide::cuda
