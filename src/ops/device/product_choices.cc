// Which kernel does a product: measured when it is first seen, or known from before.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "ops/device/device_op.h"

namespace bolide {
namespace {

// What a kernel's number means is a matter of how many there are; the first number rises when a key's meaning changes.
std::string text_of(std::span<const int64_t> key) {
  return fmt::format("network 1 {} {}", product_choices(), fmt::join(key, " "));
}
constexpr std::string_view kByLibrary = " library";

}  // namespace

ProductChoices::Key ProductChoices::key_of(const ProductJob& job) {
  const Geometry& g = job.at;
  const Epilogue& e = job.epilogue;
  return {static_cast<int64_t>(job.dtype),
          job.M,
          job.N,
          job.K,
          job.batch,
          job.a_stride,
          job.b_stride,
          job.out_stride,
          job.is_convolution + 2 * job.tf32,
          job.b_is_constant,
          g.N,
          g.H,
          g.W,
          g.C,
          g.OH,
          g.OW,
          g.R,
          g.S,
          g.stride_h * int64_t{1} << 32 | g.stride_w,
          g.pad_h * (int64_t{1} << 32) + g.pad_w,
          g.dilation_h * int64_t{1} << 32 | g.dilation_w,
          static_cast<int64_t>(e.then.op),
          e.bias != nullptr,
          e.residual != nullptr};
}

Result<bool> ProductChoices::launch(Stream& stream, const ProductJob& job, const Choice& choice) {
  if (!choice.by_library) return launch_product(stream, job, choice.kernel);
  BOLIDE_TRY(launch_library(stream, job, choice.library, workspace_.bytes()));
  return true;
}

Result<> ProductChoices::make_workspace(Device& device) {
  if (workspace_.size() != 0) return {};
  BOLIDE_TRY(workspace_, device.allocate(kLibraryWorkspace, Memory::kDevice));
  return {};
}

// The median of a few runs; each follows one of itself, so its operands may lie in the cache as they do in a network.
Result<ProductChoices::Choice> ProductChoices::measure(Device& device, Stream& stream, const ProductJob& job) {
  constexpr int kRuns = 5, kRanked = 4;
  BOLIDE_TRY(const auto start, device.make_event());
  BOLIDE_TRY(const auto end, device.make_event());
  BOLIDE_TRY(make_workspace(device));
  std::vector<Choice> choices;
  for (int kernel = 0; kernel < product_choices(); ++kernel) choices.push_back({.kernel = kernel});
  BOLIDE_TRY(const auto algorithms, library_algorithms(stream, job, workspace_.bytes(), kRanked));
  for (const LibraryAlgorithm& algorithm : algorithms) choices.push_back({.library = algorithm, .by_library = true});
  Choice best;
  for (Choice& choice : choices) {
    BOLIDE_TRY(const bool can, launch(stream, job, choice));
    if (!can) continue;
    std::array<double, kRuns> seconds{};
    for (double& one : seconds) {
      BOLIDE_TRY(stream.record(*start));
      for (int i = 0; i < 3; ++i) BOLIDE_TRY(launch(stream, job, choice));
      BOLIDE_TRY(stream.record(*end));
      BOLIDE_TRY(end->synchronize());
      BOLIDE_TRY(one, end->seconds_since(*start));
    }
    std::sort(seconds.begin(), seconds.end());
    choice.seconds = seconds[kRuns / 2] / 3;
    if (best.seconds == 0 || choice.seconds < best.seconds) best = choice;
  }
  return best;
}

Result<std::optional<ProductChoices::Choice>> ProductChoices::recall(Device& device, Stream& stream,
                                                                     const ProductJob& job, const std::string& key) {
  const auto own = timings_->find(key), library = timings_->find(key + std::string(kByLibrary));
  if (!own && !library) return std::nullopt;
  Choice choice;
  if (library && (!own || library->us < own->us)) {
    choice.by_library = true, choice.library = library->tactic.bytes, choice.seconds = library->us * 1e-6;
    BOLIDE_TRY(make_workspace(device));
  } else {
    int32_t kernel = 0;
    std::memcpy(&kernel, own->tactic.bytes.data(), sizeof kernel);
    if (kernel != kNoSuchChoice && (kernel < 0 || kernel >= product_choices())) return std::nullopt;
    choice.kernel = kernel, choice.seconds = own->us * 1e-6;
  }
  const auto can = launch(stream, job, choice);
  return can && *can ? std::optional(choice) : std::nullopt;
}

Result<> ProductChoices::run(Device& device, Stream& stream, const ProductJob& job, bool may_measure) {
  Choice choice;
  if (is_tiled_product(job)) {
    const Key key = key_of(job);
    auto found = chosen_.find(key);
    if (found == chosen_.end() && may_measure) {
      const std::string text = text_of(key);
      const std::lock_guard lock(timings_->measuring);
      BOLIDE_TRY(auto known, recall(device, stream, job, text));
      if (!known) {
        BOLIDE_TRY(known, measure(device, stream, job));
        ProductTimings::Entry entry{.us = known->seconds * 1e6};
        const int32_t kernel = known->kernel;
        if (known->by_library)
          entry.tactic.bytes = known->library;
        else
          std::memcpy(entry.tactic.bytes.data(), &kernel, sizeof kernel);
        timings_->put(known->by_library ? text + std::string(kByLibrary) : text, entry);
      }
      found = chosen_.emplace(key, *known).first;
    }
    if (found != chosen_.end()) choice = found->second;
  }
  BOLIDE_TRY(const bool ran, launch(stream, job, choice));
  if (!ran) return error(Code::kInternal, "a kernel that was measured refuses its product");
  return {};
}

std::optional<ProductTimings::Entry> ProductTimings::find(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  const auto found = known_.find(key);
  return found == known_.end() ? std::nullopt : std::optional(found->second);
}

void ProductTimings::put(const std::string& key, const Entry& entry) {
  const std::lock_guard lock(mutex_);
  known_[key] = fresh_[key] = entry;
}

void ProductTimings::recall(const std::string& key, const Entry& entry) {
  const std::lock_guard lock(mutex_);
  known_.try_emplace(key, entry);
}

std::vector<std::pair<std::string, ProductTimings::Entry>> ProductTimings::take_fresh() {
  const std::lock_guard lock(mutex_);
  std::vector<std::pair<std::string, Entry>> fresh(fresh_.begin(), fresh_.end());
  fresh_.clear();
  return fresh;
}

}  // namespace bolide
