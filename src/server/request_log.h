// RequestLog: what became of the requests asked last, for GET /v1/requests/ID/timeline.
//
// Thread rules: any thread. Times are microseconds of the steady clock.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "server/served_model.h"

namespace bolide::server {

// Tokens that were made to text and handed to the connection at once.
struct Delivery {
  int64_t at_us = 0;
  int32_t tokens = 0;
  int64_t text_us = 0, write_us = 0;
  int32_t deliveries = 1;  // that this stands for
};

class RequestRecord {
 public:
  // `key`: of ApiKey::number, 0 if there are no keys.
  RequestRecord(std::string id, std::string route, const std::shared_ptr<const ServedModel>& model, uint32_t key,
                int64_t arrived_us);

  void submitted(RequestId request, int64_t now_us);  // one a prompt
  // The first 1,024 are told apart; those after them count for the last.
  void delivered(const Delivery& delivery);
  void over(std::string_view reason, int64_t now_us);

  const std::string& id() const { return id_; }
  uint32_t key() const { return key_; }
  // Times are milliseconds from the request's arrival.
  std::string to_json() const;

 private:
  const std::string id_, route_, name_;
  const std::weak_ptr<const ServedModel> model_;  // one that was unloaded must not stay for its records
  const uint32_t key_;
  const int64_t arrived_us_;
  mutable std::mutex mutex_;  // guards what follows
  std::vector<RequestId> requests_;
  int64_t submitted_us_ = 0, over_us_ = 0;
  std::string reason_;
  std::vector<Delivery> deliveries_;
};

class RequestLog {
 public:
  explicit RequestLog(size_t kept) : kept_(kept) {}
  void add(std::shared_ptr<RequestRecord> record);
  // Null: there is no such request, or too many came after it.
  std::shared_ptr<const RequestRecord> find(std::string_view id) const;

 private:
  const size_t kept_;
  mutable std::mutex mutex_;  // guards what follows
  std::unordered_map<std::string, std::shared_ptr<RequestRecord>> records_;
  std::deque<std::string> order_;
};

}  // namespace bolide::server
