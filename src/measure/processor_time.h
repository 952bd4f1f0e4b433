// How long this process has had processors: what neighbours on the machine change least.
//
// Thread rules: any thread.
#pragma once

namespace bolide {

// Seconds, of all threads together.
double process_cpu_seconds();

}  // namespace bolide
