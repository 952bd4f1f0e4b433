#include "server/grpc/grpc_status.h"

#include <cstdint>

namespace bolide::server {
namespace {

// Protobuf's wire format: google.rpc's messages are three fields, and their descriptions another package.
void append_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}
void append_number(std::string& out, int field, uint64_t value) {
  append_varint(out, static_cast<uint64_t>(field) << 3);
  append_varint(out, value);
}
void append_bytes(std::string& out, int field, std::string_view bytes) {
  append_varint(out, static_cast<uint64_t>(field) << 3 | 2);
  append_varint(out, bytes.size());
  out += bytes;
}

}  // namespace

int grpc_code(int http_status) {
  constexpr int kOk = 0, kCancelled = 1, kUnknown = 2, kInvalidArgument = 3, kDeadlineExceeded = 4, kNotFound = 5,
                kPermissionDenied = 7, kResourceExhausted = 8, kUnimplemented = 12, kInternal = 13, kUnavailable = 14,
                kUnauthenticated = 16;
  switch (http_status) {
    case 200: return kOk;
    case 400: return kInvalidArgument;
    case 401: return kUnauthenticated;
    case 403: return kPermissionDenied;
    case 404: return kNotFound;
    case 405:
    case 501: return kUnimplemented;
    case 408:
    case 504: return kDeadlineExceeded;
    case 413:
    case 429: return kResourceExhausted;
    case 499: return kCancelled;
    case 500: return kInternal;
    case 503: return kUnavailable;
    default: return kUnknown;
  }
}

std::string retry_details(int grpc_code, std::string_view text, int seconds) {
  std::string duration, retry, any, status;
  append_number(duration, 1, static_cast<uint64_t>(seconds));
  append_bytes(retry, 1, duration);
  append_bytes(any, 1, "type.googleapis.com/google.rpc.RetryInfo");
  append_bytes(any, 2, retry);
  append_number(status, 1, static_cast<uint64_t>(grpc_code));
  append_bytes(status, 2, text);
  append_bytes(status, 3, any);
  return status;
}

}  // namespace bolide::server
