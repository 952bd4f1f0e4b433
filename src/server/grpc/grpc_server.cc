// gRPC by Debian's libgrpc++, in its callback API: one handler for all methods, which sees messages as bytes. So a call
// is judged by its metadata before its first message is read.
#include "server/grpc/grpc_server.h"

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>
#include <openssl/ssl.h>

#include "base/file.h"
#include "server/grpc/call.h"
#include "server/grpc/connections.h"
#include "server/http_text.h"

namespace bolide::server {
namespace rpc {
namespace {

std::string_view text_of(const ::grpc::string_ref& text) { return {text.data(), text.size()}; }

// "ipv4:127.0.0.1:5000", "ipv6:%5B::1%5D:5000": the address alone.
std::string address_of(std::string_view peer) {
  peer.remove_prefix(std::min(peer.size(), peer.find(':') + 1));
  std::string address(peer.substr(0, peer.rfind(':')));
  for (const auto& [escape, plain] : {std::pair{"%5B", ""}, {"%5D", ""}, {"%25", "%"}})
    if (const size_t at = address.find(escape); at != std::string::npos) address.replace(at, 3, plain);
  return address;
}

HttpRequest head_of(const ::grpc::GenericCallbackServerContext& context) {
  HttpRequest head;
  head.method = "POST";
  head.path = context.method();
  head.client = address_of(context.peer());
  head.headers.emplace_back("host", context.host());
  for (const auto& [name, value] : context.client_metadata()) head.headers.emplace_back(text_of(name), text_of(value));
  // Clients may wait for longer than a clock's nanoseconds can say.
  constexpr int64_t kSecondsMax = 365 * 24 * 3600;
  const gpr_timespec left = gpr_time_sub(context.raw_deadline(), gpr_now(context.raw_deadline().clock_type));
  if (left.tv_sec < kSecondsMax)
    head.deadline =
        std::chrono::steady_clock::now() + std::chrono::seconds(left.tv_sec) + std::chrono::nanoseconds(left.tv_nsec);
  return head;
}

// Without a copy.
::grpc::ByteBuffer buffer_of(std::string text) {
  auto* kept = new std::string(std::move(text));
  const ::grpc::Slice slice(kept->data(), kept->size(), [](void* of) { delete static_cast<std::string*>(of); }, kept);
  return {&slice, 1};
}

std::string bytes_of(const ::grpc::ByteBuffer& buffer) {
  std::vector<::grpc::Slice> slices;
  (void)buffer.Dump(&slices);
  std::string bytes;
  bytes.reserve(buffer.Length());
  for (const ::grpc::Slice& slice : slices) bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  return bytes;
}

}  // namespace

// --- exchanges: any thread ---

void Exchange::respond(HttpResponse response) {
  call_->post([self = shared_from_this(), response = std::move(response)]() mutable {
    self->call_->answer(*self, std::move(response));
  });
}
// Connections have pings of their own, and a stream has no head but its first message.
void Exchange::begin(int, Headers, std::string) {}
bool Exchange::write(std::string chunk) {
  if (gone_) return false;
  const bool fits = call_->reserve(chunk.size());
  call_->post([self = shared_from_this(), chunk = std::move(chunk), fits] { self->call_->write(*self, chunk, !fits); });
  return fits;
}
void Exchange::end() {
  call_->post([self = shared_from_this()] { self->call_->end(*self); });
}
void Exchange::abort() {
  call_->post([self = shared_from_this()] { self->call_->finish(500, "the answer is incomplete"); });
}
void Exchange::on_gone(std::function<void()> callback) {
  call_->post([self = shared_from_this(), callback = std::move(callback)]() mutable {
    if (self->gone_)
      callback();
    else if (!self->over_)
      self->on_gone_ = std::move(callback);
  });
}
void Exchange::post(std::function<void()> task) {
  call_->post([self = shared_from_this(), task = std::move(task)] {
    try {
      task();
    } catch (const std::exception& thrown) {
      self->call_->fail(*self, thrown.what());
    }
  });
}
void Exchange::post_at(std::chrono::steady_clock::time_point when, std::function<void()> task) {
  call_->post([self = shared_from_this(), when, task = std::move(task)]() mutable {
    if (self->over_) return;
    self->alarm_ = std::make_unique<::grpc::Alarm>();
    const auto at = std::chrono::system_clock::now() + std::chrono::duration_cast<std::chrono::system_clock::duration>(
                                                           when - std::chrono::steady_clock::now());
    self->alarm_->Set(at, [weak = self->weak_from_this(), task = std::move(task)](bool is_time) {
      const auto there = is_time ? weak.lock() : nullptr;
      if (there == nullptr) return;
      there->post([there = there.get(), task] {
        if (!there->over_) task();
      });
    });
  });
}

// --- the call ---

void Call::post(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    if (std::exchange(runs_, true)) return;
  }
  const auto self = shared_from_this();
  if (shared_->pool.add([self] { self->run(); })) return;
  std::deque<std::function<void()>> dropped;  // the server has ended; what tasks hold may hold this call
  const std::lock_guard lock(mutex_);
  dropped.swap(tasks_);
  runs_ = false;
}

void Call::run() {
  while (true) {
    std::function<void()> task;
    {
      const std::lock_guard lock(mutex_);
      if (tasks_.empty()) {
        runs_ = false;
        return;
      }
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    try {
      task();
    } catch (const std::exception& thrown) {
      log::error("a call failed", {{"path", std::string_view(head_.path)}, {"what", thrown.what()}});
      finish(500, "the server failed at this call");
    }
  }
}

void Call::begin(Reactor* reactor) {
  reactor_ = reactor;
  head_ = head_of(*context_);
  if (const auto refusal = shared_->gate(head_, &method_)) {
    shared_->count(refusal->status);
    return finish(refusal->status, refusal->body, refusal->headers);
  }
  read();
}

void Call::read() {
  if (reactor_ == nullptr || reads_ || no_more_ || open_.size() >= shared_->options.limits.requests_per_call) return;
  reads_ = true;
  reactor_->StartRead(&in_);
}

void Call::read_done(bool is_message) {
  reads_ = false;
  if (reactor_ == nullptr || status_) return;
  const GrpcLimits& limits = shared_->options.limits;
  if (!is_message) {
    no_more_ = true;
    if (!takes_many())
      return finish(400, fmt::format("a message is expected, of at most {} bytes", limits.message_bytes));
    if (open_.empty()) finish(200, "");
    return;
  }
  const size_t bytes = in_.Length();
  if (bytes > limits.message_bytes)
    return finish(413, fmt::format("the message has {} bytes, at most {}", bytes, limits.message_bytes));
  HttpRequest request = head_;
  request.body = bytes_of(in_);
  in_.Clear();
  take(std::move(request));
  if (takes_many()) read();
}

void Call::take(HttpRequest request) {
  const size_t bytes = request.body.size();
  const auto exchange = std::make_shared<Exchange>(shared_from_this(), std::move(request));
  open_.push_back(exchange);
  const uint64_t all = shared_->message_bytes += bytes;
  if (all > shared_->options.limits.messages_bytes)
    return finish(503, "too many messages at once", {{"Retry-After", "1"}});
  try {
    method_.handler(exchange);
  } catch (const std::exception& thrown) {
    fail(*exchange, thrown.what());
  }
}

void Call::answer(Exchange& exchange, HttpResponse response) {
  if (exchange.over_) return;
  if (takes_many()) {
    shared_->count(response.status);
    push(std::move(response.body));
    return over(exchange);
  }
  if (response.status != 200) return finish(response.status, response.body, response.headers);
  push(std::move(response.body));
  finish(200, "", response.headers);
}

void Call::write(Exchange& exchange, std::string_view chunk, bool too_slow) {
  unsent_ -= chunk.size();  // each message counts for itself from here
  if (exchange.over_) return;
  if (too_slow) {
    context_->TryCancel();
    return cancelled();
  }
  while (chunk.size() >= sizeof(uint32_t)) {
    const auto length = load_unaligned<uint32_t>(as_bytes(chunk).data());
    push(std::string(chunk.substr(sizeof length, length)));
    chunk.remove_prefix(std::min(chunk.size(), sizeof length + length));
  }
}

void Call::end(Exchange& exchange) {
  if (exchange.over_) return;
  if (!takes_many()) return finish(200, "");
  shared_->count(200);
  over(exchange);
}

void Call::fail(Exchange& exchange, std::string_view what) {
  log::error("a handler failed", {{"path", std::string_view(head_.path)}, {"what", what}});
  if (exchange.over_) return;
  const auto gone = std::exchange(exchange.on_gone_, nullptr);  // ends what still works for this answer
  finish(500, "the server failed at this request");
  if (gone) gone();
}

void Call::over(Exchange& exchange) {
  exchange.over_ = true;
  exchange.on_gone_ = nullptr;
  exchange.alarm_ = nullptr;
  shared_->message_bytes -= exchange.request_.body.size();
  std::erase_if(open_, [&](const auto& one) { return one.get() == &exchange; });
  if (reactor_ == nullptr || status_ || !takes_many()) return;
  if (no_more_ && open_.empty()) return finish(200, "");
  read();
}

void Call::cancelled() {
  const auto left = open_;
  for (const auto& exchange : left) {
    exchange->gone_ = true;
    const auto callback = std::exchange(exchange->on_gone_, nullptr);
    try {
      if (callback) callback();
    } catch (const std::exception& thrown) {
      log::error("a handler failed", {{"path", std::string_view(head_.path)}, {"what", thrown.what()}});
    }
  }
  out_.clear();
  finish(499, "");
}

void Call::finish(int status, std::string_view text, const Headers& headers) {
  if (reactor_ == nullptr || status_) return;
  if (status != 499 && (!takes_many() || status != 200)) shared_->count(status);
  int retry_seconds = 0;
  for (const auto& [name, value] : headers) {
    if (name == "Retry-After") retry_seconds = std::atoi(value.c_str());
    if (name == "x-request-id") context_->AddTrailingMetadata(name, value);
  }
  const std::string what(text.substr(0, kTextBytesMax));
  const int code = grpc_code(status);
  std::string details;
  if (retry_seconds > 0) {
    details = retry_details(code, what, retry_seconds);
    context_->AddTrailingMetadata("grpc-retry-pushback-ms", fmt::format("{}", retry_seconds * 1000));
  }
  status_ = status == 200 ? ::grpc::Status::OK : ::grpc::Status(static_cast<::grpc::StatusCode>(code), what, details);
  // Those that a failing call takes with it.
  const auto left = open_;
  for (const auto& exchange : left) {
    const auto callback = std::exchange(exchange->on_gone_, nullptr);
    exchange->gone_ = true;
    over(*exchange);
    if (callback && status != 200) callback();
  }
  send();
}

void Call::push(std::string message) {
  if (reactor_ == nullptr) return;
  const size_t bytes = message.size();
  unsent_ += bytes;
  out_.emplace_back(buffer_of(std::move(message)), bytes);
  send();
}

void Call::send() {
  if (reactor_ == nullptr || sends_) return;
  if (!out_.empty()) {
    sends_ = true;
    std::tie(sending_, sending_bytes_) = std::move(out_.front());
    out_.pop_front();
    return reactor_->StartWrite(&sending_);
  }
  if (status_) std::exchange(reactor_, nullptr)->Finish(*status_);
}

void Call::write_done(bool done) {
  sends_ = false;
  unsent_ -= sending_bytes_;
  if (!done) out_.clear();  // the client is gone; OnCancel says so, too
  send();
}

}  // namespace rpc

namespace {

using rpc::Shared;

// Of a call for which there is no room: it takes none.
class Refusal final : public ::grpc::ServerGenericBidiReactor {
 public:
  Refusal() {
    constexpr const char* kText = "too many calls at once";
    constexpr int kSeconds = 1;
    const auto code = ::grpc::StatusCode::RESOURCE_EXHAUSTED;
    Finish(::grpc::Status(code, kText, retry_details(code, kText, kSeconds)));
  }
  void OnDone() override { delete this; }
};

class Service final : public ::grpc::CallbackGenericService {
 public:
  explicit Service(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}
  ::grpc::ServerGenericBidiReactor* CreateReactor(::grpc::GenericCallbackServerContext* context) override {
    if (shared_->calls >= shared_->options.limits.calls) {
      shared_->count(429);
      return new Refusal();
    }
    const auto call = std::make_shared<rpc::Call>(shared_, context);
    auto* reactor = new rpc::Reactor(call, shared_);
    call->post([call, reactor] { call->begin(reactor); });
    return reactor;
  }

 private:
  const std::shared_ptr<Shared> shared_;
};

constexpr uint64_t kPemBytesMax = 1u << 20;

Result<std::shared_ptr<::grpc::ServerCredentials>> credentials_of(const GrpcOptions& options) {
  if (options.tls_certificate.empty()) return ::grpc::InsecureServerCredentials();
  // The library looks at them when the first client comes.
  const std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> trial(SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
  if (SSL_CTX_use_certificate_chain_file(trial.get(), options.tls_certificate.c_str()) != 1)
    return error(Code::kInvalid,
                 fmt::format("{}: a chain of certificates in PEM is expected", options.tls_certificate));
  if (SSL_CTX_use_PrivateKey_file(trial.get(), options.tls_key.c_str(), SSL_FILETYPE_PEM) != 1)
    return error(Code::kInvalid, fmt::format("{}: the certificate's key in PEM is expected", options.tls_key));
  ::grpc::SslServerCredentialsOptions tls;
  BOLIDE_TRY(std::string key, read_file(options.tls_key, kPemBytesMax));
  BOLIDE_TRY(std::string chain, read_file(options.tls_certificate, kPemBytesMax));
  tls.pem_key_cert_pairs.push_back({std::move(key), std::move(chain)});
  return ::grpc::SslServerCredentials(tls);
}

// What the library tells of itself, most of it of clients that misbehave, is for those who look for it.
void keep_quiet() {
  gpr_set_log_function(
      [](gpr_log_func_args* told) { log::debug("grpc", {{"what", std::string_view(told->message)}}); });
}

void set_limits(const GrpcLimits& limits, ::grpc::ServerBuilder* builder) {
  using std::chrono::milliseconds;
  const auto ms = [](auto time) { return static_cast<int>(milliseconds(time).count()); };
  // Beyond ours, so that the refusal is ours; the library's ends the call without a word.
  const uint64_t most = std::min<uint64_t>(limits.message_bytes + (1u << 20), std::numeric_limits<int>::max());
  builder->SetMaxReceiveMessageSize(static_cast<int>(most));
  builder->SetMaxSendMessageSize(-1);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, limits.calls_per_connection);
  builder->AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, limits.metadata_bytes);
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, 10'000);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, ms(limits.ping_time));
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, ms(limits.idle_time));
  // Clients that ping more often than this are told to go away.
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 10'000);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 3);
  // Messages are read as they are: a small one may become a huge one.
  for (const auto algorithm : {GRPC_COMPRESS_DEFLATE, GRPC_COMPRESS_GZIP})
    builder->SetCompressionAlgorithmSupportStatus(algorithm, false);
  builder->AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  ::grpc::ResourceQuota quota("bolide");
  quota.Resize(limits.messages_bytes + limits.messages_bytes / 4);
  builder->SetResourceQuota(quota);
}

class LibraryServer final : public GrpcServer {
 public:
  LibraryServer(const GrpcOptions& options, GrpcGate gate)
      : shared_(std::make_shared<Shared>(options, std::move(gate))), service_(shared_) {}
  ~LibraryServer() override { LibraryServer::stop(std::chrono::milliseconds(0)); }

  Result<> listen() {
    const GrpcOptions& options = shared_->options;
    BOLIDE_TRY(const auto credentials, credentials_of(options));
    keep_quiet();
    BOLIDE_TRY(connections_, rpc::Connections::listen(options.host, options.port, options.limits.connections));
    using External = ::grpc::ServerBuilder::experimental_type::ExternalConnectionType;
    ::grpc::ServerBuilder builder;
    auto acceptor = builder.experimental().AddExternalConnectionAcceptor(External::FROM_FD, credentials);
    builder.RegisterCallbackGenericService(&service_);
    set_limits(options.limits, &builder);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) return error(Code::kInternal, "the gRPC library does not start its server");
    connections_->start([acceptor = std::shared_ptr(std::move(acceptor))](int listening, int socket) {
      ::grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
      connection.listener_fd = listening;
      connection.fd = socket;
      acceptor->HandleNewConnection(&connection);
    });
    return {};
  }

  uint16_t port() const override { return connections_->port(); }
  HttpStats stats() const override {
    HttpStats stats;
    stats.connections = connections_->count();
    stats.accepted = connections_->accepted();
    stats.refused = connections_->refused();
    for (size_t status = 0; status < shared_->answers.size(); ++status)
      if (const uint64_t count = shared_->answers[status]; count > 0) stats.answers[static_cast<int>(status)] = count;
    return stats;
  }
  void stop(std::chrono::milliseconds timeout) override {
    if (connections_ != nullptr) connections_->stop();
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now() + timeout);
    server_ = nullptr;
    shared_->pool.stop();
  }

 private:
  const std::shared_ptr<Shared> shared_;
  Service service_;
  std::unique_ptr<rpc::Connections> connections_;
  std::unique_ptr<::grpc::Server> server_;
};

}  // namespace

Result<> grpc_available() { return {}; }

Result<std::unique_ptr<GrpcServer>> GrpcServer::start(const GrpcOptions& options, GrpcGate gate) {
  auto server = std::make_unique<LibraryServer>(options, std::move(gate));
  BOLIDE_TRY(server->listen());
  return std::unique_ptr<GrpcServer>(std::move(server));
}

void append_message(std::string& out, std::string_view message) {
  const auto length = static_cast<uint32_t>(message.size());
  char bytes[sizeof length];
  std::memcpy(bytes, &length, sizeof length);
  out.append(bytes, sizeof bytes);
  out += message;
}

}  // namespace bolide::server
