#include "kv/kv_cache.h"

#include <fmt/format.h>

namespace bolide {

bool KvLayout::bytes(uint64_t* out) const {
  uint64_t size = static_cast<uint64_t>(bits_of(dtype)) / 8 * 2;
  for (const int32_t factor : {layers, kv_heads, head_dim, block_tokens, blocks})
    if (factor < 1 || mul_overflows(size, static_cast<uint64_t>(factor), &size)) return false;
  *out = size;
  return true;
}

namespace {

// The memory of the pools and of `others`.
Result<Buffer> reserve(const KvLayout& layout, Device& device, size_t others) {
  uint64_t bytes = 0;
  if (!layout.bytes(&bytes))
    return error(
        Code::kInvalid,
        fmt::format("a KV cache of {} layers of {} heads of {} dims and {} blocks of {} tokens cannot be made; "
                    "ask for a smaller {}",
                    layout.layers, layout.kv_heads, layout.head_dim, layout.blocks, layout.block_tokens,
                    layout.flag_at_fault()));
  const auto what = [&] {
    const auto mb = [](uint64_t size) { return fmt::format("{:.1f} MB", static_cast<double>(size) / 1e6); };
    if (const auto free = device.free_memory(); free && *free < others)
      return fmt::format("the weights need {}; a smaller model, or one whose weights have fewer bits, needs less",
                         mb(others));
    return fmt::format("KV cache for {} tokens ({}, {}){}; a smaller {}{} needs less",
                       int64_t{layout.blocks} * layout.block_tokens, to_string(layout.dtype), mb(bytes),
                       others == 0 ? "" : fmt::format(" and weights ({})", mb(others)), layout.flag_at_fault(),
                       layout.dtype == DType::kF32 ? " or --kv-type bf16" : "");
  };
  uint64_t sum = 0;
  if (add_overflows(bytes, uint64_t{others}, &sum)) sum = UINT64_MAX;
  auto memory = device.allocate(sum, Memory::kDevice);
  if (!memory) return std::move(memory).error().context(what());
  return memory;
}

}  // namespace

Result<KvCache> KvCache::make(const KvLayout& layout, Device& device) {
  BOLIDE_TRY(Buffer buffer, reserve(layout, device, 0));
  return KvCache(layout, std::move(buffer));
}

Result<> KvCache::check(const KvLayout& layout, Device& device, size_t others) {
  BOLIDE_TRY(reserve(layout, device, others));
  return {};
}

KvCache::KvCache(const KvLayout& layout, Buffer memory)
    : layout_(layout), memory_(std::move(memory)), allocator_(layout.blocks) {
  const size_t pool = memory_.size() / (2 * static_cast<size_t>(layout.layers));
  for (int32_t layer = 0; layer < layout.layers; ++layer) {
    std::byte* k = memory_.data() + 2 * static_cast<size_t>(layer) * pool;
    pools_.push_back({k, k + pool});
  }
}

}  // namespace bolide
