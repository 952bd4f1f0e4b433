#include "server/api_keys.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>
#include <charconv>
#include <span>

namespace bolide::server {
namespace {

constexpr size_t kKeyBytesMin = 16, kKeyBytesMax = 512;

std::array<uint8_t, 32> digest_of(std::string_view key) {
  std::array<uint8_t, 32> digest{};
  SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), digest.data());
  return digest;
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  constexpr std::string_view kSpace = " \t\r";
  for (size_t at = line.find_first_not_of(kSpace); at != std::string_view::npos;) {
    const size_t end = std::min(line.find_first_of(kSpace, at), line.size());
    words.push_back(line.substr(at, end - at));
    at = line.find_first_not_of(kSpace, end);
  }
  return words;
}

Result<ApiKey> parse_line(std::span<const std::string_view> words) {
  if (words.size() < 2)
    return error(Code::kInvalid, "expected NAME KEY [concurrent=N] [requests-per-minute=N] [urgent]");
  if (words[1].size() < kKeyBytesMin || words[1].size() > kKeyBytesMax)
    return error(Code::kInvalid, fmt::format("a key has {} to {} characters, this one has {}", kKeyBytesMin,
                                             kKeyBytesMax, words[1].size()));
  ApiKey key;
  key.name = words[0];
  key.digest = digest_of(words[1]);
  for (const std::string_view word : words.subspan(2)) {
    const size_t equals = word.find('=');
    const std::string_view name = word.substr(0, equals);
    const std::string_view value = equals == std::string_view::npos ? std::string_view() : word.substr(equals + 1);
    int32_t number = 0;
    const auto [end, fault] = std::from_chars(value.data(), value.data() + value.size(), number);
    const bool whole = fault == std::errc() && end == value.data() + value.size() && number > 0;
    if (name == "concurrent" && whole)
      key.concurrent_max = number;
    else if (name == "requests-per-minute" && whole)
      key.requests_per_minute_max = number;
    else if (word == "urgent")
      key.urgent = true;
    else
      return error(Code::kInvalid,
                   "behind the key there may be concurrent=N and requests-per-minute=N, N above 0, and urgent");
  }
  return key;
}

Result<std::vector<ApiKey>> parse_keys(std::string_view text, std::string_view label) {
  std::vector<ApiKey> keys;
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const auto words = words_of(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (words.empty() || words[0].starts_with('#')) continue;
    auto key = parse_line(words);
    if (!key) return std::move(key).error().context(fmt::format("{}: line {}", label, number));
    for (const ApiKey& other : keys)
      if (other.name == key->name || other.digest == key->digest)
        return error(Code::kInvalid, fmt::format("{}: line {}: name or key is that of another line", label, number));
    keys.push_back(*std::move(key));
  }
  if (keys.empty()) return error(Code::kInvalid, fmt::format("{}: has no keys", label));
  return keys;
}

}  // namespace

Result<std::unique_ptr<ApiKeys>> ApiKeys::parse(std::string_view text, std::string_view label, uint64_t secret) {
  auto keys = std::make_unique<ApiKeys>();
  BOLIDE_TRY(keys->replace(text, label, secret));
  return keys;
}

Result<> ApiKeys::replace(std::string_view text, std::string_view label, uint64_t secret) {
  BOLIDE_TRY(std::vector<ApiKey> wanted, parse_keys(text, label));
  const std::unique_lock lock(keys_mutex_);
  const std::vector<const ApiKey*> before = std::move(valid_);
  valid_.clear();
  for (ApiKey& key : wanted) {
    const auto same =
        std::find_if(before.begin(), before.end(), [&](const ApiKey* k) { return k->digest == key.digest; });
    key.number = same == before.end() ? ++numbers_ : (*same)->number;
    key.salt = secret;
    for (const uint8_t byte : key.digest) key.salt = (key.salt ^ byte) * 0x100000001b3;  // FNV-1a
    valid_.push_back(&keys_.emplace_back(std::move(key)));
  }
  return {};
}

const ApiKey* ApiKeys::find(std::string_view key) const {
  const auto digest = digest_of(key.substr(0, kKeyBytesMax + 1));
  const ApiKey* found = nullptr;
  const std::shared_lock lock(keys_mutex_);
  for (const ApiKey* known : valid_)
    if (CRYPTO_memcmp(known->digest.data(), digest.data(), digest.size()) == 0) found = known;
  return found;
}

Result<std::shared_ptr<void>> ApiKeys::enter(const ApiKey& key, int64_t now_us) {
  const std::lock_guard lock(*mutex_);
  Use& use = (*uses_)[key.number];
  if (key.concurrent_max > 0 && use.running >= key.concurrent_max)
    return error(Code::kOverloaded, fmt::format("key {}: {} requests run already", key.name, use.running));
  if (key.requests_per_minute_max > 0) {
    const double most = key.requests_per_minute_max;
    if (!std::exchange(use.begun, true))
      use.tokens = most;
    else
      use.tokens = std::min(most, use.tokens + most * static_cast<double>(now_us - use.filled_us) / 60e6);
    use.filled_us = now_us;
    if (use.tokens < 1)
      return error(Code::kOverloaded,
                   fmt::format("key {}: more than {} requests a minute", key.name, key.requests_per_minute_max));
    use.tokens -= 1;
  }
  ++use.running;
  // Requests may outlive this object.
  return std::shared_ptr<void>(nullptr, [mutex = mutex_, uses = uses_, number = key.number](void*) {
    const std::lock_guard end(*mutex);
    --(*uses)[number].running;
  });
}

Result<> check_priority(const ApiKey& key, int32_t priority) {
  if (priority >= 0 || key.urgent) return {};
  return error(Code::kInvalid, "priority: this key may not go before others: leave it out, or give 0 or more");
}

}  // namespace bolide::server
