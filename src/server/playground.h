// The playground: a page over the server's own API, made from playground.html by cmake/BolideServerAssets.cmake.
//
// Thread rules: constants, any thread.
#pragma once

#include <string_view>

namespace bolide::server {

// The page, UTF-8: text/html; charset=utf-8. The same bytes for everybody; nobody needs a key for it.
std::string_view playground_html();
// The value of its Content-Security-Policy header: nothing but this very page's script and style runs.
std::string_view playground_html_policy();

}  // namespace bolide::server
