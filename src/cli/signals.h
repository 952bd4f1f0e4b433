// Signals that end the program: nothing unfinished stays behind, and a file that shrank under us is named.
#pragma once

namespace bolide::cli {

// For SIGINT, SIGTERM, SIGHUP (where they are not ignored) and SIGBUS.
void handle_signals();

// Removes unfinished files and ends as a program does that this signal ended, so that a shell's loop ends too (exit
// code 128 + signal there). Async-signal-safe.
[[noreturn]] void end_by_signal(int signal);

// Removes unfinished files and ends the process, without waiting for its threads.
[[noreturn]] void end_at_once(int code);

// From now on the first SIGINT or SIGTERM is only remembered, by programs that end what they have begun; the second
// ends the program.
void catch_stops();
// The signal that was remembered; 0: none so far.
int stop_signal();
// SIGHUP, too, is remembered from now on, after catch_stops: it then means that files are to be read again.
void catch_hangups();
// Until a signal is remembered: SIGHUP, or the one that ends the program.
int wait_for_signal();

// True if whoever started the program wants this signal ignored (nohup, a job in the background).
bool is_ignored(int signal);

}  // namespace bolide::cli
