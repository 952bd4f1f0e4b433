#include "base/result.h"

namespace bolide {

std::string_view to_string(Code code) {
  switch (code) {
    case Code::kInvalid: return "invalid";
    case Code::kNotFound: return "not found";
    case Code::kUnsupported: return "unsupported";
    case Code::kOutOfMemory: return "out of memory";
    case Code::kCancelled: return "cancelled";
    case Code::kDeadline: return "deadline";
    case Code::kOverloaded: return "overloaded";
    case Code::kUnavailable: return "unavailable";
    case Code::kInternal: return "internal";
  }
  return "unknown";
}

Error Error::context(std::string_view what) && {
  text = std::string(what) + ": " + text;
  return std::move(*this);
}

}  // namespace bolide
