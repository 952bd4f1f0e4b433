#include "server/batch/batch.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "server/batch/json_fields.h"
#include "server/openai_response.h"

namespace bolide::server {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLookUpEvery(100);

// What a line of requests says; empty: nothing. Editors put a mark in front of a file and carriage returns behind
// lines.
std::string_view content_of(const LineFile::Line& line) {
  std::string_view text = line.text;
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (line.number == 1 && text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  return text.find_first_not_of(" \t\r") == std::string_view::npos ? std::string_view() : text;
}

Result<uint64_t> line_of(const std::filesystem::path& path, std::string_view custom_id) {
  BOLIDE_TRY(LineFile file, LineFile::open(path, kRequestLineBytesMax));
  while (true) {
    BOLIDE_TRY(const std::optional<LineFile::Line> line, file.next());
    if (!line) return error(Code::kInvalid, fmt::format("{}: was changed while it was read", path.string()));
    const auto request = parse_batch_line(content_of(*line));
    if (request.has_value() && request->custom_id == custom_id) return line->number;
  }
}

// Of {"error": {message}}.
std::string message_of(const HttpResponse& response) {
  if (const auto body = json_fields(response.body); body.has_value())
    if (const auto fields = json_fields(find_field(*body, "error")); fields.has_value())
      if (auto text = json_text(find_field(*fields, "message"))) return *std::move(text);
  return fmt::format("status {}", response.status);
}

Usage usage_of(const HttpResponse& response) {
  Usage usage;
  const auto body = json_fields(response.body);
  if (!body) return usage;
  const auto fields = json_fields(find_field(*body, "usage"));
  if (!fields) return usage;
  const auto number = [&](std::string_view name) {
    return static_cast<int32_t>(json_integer(find_field(*fields, name)).value_or(0));
  };
  usage.prompt_tokens = number("prompt_tokens");
  usage.completion_tokens = number("completion_tokens");
  return usage;
}

}  // namespace

Result<> check_batch_file(const std::filesystem::path& path, IdTable* ids,
                          FunctionRef<Result<>(const BatchLine&)> check, FunctionRef<void(uint64_t)> looking) {
  BOLIDE_TRY(LineFile file, LineFile::open(path, kRequestLineBytesMax));
  while (true) {
    BOLIDE_TRY(const std::optional<LineFile::Line> line, file.next());
    if (!line) return {};
    const std::string_view text = content_of(*line);
    if (text.empty()) continue;
    BOLIDE_TRY(const BatchLine request, parse_batch_line(text).context(file.at(*line)));
    if ((ids->mark(request.custom_id, IdTable::kListed) & IdTable::kListed) != 0) {
      BOLIDE_TRY(const uint64_t earlier, line_of(path, request.custom_id));
      return error(Code::kInvalid, fmt::format("{}: custom_id \"{:.200}\" is that of line {} too; answers are told "
                                               "apart by it: give each request its own",
                                               file.at(*line), request.custom_id, earlier));
    }
    BOLIDE_TRY(check(request).context(file.at(*line)));
    looking(line->begin);
  }
}

// The place of a connection: its client is the ledger, which never goes away.
class Batch::Exchange final : public HttpExchange {
 public:
  Exchange(Batch& batch, BatchLine line) : batch_(batch), texts_(batch.texts_), custom_id_(std::move(line.custom_id)) {
    request_.method = "POST";
    request_.path = std::move(line.url);
    request_.headers = {{"content-type", "application/json"}};
    request_.body = std::move(line.body);
    request_.client = "batch";
  }

  const HttpRequest& request() const override { return request_; }
  void respond(HttpResponse response) override { batch_.finished(custom_id_, request_.body.size(), response); }
  // Lines that ask for a stream were refused when they were read.
  void begin(int, Headers, std::string) override {
    respond(status_response(400, "stream: the answers of a batch are whole", "unsupported_parameter"));
  }
  bool write(std::string) override { return false; }
  void end() override {}
  void abort() override {}
  void on_gone(std::function<void()>) override {}
  void post(std::function<void()> task) override {
    if (const auto texts = texts_.lock()) texts->add(std::move(task));
  }

 private:
  Batch& batch_;
  const std::weak_ptr<WorkQueue> texts_;
  const std::string custom_id_;
  HttpRequest request_;
};

Batch::Batch(Api& api, const ModelRegistry& models, Ledger& ledger, const BatchOptions& options)
    : api_(api),
      models_(models),
      ledger_(ledger),
      options_(options),
      texts_(std::make_shared<WorkQueue>(1, std::numeric_limits<size_t>::max())),
      prompts_(1, std::numeric_limits<size_t>::max()) {}

Batch::~Batch() {
  prompts_.stop();
  texts_->stop();
}

BatchCounts Batch::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

Result<bool> Batch::run(const std::filesystem::path& path, IdTable* ids, Order order) {
  Result<bool> done = ask(path, ids, order);
  auto synced = ledger_.sync();
  if (done && !synced) return std::move(synced).error();
  return done;
}

Result<bool> Batch::ask(const std::filesystem::path& path, IdTable* ids, Order order) {
  BOLIDE_TRY(LineFile file, LineFile::open(path, kRequestLineBytesMax));
  looked_ = {};
  synced_ = Clock::now();
  bool all = false;
  while (true) {
    BOLIDE_TRY(const BatchOrder now, look_up(order));
    if (now != BatchOrder::kGo) break;
    BOLIDE_TRY(const std::optional<LineFile::Line> line, file.next());
    all = !line;
    if (all) break;
    const std::string_view text = content_of(*line);
    if (text.empty()) continue;
    BOLIDE_TRY(BatchLine request, parse_batch_line(text).context(file.at(*line)));
    if ((ids->mark(request.custom_id, IdTable::kAnswered) & IdTable::kAnswered) != 0) continue;
    BOLIDE_TRY(const bool room, wait_until(order, BatchOrder::kEnd, [&] {
                 return counts_.under_way == 0 || (counts_.under_way < options_.under_way_max &&
                                                   bytes_ + request.body.size() <= options_.bytes_max);
               }));
    if (!room) break;
    start(std::move(request));
  }
  BOLIDE_TRY(const bool none_left, wait_until(order, BatchOrder::kEndNow, [&] { return counts_.under_way == 0; }));
  return all && none_left;
}

void Batch::start(BatchLine line) {
  {
    const std::lock_guard lock(mutex_);
    ++counts_.under_way;
    bytes_ += line.body.size();
  }
  prompts_.add([this, exchange = std::make_shared<Exchange>(*this, std::move(line))] { api_.handle(exchange); });
}

Result<BatchOrder> Batch::look_up(Order order) {
  const auto now = Clock::now();
  if (now - looked_ < kLookUpEvery) return order_;
  looked_ = now;
  if (now - synced_ >= options_.sync_every) {
    BOLIDE_TRY(ledger_.sync());
    synced_ = now;
  }
  order_ = order(counts());
  return order_;
}

template <class Ready>
Result<bool> Batch::wait_until(Order order, BatchOrder stop, const Ready& ready) {
  while (true) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, kLookUpEvery, [&] { return failure_.has_value() || ready(); });
      if (failure_) return *failure_;
      if (ready()) return true;
    }
    BOLIDE_TRY(const BatchOrder now, look_up(order));
    if (now >= stop) return false;
  }
}

// A request that was refused for want of an engine is asked again by the next run: it must not count as answered.
bool Batch::is_of_the_moment(int status) const {
  if (status == 429 || status == 499 || status == 503) return true;
  if (status < 500) return false;
  for (const ModelEntry& entry : models_.list())
    if (const auto model = models_.find(entry.name)) {
      const EngineState state = model->engine->stats().state;
      if (state == EngineState::kFailed || state == EngineState::kStopped) return true;
    }
  return false;
}

void Batch::finished(const std::string& custom_id, size_t bytes, const HttpResponse& response) {
  std::optional<Error> failure;
  if (is_of_the_moment(response.status))
    failure = error(Code::kUnavailable, fmt::format("custom_id \"{:.200}\": {}", custom_id, message_of(response)));
  else if (auto written = ledger_.append(write_answer_line(custom_id, response)); !written)
    failure = std::move(written).error();
  const bool answered = response.status == 200;
  const Usage usage = answered ? usage_of(response) : Usage();
  const std::lock_guard lock(mutex_);
  --counts_.under_way;
  bytes_ -= bytes;
  if (!failure) {
    (answered ? counts_.answered : counts_.failed) += 1;
    counts_.prompt_tokens += usage.prompt_tokens;
    counts_.completion_tokens += usage.completion_tokens;
  } else if (!failure_) {
    failure_ = std::move(failure);
  }
  changed_.notify_all();
}

}  // namespace bolide::server
