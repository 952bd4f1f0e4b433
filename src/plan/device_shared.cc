#include "plan/device_shared.h"

#include "base/log.h"
#include "tune/timing_cache.h"

namespace bolide {

DeviceShared::DeviceShared(Device& device, std::filesystem::path timings)
    : device_(device), constants_(device), outputs_(device), file_(std::move(timings)) {
  if (file_.empty()) return;
  const TimingCache cache = TimingCache::read(file_, tuning_fingerprint(device_.info()));
  for (const auto& [key, entry] : cache.entries()) timings_->recall(key, {entry.tactic, entry.us});
}

void DeviceShared::save_timings() {
  const std::lock_guard lock(file_mutex_);
  if (file_.empty()) return;
  const auto fresh = timings_->take_fresh();
  if (fresh.empty()) return;
  // Others may have added to it meanwhile.
  TimingCache cache = TimingCache::read(file_, tuning_fingerprint(device_.info()));
  for (const auto& [key, entry] : fresh) cache.put(key, {entry.tactic, entry.us, entry.us});
  if (const auto written = cache.write(file_); !written) {
    log::warning("what was measured cannot be kept; the next process measures again",
                 {{"file", std::string_view(file_.native())}, {"reason", std::string_view(written.error().text)}});
    file_.clear();
  }
}

}  // namespace bolide
