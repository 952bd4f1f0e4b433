# bolide_embed(TARGET FILE SYMBOL): a page becomes two functions of TARGET, declared in the header beside FILE:
#   std::string_view SYMBOL();         the bytes of FILE
#   std::string_view SYMBOL_policy();  the Content-Security-Policy that lets its one <style> and one <script> work, by
#                                      their SHA-256, and nothing else
# in the namespace of FILE's folder. FILE is relative to src/. To call it, after the folder's own target:
#   include(BolideServerAssets)
#   bolide_embed(bolide_server server/playground.html playground_html)
# The C++ source is written at build time, when FILE changed, by this file run as a script (cmake -P): no other tool.

# bytes given as hexadecimal digits -> base64
function(bolide_base64 output hex)
  set(alphabet "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
  string(LENGTH "${hex}" digits)
  set(text "")
  foreach(at RANGE 0 ${digits} 6)  # three bytes, four characters
    string(SUBSTRING "${hex}" ${at} 6 group)
    string(LENGTH "${group}" given)
    if(given EQUAL 0)
      break()
    endif()
    string(SUBSTRING "${group}000000" 0 6 group)
    math(EXPR characters "${given} / 2")  # 1, 2 or 3 bytes need one more
    foreach(i RANGE ${characters})
      math(EXPR index "(0x${group} >> (18 - 6 * ${i})) & 63")
      string(SUBSTRING "${alphabet}" ${index} 1 character)
      string(APPEND text "${character}")
    endforeach()
    math(EXPR missing "3 - ${characters}")
    string(REPEAT "=" ${missing} padding)
    string(APPEND text "${padding}")
  endforeach()
  set(${output} "${text}" PARENT_SCOPE)
endfunction()

# 'sha256-...' of what stands between <TAG> and </TAG>, each of which is there once.
function(bolide_inline_hash output html tag)
  string(FIND "${html}" "<${tag}>\n" begin)
  string(FIND "${html}" "\n</${tag}>" end)
  string(FIND "${html}" "<${tag}>\n" last_begin REVERSE)
  string(LENGTH "<${tag}>" skip)
  if(begin EQUAL -1 OR end LESS begin OR NOT begin EQUAL last_begin)
    message(FATAL_ERROR "${INPUT}: needs one <${tag}> and </${tag}>, each at the beginning of a line")
  endif()
  math(EXPR begin "${begin} + ${skip}")
  math(EXPR length "${end} + 1 - ${begin}")  # with the line's end before </TAG>
  string(SUBSTRING "${html}" ${begin} ${length} content)
  string(SHA256 hash "${content}")
  bolide_base64(base64 "${hash}")
  set(${output} "'sha256-${base64}'" PARENT_SCOPE)
endfunction()

function(bolide_write_embedded)
  file(READ "${INPUT}" html)
  string(REGEX MATCH "[^\t\n -~]" strange "${html}")
  if(NOT strange STREQUAL "")
    message(FATAL_ERROR "${INPUT}: must be ASCII (write other characters as entities or escapes)")
  endif()
  bolide_inline_hash(style "${html}" style)
  bolide_inline_hash(script "${html}" script)
  string(CONCAT policy "default-src 'none'; script-src ${script}; style-src ${style}; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'")
  file(READ "${INPUT}" hex HEX)
  string(REGEX REPLACE "(..)" "\\\\x\\1" bytes "${hex}")
  string(REPEAT "." 112 line)  # 28 bytes
  string(REGEX REPLACE "(${line})" "\\1\"\n    \"" bytes "${bytes}")
  file(CONFIGURE OUTPUT "${OUTPUT}" @ONLY CONTENT [[
// Written by cmake/BolideServerAssets.cmake.
#include "@HEADER@"

namespace @NAMESPACE@ {
namespace {

constexpr char kBytes[] =
    "@bytes@";

}  // namespace

std::string_view @SYMBOL@() { return {kBytes, sizeof(kBytes) - 1}; }

std::string_view @SYMBOL@_policy() {
  return "@policy@";
}

}  // namespace @NAMESPACE@
]])
endfunction()

if(CMAKE_SCRIPT_MODE_FILE)
  cmake_minimum_required(VERSION 3.25)
  bolide_write_embedded()
  return()
endif()

function(bolide_embed target file symbol)
  set(input "${PROJECT_SOURCE_DIR}/src/${file}")
  set(output "${PROJECT_BINARY_DIR}/generated/${symbol}.cc")
  set(script "${CMAKE_CURRENT_FUNCTION_LIST_FILE}")
  string(REGEX REPLACE "\\.[a-z]+$" ".h" header "${file}")
  get_filename_component(folder "${file}" DIRECTORY)
  string(REPLACE "/" "::" namespace "bolide/${folder}")
  add_custom_command(OUTPUT "${output}" DEPENDS "${input}" "${script}"
    COMMAND "${CMAKE_COMMAND}" "-DINPUT=${input}" "-DOUTPUT=${output}" "-DHEADER=${header}" "-DNAMESPACE=${namespace}"
      "-DSYMBOL=${symbol}" -P "${script}"
    COMMENT "Embedding ${file}" VERBATIM)
  target_sources(${target} PRIVATE "${output}")
endfunction()
