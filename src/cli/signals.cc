#include "cli/signals.h"

#include <semaphore.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>

#include "base/file.h"

namespace bolide::cli {
namespace {

// Only what POSIX lists as async-signal-safe is called here.
void write_error(const char* text, size_t bytes) {
  while (bytes > 0) {
    const ssize_t n = ::write(STDERR_FILENO, text, bytes);
    if (n <= 0) return;
    text += n;
    bytes -= static_cast<size_t>(n);
  }
}

void write_error(const char* text) { write_error(text, std::strlen(text)); }

// A name can have in it what a terminal would obey.
void write_name(const char* name) {
  char shown[1024];
  size_t count = 0;
  for (; name[count] != '\0' && count < sizeof shown; ++count) {
    const auto byte = static_cast<unsigned char>(name[count]);
    shown[count] = byte < 0x20 || byte == 0x7f ? '?' : name[count];
  }
  write_error(shown, count);
}

void on_bus_error(int signal, siginfo_t* info, void*) {
  if (info->si_code <= 0) end_by_signal(signal);  // sent by a process
  remove_unfinished_files();
  write_error("bolide: error: ");
  if (const char* name = mapped_file_at(info->si_addr)) {
    write_name(name);
    write_error(": ");
  }
  write_error("a file that is in use was shortened or its medium failed\n");
  ::_exit(1);
}

sem_t g_stop;
std::atomic<int> g_stop_signal{0};

void on_stop(int signal) {
  int none = 0;
  if (!g_stop_signal.compare_exchange_strong(none, signal)) end_by_signal(signal);
  ::sem_post(&g_stop);
}

}  // namespace

void end_by_signal(int signal) {
  remove_unfinished_files();
  struct sigaction action{};
  action.sa_handler = SIG_DFL;
  ::sigaction(signal, &action, nullptr);
  sigset_t only;
  ::sigemptyset(&only);
  ::sigaddset(&only, signal);
  ::sigprocmask(SIG_UNBLOCK, &only, nullptr);
  ::raise(signal);
  ::_exit(128 + signal);  // the first process of a container does not die of signals
}

void end_at_once(int code) {
  remove_unfinished_files();
  std::fflush(nullptr);
  ::_exit(code);
}

bool is_ignored(int signal) {
  struct sigaction action{};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

void catch_stops() {
  ::sem_init(&g_stop, 0, 0);
  struct sigaction action{};
  action.sa_handler = on_stop;
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGINT, SIGTERM})
    if (!is_ignored(signal)) ::sigaction(signal, &action, nullptr);
}

int stop_signal() { return g_stop_signal; }

void catch_hangups() {
  struct sigaction action{};
  action.sa_handler = [](int) { ::sem_post(&g_stop); };
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGHUP, &action, nullptr);
}

int wait_for_signal() {
  while (::sem_wait(&g_stop) != 0) {
  }
  const int stop = g_stop_signal;
  return stop != 0 ? stop : SIGHUP;
}

void handle_signals() {
  struct sigaction end{};
  end.sa_handler = end_by_signal;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP})
    if (!is_ignored(signal)) ::sigaction(signal, &end, nullptr);
  struct sigaction bus{};
  bus.sa_sigaction = on_bus_error;
  bus.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &bus, nullptr);
}

}  // namespace bolide::cli
