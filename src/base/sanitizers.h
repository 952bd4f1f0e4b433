// Which sanitizers this is compiled with: GCC tells by a macro, clang by a feature. BOLIDE_ADDRESS_SANITIZER and
// BOLIDE_THREAD_SANITIZER are 0 or 1.
#pragma once

#if defined(__SANITIZE_ADDRESS__)
#define BOLIDE_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define BOLIDE_ADDRESS_SANITIZER 1
#endif
#endif
#ifndef BOLIDE_ADDRESS_SANITIZER
#define BOLIDE_ADDRESS_SANITIZER 0
#endif

#if defined(__SANITIZE_THREAD__)
#define BOLIDE_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define BOLIDE_THREAD_SANITIZER 1
#endif
#endif
#ifndef BOLIDE_THREAD_SANITIZER
#define BOLIDE_THREAD_SANITIZER 0
#endif
