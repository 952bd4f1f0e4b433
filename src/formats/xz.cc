#include "formats/xz.h"

#include <fmt/format.h>
#include <lzma.h>

#include "base/file.h"

namespace bolide {
namespace {

constexpr uint64_t kDecoderBytesMax = uint64_t{80} << 20;  // xz -9 needs 65

struct Stream {
  lzma_stream lzma = LZMA_STREAM_INIT;
  Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() { lzma_end(&lzma); }
};

}  // namespace

Result<std::string> unpack_xz(Bytes packed, size_t bytes_max) {
  Stream stream;
  if (lzma_stream_decoder(&stream.lzma, kDecoderBytesMax, LZMA_CONCATENATED) != LZMA_OK)
    return error(Code::kOutOfMemory, "no memory to unpack xz");
  std::string out;
  stream.lzma.next_in = reinterpret_cast<const uint8_t*>(packed.data());
  stream.lzma.avail_in = packed.size();
  size_t done = 0;
  for (;;) {
    if (done == out.size()) {
      if (done == bytes_max) return error(Code::kInvalid, fmt::format("unpacks to more than {} bytes", bytes_max));
      out.resize(std::min(bytes_max, std::max<size_t>(1 << 16, out.size() * 2)));
    }
    stream.lzma.next_out = reinterpret_cast<uint8_t*>(out.data()) + done;
    stream.lzma.avail_out = out.size() - done;
    const lzma_ret rc = lzma_code(&stream.lzma, LZMA_FINISH);
    done = out.size() - stream.lzma.avail_out;
    if (rc == LZMA_STREAM_END) break;
    if (rc == LZMA_OK) continue;  // without progress the next call says LZMA_BUF_ERROR
    if (rc == LZMA_FORMAT_ERROR) return error(Code::kInvalid, "is not an xz file");
    if (rc == LZMA_MEM_ERROR || rc == LZMA_MEMLIMIT_ERROR)
      return error(Code::kOutOfMemory,
                   fmt::format("xz data that needs more than {} bytes to unpack", kDecoderBytesMax));
    return error(Code::kInvalid, "xz data is damaged or cut short");
  }
  out.resize(done);
  return out;
}

Result<std::string> read_file_or_xz(const std::filesystem::path& path, size_t bytes_max) {
  std::error_code ignored;
  std::filesystem::path packed_path = path;
  packed_path += ".xz";
  if (std::filesystem::exists(path, ignored) || !std::filesystem::exists(packed_path, ignored))
    return read_file(path, bytes_max);
  BOLIDE_TRY(const MappedFile packed, MappedFile::open(packed_path));
  return unpack_xz(packed.bytes(), bytes_max).context(packed_path.string());
}

}  // namespace bolide
