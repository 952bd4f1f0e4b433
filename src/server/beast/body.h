// The body of a request as Beast's parser gives it to us: a string that grows with what arrives, whatever length the
// client has announced; and how much framing a body in chunks may have.
#pragma once

#include <boost/asio/buffer.hpp>
#include <boost/beast/core/buffers_range.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/optional.hpp>
#include <string>
#include <string_view>

#include "server/http.h"

namespace bolide::server::beast {

struct GrowingBody {
  using value_type = std::string;

  class reader {  // NOLINT(readability-identifier-naming): Beast looks for it
   public:
    template <bool kRequest, class Fields>
    reader(boost::beast::http::header<kRequest, Fields>&, value_type& body) : body_(body) {}
    void init(const boost::optional<uint64_t>&, boost::system::error_code& failed) { failed = {}; }
    template <class Buffers>
    size_t put(const Buffers& buffers, boost::system::error_code& failed) {
      failed = {};
      const size_t before = body_.size();
      for (const boost::asio::const_buffer part : boost::beast::buffers_range_ref(buffers))
        body_.append(static_cast<const char*>(part.data()), part.size());
      return body_.size() - before;
    }
    void finish(boost::system::error_code& failed) { failed = {}; }

   private:
    value_type& body_;
  };
};

// Chunks of a few bytes each, and extensions that nobody reads, are work for the server and none for the client.
class ChunkCount {
 public:
  // Of one more chunk. False: the body has too much that is not content; `wrong` says what.
  bool add(uint64_t bytes, size_t extension_bytes, std::string_view* wrong) {
    ++chunks_;
    bytes_ += bytes;
    extension_bytes_ += extension_bytes;
    if (extension_bytes_ > kExtensionBytesMax) *wrong = "the extensions of its chunks are longer than 16 KiB";
    if (chunks_ > kFreeChunks && bytes_ < chunks_ * kChunkBytesMin)
      *wrong = "the body comes in too many chunks of less than 64 bytes";
    return wrong->empty();
  }

 private:
  static constexpr uint64_t kFreeChunks = 16'384, kChunkBytesMin = 64;
  static constexpr size_t kExtensionBytesMax = 16 * 1024;
  uint64_t chunks_ = 0, bytes_ = 0;
  size_t extension_bytes_ = 0;
};

}  // namespace bolide::server::beast
