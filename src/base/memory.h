// How much memory can still be had, and what limits it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <new>
#include <stdexcept>
#include <string>

#include "base/result.h"

namespace bolide {

// Bytes that this machine and the control groups (v2) that this process is in can still give without killing anyone:
// what holds pages of files counts, as it is given up when it is needed. SIZE_MAX if nothing says. `root` stands for
// "/" and exists for tests.
size_t available_memory_bytes(const std::filesystem::path& root = "/");

// " (this process's address space is limited to 512.0 MB: RLIMIT_AS, ulimit -v)" if it is, else "": for errors of calls
// that the system refused for want of memory.
std::string address_limit_note();

// Asking the system takes some 100 us, so only what adds up to this is asked about.
constexpr size_t kMemoryAskedFrom = size_t{64} << 20;
// What a process should leave of `available` bytes: the page cache and the kernel need some of them.
constexpr size_t memory_to_leave(size_t available) { return available / 32; }
// kOutOfMemory: so many bytes more are not to be had, by what the system says. To be asked before lists are made that
// grow with tensors: the system refuses nothing, it ends processes.
Result<> expect_memory(size_t bytes);
// For `count` items; none if it is negative.
Result<> expect_memory(int64_t count, size_t item_bytes);

// "1.50 GiB", "512 B".
std::string size_text(size_t bytes);

// What work() returns; an exception of the standard library for want of memory becomes kOutOfMemory.
template <class Work>
auto catching_bad_alloc(Work&& work) -> decltype(work()) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return error(Code::kOutOfMemory, "no memory" + address_limit_note());
  } catch (const std::length_error&) {  // a container of more elements than there are addresses
    return error(Code::kOutOfMemory, "no memory: more elements than any machine has");
  }
}

}  // namespace bolide
