#include "cli/served_models.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <optional>
#include <thread>

#include "app/conversation.h"
#include "app/network.h"
#include "base/clock.h"
#include "base/log.h"
#include "cli/flags.h"
#include "engine/plan_runner.h"
#include "server/client_text.h"

namespace bolide::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kNameBytesMax = 128;
constexpr int64_t kStopUs = 2'000'000;  // for a step to end when its model is unloaded

// Names stand in addresses and in answers.
Result<> check_name(const std::string& name) {
  const bool plain =
      !name.empty() && name.size() <= kNameBytesMax && std::all_of(name.begin(), name.end(), [](unsigned char c) {
        return c >= 0x21 && c < 0x7f && c != '"' && c != '\'' && c != '\\' && c != '%' && c != '?' && c != '#';
      });
  if (plain && !name.starts_with('/') && !name.ends_with('/') && name.find("..") == std::string::npos) return {};
  return error(Code::kInvalid,
               fmt::format("\"{:.80}\" cannot be the name of a model: at most {} printable characters "
                           "without spaces, quotation marks, %, ?, # and \"..\"; give one as NAME=MODEL",
                           name, kNameBytesMax));
}

}  // namespace

// A language model has the first three: the device outlives the engine, whose runner has memory of it. An ONNX model is
// the network.
struct ServedModels::Loaded {
  std::unique_ptr<Device> device;
  std::unique_ptr<Engine> engine;
  std::optional<server::ServedModel> served;  // its engine is the one above
  std::unique_ptr<server::ServedNetwork> network;
  std::once_flag stopped;

  void drain() const {
    if (engine != nullptr) engine->drain();
    if (network != nullptr) network->queue->drain();
  }
  bool wait_idle(int64_t timeout_us) const {
    return engine != nullptr ? engine->wait_idle(timeout_us) : network->queue->wait_idle(timeout_us);
  }
  void ask_to_stop() const {
    if (engine != nullptr) engine->ask_to_stop();
    if (network != nullptr) network->queue->ask_to_stop();
  }
  bool stop_within(int64_t timeout_us) const {
    return engine != nullptr ? engine->stop_within(timeout_us) : network->queue->stop_within(timeout_us);
  }
  // A request may unload a model while the program ends: one of them stops it, the other waits.
  void stop() {
    std::call_once(stopped, [this] {
      if (engine != nullptr) engine->stop();
      if (network != nullptr) network->queue->stop();
    });
  }
};

std::pair<std::string, std::string> split_model_argument(const std::string& argument) {
  const size_t equals = argument.find('=');
  const bool is_synth = argument.starts_with("synth:");  // whose options have such signs
  if (equals != std::string::npos && argument.find('/') > equals && !is_synth && !std::filesystem::exists(argument))
    return {argument.substr(0, equals), argument.substr(equals + 1)};
  std::string name = argument;
  if (const size_t colon = name.find(':'); name.starts_with("synth:")) name = name.substr(colon + 1);
  while (name.size() > 1 && name.ends_with('/')) name.pop_back();
  if (const size_t slash = name.rfind('/'); slash != std::string::npos) name = name.substr(slash + 1);
  for (const std::string_view ending : {".gguf", ".engine", ".bolide", ".onnx"})
    if (name.size() > ending.size() && name.ends_with(ending)) name.resize(name.size() - ending.size());
  return {name, argument};
}

Result<std::shared_ptr<ServedModels::Loaded>> ServedModels::open(const std::string& name,
                                                                 const std::string& path) const {
  if (!is_network(path)) return open_language_model(name, path);
  auto loaded = std::make_shared<Loaded>();
  BOLIDE_TRY(loaded->network, server::open_served_network(name, path, options_.network));
  return loaded;
}

Result<std::shared_ptr<ServedModels::Loaded>> ServedModels::open_language_model(const std::string& name,
                                                                                const std::string& path) const {
  std::optional<ChatTemplate> chat_template;
  // A template that cannot be used costs no loading.
  const auto read_template = [&](const ModelOutline& outline) -> Result<> {
    const LoadedModel& loaded = outline.loaded;
    BOLIDE_TRY(chat_template,
               choose_template(loaded.chat_template, loaded.chat_template_file, options_.template_file, false));
    if (!chat_template)
      log::warning("the model has no chat template: it answers /v1/completions alone; --template gives it one",
                   {{"model", std::string_view(name)}});
    return {};
  };
  const OutlineCheck check(read_template);
  BOLIDE_TRY(Model model, open_with_progress(path, options_.model, &check));
  auto loaded = std::make_shared<Loaded>();
  loaded->device = std::move(model.device);
  loaded->served = server::ServedModel{.name = name,
                                       .format = model.format,
                                       .device = {},
                                       .created = unix_seconds(),
                                       .tokenizer = model.tokenizer,
                                       .chat_template = {},
                                       .generation = model.generation,
                                       .stop_ids = model.stop_ids,
                                       .engine = {}};
  server::ServedModel& served = *loaded->served;
  served.device = loaded->device->info().name;
  served.chat_template = std::move(chat_template);
  served.context = model.runner->options().context;
  served.vocab = model.runner->vocab();
  served.weight_bytes = static_cast<int64_t>(model.runner->plans().weights().bytes());
  served.cache_bytes = static_cast<int64_t>(model.runner->kv_bytes());
  loaded->engine = std::make_unique<Engine>(std::make_unique<PlanRunner>(std::move(model.runner)), options_.engine);
  served.engine = std::shared_ptr<EngineClient>(std::shared_ptr<void>(), loaded->engine.get());
  return loaded;
}

Result<> ServedModels::add(const std::string& argument) {
  const auto [name, path] = split_model_argument(argument);
  BOLIDE_TRY(check_name(name));
  {
    const std::lock_guard lock(mutex_);
    if (entry_of(name) != nullptr)
      return error(Code::kInvalid,
                   fmt::format("two models are called {}: give one another name, as NAME={}", name, path));
    entries_.push_back({name, path, nullptr, "UNAVAILABLE", "not loaded", false});
  }
  return load_file(name);
}

Result<> ServedModels::remove(std::string_view name) {
  auto unloaded = unload(name);
  const std::lock_guard lock(mutex_);
  const Entry* entry = entry_of(name);
  if (entry == nullptr || entry->busy) return unloaded;
  entries_.erase(entries_.begin() + (entry - entries_.data()));
  // One that was not loaded is gone all the same.
  return unloaded || unloaded.error().code == Code::kNotFound ? Result<>() : unloaded;
}

ServedModels::Entry* ServedModels::entry_of(std::string_view name) {
  const auto it = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.name == name; });
  return it == entries_.end() ? nullptr : &*it;
}

std::shared_ptr<ServedModels::Loaded> ServedModels::ready(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  for (const Entry& entry : entries_)
    if (entry.name == name && !entry.busy) return entry.loaded;
  return nullptr;
}

std::shared_ptr<const server::ServedModel> ServedModels::find(std::string_view name) const {
  const auto loaded = ready(name);
  if (loaded == nullptr || loaded->engine == nullptr) return nullptr;
  return {loaded, &*loaded->served};
}

std::shared_ptr<const server::ServedNetwork> ServedModels::find_network(std::string_view name) const {
  const auto loaded = ready(name);
  if (loaded == nullptr || loaded->network == nullptr) return nullptr;
  return {loaded, loaded->network.get()};
}

std::vector<std::shared_ptr<ServedModels::Loaded>> ServedModels::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Loaded>> all;
  for (const Entry& entry : entries_)
    if (entry.loaded != nullptr) all.push_back(entry.loaded);
  return all;
}

std::vector<server::ModelEntry> ServedModels::list() const {
  const std::lock_guard lock(mutex_);
  std::vector<server::ModelEntry> list;
  for (const Entry& entry : entries_) {
    const bool ready = entry.loaded != nullptr && !entry.busy;
    list.push_back({entry.name, ready ? "READY" : entry.state, ready ? "" : entry.reason});
  }
  return list;
}

Result<> ServedModels::load(std::string_view name) {
  auto loaded = load_file(name);
  if (loaded) return {};
  log::warning("a model was not loaded", {{"model", name}, {"error", std::string_view(loaded.error().text)}});
  const std::lock_guard lock(mutex_);
  const Entry* entry = entry_of(name);
  if (entry == nullptr) return loaded;
  return error(loaded.error().code, server::without_path(loaded.error().text, entry->path, name));
}

Result<> ServedModels::load_file(std::string_view name) {
  std::string path;
  {
    const std::lock_guard lock(mutex_);
    Entry* entry = entry_of(name);
    if (entry == nullptr) return error(Code::kNotFound, fmt::format("no model is called {:.200}", name));
    if (entry->busy) return error(Code::kUnavailable, fmt::format("model {} is being loaded or unloaded", name));
    if (entry->loaded != nullptr) return {};
    if (draining_) return error(Code::kUnavailable, "the server is shutting down");
    entry->busy = true;
    entry->state = "LOADING";
    entry->reason = "is being loaded";
    path = entry->path;
  }
  auto opened = open(std::string(name), path);
  const std::lock_guard lock(mutex_);
  Entry* entry = entry_of(name);
  entry->busy = false;
  entry->state = "UNAVAILABLE";
  // Clients read it.
  entry->reason = opened ? "" : server::without_path(opened.error().text, path, name);
  if (!opened) return std::move(opened).error();
  entry->loaded = *std::move(opened);
  return {};
}

Result<> ServedModels::unload(std::string_view name) {
  std::shared_ptr<Loaded> loaded;
  {
    const std::lock_guard lock(mutex_);
    Entry* entry = entry_of(name);
    if (entry == nullptr || entry->loaded == nullptr)
      return error(Code::kNotFound, fmt::format("no model {:.200} is loaded", name));
    if (entry->busy) return error(Code::kUnavailable, fmt::format("model {} is being loaded or unloaded", name));
    entry->busy = true;
    entry->state = "UNLOADING";
    entry->reason = "is being unloaded";
    loaded = entry->loaded;
  }
  loaded->drain();
  const auto end = Clock::now() + std::chrono::microseconds(options_.drain_us);
  const bool idle = loaded->wait_idle(options_.drain_us);
  if (!loaded->stop_within(kStopUs)) {
    // What a step that never ends works with cannot be freed: it stays as it is.
    const std::lock_guard lock(mutex_);
    entry_of(name)->reason = "cannot be unloaded, a step of it does not end: restart the server";
    return error(Code::kDeadline, fmt::format("model {}: {}", name, entry_of(name)->reason));
  }
  loaded->stop();  // who still has the model finds one that refuses
  // Memory goes when the last request lets go of it: here, not on a thread that answers others.
  while (loaded.use_count() > 2 && Clock::now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const std::lock_guard lock(mutex_);
  Entry* entry = entry_of(name);
  entry->loaded = nullptr;
  entry->busy = false;
  entry->state = "UNAVAILABLE";
  entry->reason = "unloaded";
  if (idle) return {};
  return error(Code::kDeadline, fmt::format("model {}: requests that did not end in time were cut off", name));
}

std::vector<server::DeviceMemory> ServedModels::device_memory() const {
  std::vector<server::DeviceMemory> rows;
  for (const auto& loaded : all()) {
    Device* device = loaded->network != nullptr ? loaded->network->gpu : loaded->device.get();
    if (device == nullptr || !device->info().gpu) continue;
    const int index = device->info().id.index;
    if (std::any_of(rows.begin(), rows.end(), [&](const server::DeviceMemory& row) { return row.index == index; }))
      continue;
    const auto free = device->free_memory();
    if (!free) continue;
    const GpuInfo& gpu = *device->info().gpu;
    rows.push_back({index, gpu.name, gpu.memory_bytes - static_cast<int64_t>(*free), gpu.memory_bytes});
  }
  return rows;
}

void ServedModels::drain() {
  {
    const std::lock_guard lock(mutex_);
    draining_ = true;
  }
  for (const auto& loaded : all()) loaded->drain();
}

bool ServedModels::wait_idle(int64_t timeout_us) {
  const auto end = Clock::now() + std::chrono::microseconds(timeout_us);
  for (const auto& loaded : all()) {
    const auto left = std::chrono::duration_cast<std::chrono::microseconds>(end - Clock::now()).count();
    if (!loaded->wait_idle(std::max<int64_t>(left, 0))) return false;
  }
  return true;
}

void ServedModels::stop() {
  for (const auto& loaded : all()) loaded->stop();
}

std::vector<std::string> ServedModels::stop_within(int64_t timeout_us) {
  std::vector<std::pair<std::string, std::shared_ptr<Loaded>>> there;
  {
    const std::lock_guard lock(mutex_);
    for (const Entry& entry : entries_)
      if (entry.loaded != nullptr) there.emplace_back(entry.name, entry.loaded);
  }
  for (const auto& [name, loaded] : there) loaded->ask_to_stop();
  std::vector<std::string> hanging;
  const int64_t end = steady_us() + timeout_us;
  for (const auto& [name, loaded] : there)
    if (!loaded->stop_within(std::max<int64_t>(end - steady_us(), 0))) hanging.push_back(name);
  return hanging;
}

}  // namespace bolide::cli
