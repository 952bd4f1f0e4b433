// ApiKeys: who may use the server, and how much at once.
//
// Thread rules: any thread.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace bolide::server {

// What those hear who have none.
inline constexpr std::string_view kKeyNeeded =
    "this server needs an API key: send Authorization: Bearer KEY, with one that it knows";

struct ApiKey {
  std::string name;                     // for logs and metrics
  std::array<uint8_t, 32> digest{};     // SHA-256 of the key: the key itself is not kept
  int32_t concurrent_max = 0;           // requests; 0: no limit
  int32_t requests_per_minute_max = 0;  // 0: no limit
  bool urgent = false;                  // may ask for a priority below 0: before others
  uint32_t number = 0;                  // from 1: Request::key
  uint64_t salt = 0;                    // Request::cache_salt
};

// Errors, kInvalid: the key may not go before others.
Result<> check_priority(const ApiKey& key, int32_t priority);

class ApiKeys {
 public:
  ApiKeys() = default;
  // Lines "NAME KEY [concurrent=N] [requests-per-minute=N] [urgent]"; empty ones and those that begin with # are
  // skipped. `secret` makes the salts. Errors name the line, never a key.
  static Result<std::unique_ptr<ApiKeys>> parse(std::string_view text, std::string_view label, uint64_t secret);

  // The keys of this text in place of those that there are. A key that stays keeps its number and what its requests
  // use; requests of one that goes end as they would have. Errors: those of parse; nothing has changed then.
  Result<> replace(std::string_view text, std::string_view label, uint64_t secret);

  // Null: there is no such key. Takes the same time for every wrong key. What it points to stays as long as this.
  const ApiKey* find(std::string_view key) const;

  // What a request that generates holds until it is over. Errors, kOverloaded: the key's limits.
  Result<std::shared_ptr<void>> enter(const ApiKey& key, int64_t now_us);

  size_t count() const {
    const std::shared_lock lock(keys_mutex_);
    return valid_.size();
  }

 private:
  struct Use {
    int32_t running = 0;
    double tokens = 0;  // of a bucket that a minute fills
    int64_t filled_us = 0;
    bool begun = false;
  };
  mutable std::shared_mutex keys_mutex_;  // guards what follows
  std::deque<ApiKey> keys_;               // all that there ever were
  std::vector<const ApiKey*> valid_;
  uint32_t numbers_ = 0;

  std::shared_ptr<std::mutex> mutex_ = std::make_shared<std::mutex>();  // guards uses_
  std::shared_ptr<std::map<uint32_t, Use>> uses_ = std::make_shared<std::map<uint32_t, Use>>();
};

}  // namespace bolide::server
