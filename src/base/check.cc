#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace bolide::detail {

void check_failed(const char* file, int line, const char* condition, std::string_view text) {
  std::fprintf(stderr, "bolide: internal error at %s:%d: %s does not hold. %.*s\n", file, line, condition,
               static_cast<int>(text.size()), text.data());
  std::abort();
}

}  // namespace bolide::detail
