// How much memory can still be had, and what limits it.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

namespace bolide {

// Bytes that this machine and the control groups (v2) that this process is in can still give without killing anyone:
// what holds pages of files counts, as it is given up when it is needed. SIZE_MAX if nothing says. `root` stands for
// "/" and exists for tests.
size_t available_memory_bytes(const std::filesystem::path& root = "/");

// " (this process's address space is limited to 512.0 MB: RLIMIT_AS, ulimit -v)" if it is, else "": for errors of calls
// that the system refused for want of memory.
std::string address_limit_note();

}  // namespace bolide
