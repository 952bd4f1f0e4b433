// Language models over gRPC: whole answers and streams, clients that leave or wait no longer, keys, health, the end.
#include <pb/health.pb.h>

#include <fstream>
#include <future>
#include <thread>

#include "engine/testing/gate.h"
#include "server/grpc/testing/grpc_client.h"
#include "server/testing/own_certificate.h"

namespace bolide::server {
namespace {

using namespace test;
using ::grpc::StatusCode;
using ::grpc::health::v1::HealthCheckRequest;
using ::grpc::health::v1::HealthCheckResponse;

const std::string kInfer = std::string(kService) + "ModelInfer";
const std::string kStream = std::string(kService) + "ModelStreamInfer";

FakeServer::Options saying(const std::string& answer) {
  FakeServer::Options options;
  options.answer = answer;
  return options;
}
FakeServer::Options slow(int step_ms) {
  FakeServer::Options options;
  options.on_submit = [step_ms](const StepBatch&) -> Result<> {
    std::this_thread::sleep_for(std::chrono::milliseconds(step_ms));
    return {};
  };
  return options;
}

::grpc::Status infer(const GrpcFake& server, const inference::ModelInferRequest& request,
                     inference::ModelInferResponse* response, const CallOptions& options = {},
                     ::grpc::ClientContext* context = nullptr) {
  return call(server.channel(), kInfer, request, response, options, context);
}

bool is_free(GrpcFake& server) {
  return becomes([&] {
    const SchedulerStats stats = server.fake().engine().stats().scheduler;
    return stats.running == 0 && stats.waiting == 0 && stats.blocks_used == 0;
  });
}
bool runs(GrpcFake& server, int32_t count) {
  return becomes([&] { return server.fake().engine().stats().scheduler.running == count; });
}

// The responses to one request, in order; checks that the last one alone says that it is.
struct Pieces {
  std::string text, reason;
  int responses = 0, empty = 0;
};
Pieces read_pieces(InferStream& stream, const std::string& id) {
  Pieces all;
  inference::ModelStreamInferResponse response;
  while (stream.read(&response)) {
    EXPECT_EQ(response.error_message(), "");
    const inference::ModelInferResponse& one = response.infer_response();
    EXPECT_EQ(one.id(), id);
    ++all.responses;
    if (one.outputs_size() == 0)
      ++all.empty;
    else
      all.text += text_in(one);
    const auto final = one.parameters().find("triton_final_response");
    EXPECT_NE(final, one.parameters().end());
    if (final == one.parameters().end() || !final->second.bool_param()) continue;
    all.reason = one.parameters().at("finish_reason").string_param();
    return all;
  }
  ADD_FAILURE() << "the stream ends before its last response";
  return all;
}

TEST(GrpcText, InferAnswersAsAWhole) {
  GrpcFake server(saying("h\xC3\xA9llo, STOP world"));
  inference::ModelInferResponse response;
  ::grpc::ClientContext context;
  ASSERT_TRUE(infer(server, text_request("hi", 100, "a"), &response, {}, &context).ok());
  EXPECT_EQ(text_in(response), "h\xC3\xA9llo, STOP world");
  EXPECT_EQ(response.id(), "a");
  EXPECT_EQ(response.parameters().at("finish_reason").string_param(), "stop");
  EXPECT_EQ(context.GetServerTrailingMetadata().count("x-request-id"), 1u);
  auto stopped = text_request("hi", 100);
  (*stopped.mutable_parameters())["stop"].set_string_param("STOP");
  (*stopped.mutable_parameters())["temperature"].set_double_param(0);
  ASSERT_TRUE(infer(server, stopped, &response).ok());
  EXPECT_EQ(text_in(response), "h\xC3\xA9llo, ");
  (*stopped.mutable_parameters())["best_of"].set_int64_param(2);
  expect_status(infer(server, stopped, &response), StatusCode::UNIMPLEMENTED, "best_of: this server does not have it");
  auto streamed = text_request("hi", 5);
  (*streamed.mutable_parameters())["stream"].set_bool_param(true);
  expect_status(infer(server, streamed, &response), StatusCode::UNIMPLEMENTED, "ModelStreamInfer");
  expect_status(infer(server, text_request(std::string(300, 'a'), 5), &response), StatusCode::INVALID_ARGUMENT, "256");
}

TEST(GrpcText, AStreamIsTheWholeAnswerInPieces) {
  GrpcFake server(saying("one two \xE2\x82\xAC three"));
  InferStream stream(server.channel(), kStream);
  for (const bool empty_final : {false, true}) {
    auto request = text_request("hi", 100, "s");
    if (empty_final) (*request.mutable_parameters())["triton_enable_empty_final_response"].set_bool_param(true);
    ASSERT_TRUE(stream.write(request));
    const Pieces pieces = read_pieces(stream, "s");
    EXPECT_EQ(pieces.text, "one two \xE2\x82\xAC three");
    EXPECT_EQ(pieces.reason, "stop");
    EXPECT_EQ(pieces.empty, empty_final ? 1 : 0);
    EXPECT_GT(pieces.responses, 2);
  }
  auto whole = text_request("hi", 100, "w");
  (*whole.mutable_parameters())["stream"].set_bool_param(false);
  ASSERT_TRUE(stream.write(whole));
  EXPECT_EQ(read_pieces(stream, "w").responses, 1);
  // What is wrong with one request ends no other.
  inference::ModelStreamInferResponse response;
  auto wrong = text_request("hi", 0, "x");
  ASSERT_TRUE(stream.write(wrong) && stream.read(&response));
  EXPECT_NE(response.error_message().find("max_tokens"), std::string::npos) << response.error_message();
  EXPECT_EQ(response.infer_response().id(), "x");
  ASSERT_TRUE(stream.write(whole));
  EXPECT_EQ(read_pieces(stream, "w").reason, "stop");
  stream.writes_done();
  EXPECT_TRUE(stream.finish().ok());
}

TEST(GrpcText, ManyRequestsOfOneStreamAreAnsweredEachInItsOrder) {
  GrpcFake server;
  constexpr int kRequests = 150;  // more than are read at once
  InferStream stream(server.channel(), kStream);
  std::thread writer([&] {
    for (int i = 0; i < kRequests; ++i)
      EXPECT_TRUE(stream.write(text_request(std::string(1, static_cast<char>('!' + i % 90)), 12, std::to_string(i))));
    stream.writes_done();
  });
  std::map<std::string, std::string> texts;
  std::map<std::string, int> finals;
  inference::ModelStreamInferResponse response;
  while (stream.read(&response)) {
    EXPECT_EQ(response.error_message(), "");
    const auto& one = response.infer_response();
    EXPECT_EQ(finals[one.id()], 0) << "after the last response to " << one.id();
    texts[one.id()] += text_in(one);
    if (one.parameters().at("triton_final_response").bool_param()) ++finals[one.id()];
  }
  writer.join();
  EXPECT_TRUE(stream.finish().ok());
  for (int i = 0; i < kRequests; ++i) {
    EXPECT_EQ(finals[std::to_string(i)], 1) << i;
    EXPECT_EQ(texts[std::to_string(i)], server.fake().expected({'!' + i % 90}, 12)) << i;
  }
}

// blocks.cancel
TEST(GrpcText, AClientThatLeavesFreesItsBlocks) {
  GrpcFake server(slow(10));
  for (int round = 0; round < 3; ++round) {
    std::vector<std::unique_ptr<InferStream>> streams;
    for (int i = 0; i < 6; ++i) {
      streams.push_back(std::make_unique<InferStream>(server.channel(), kStream));
      ASSERT_TRUE(streams.back()->write(text_request("hello", 240)));
    }
    ASSERT_TRUE(runs(server, 6));
    for (auto& stream : streams) stream->cancel();
    EXPECT_TRUE(is_free(server));
    for (auto& stream : streams) {
      inference::ModelStreamInferResponse response;
      while (stream->read(&response)) {
      }
      EXPECT_EQ(stream->finish().error_code(), StatusCode::CANCELLED);
    }
  }
}

TEST(GrpcText, WhoWaitsNoLongerIsNotComputedFor) {
  GrpcFake server(slow(20));
  inference::ModelInferResponse response;
  const auto status = infer(server, text_request("hello", 240), &response, {.timeout = std::chrono::milliseconds(300)});
  EXPECT_EQ(status.error_code(), StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(is_free(server));
  // And what the request says itself.
  auto request = text_request("hello", 240);
  (*request.mutable_parameters())["timeout"].set_int64_param(300'000);
  expect_status(infer(server, request, &response), StatusCode::DEADLINE_EXCEEDED, "");
  EXPECT_TRUE(is_free(server));
}

TEST(GrpcText, KeysAndTheirLimits) {
  FakeServer::Options options = slow(10);
  options.keys = "one first-key-0123456 concurrent=1\ntwo second-key-0123456\n";
  GrpcFake server(std::move(options));
  inference::ModelInferResponse response;
  const auto request = text_request("hello", 3);
  expect_status(infer(server, request, &response), StatusCode::UNAUTHENTICATED, "needs an API key");
  expect_status(infer(server, request, &response, {.key = "wrong"}), StatusCode::UNAUTHENTICATED, "needs an API key");
  EXPECT_TRUE(infer(server, request, &response, {.key = "second-key-0123456"}).ok());
  inference::ServerLiveResponse live;
  EXPECT_TRUE(call(server.channel(), std::string(kService) + "ServerLive", inference::ServerLiveRequest(), &live).ok());
  inference::RepositoryIndexResponse index;
  expect_status(
      call(server.channel(), std::string(kService) + "RepositoryIndex", inference::RepositoryIndexRequest(), &index),
      StatusCode::UNAUTHENTICATED, "");
  expect_status(call(server.channel(), "/no.such/Method", request, &response), StatusCode::UNAUTHENTICATED, "");
  InferStream stranger(server.channel(), kStream);
  inference::ModelStreamInferResponse streamed;
  EXPECT_FALSE(stranger.read(&streamed));
  EXPECT_EQ(stranger.finish().error_code(), StatusCode::UNAUTHENTICATED);

  InferStream busy(server.channel(), kStream, {.key = "first-key-0123456"});
  ASSERT_TRUE(busy.write(text_request("hello", 240)));
  ASSERT_TRUE(runs(server, 1));
  ::grpc::ClientContext context;
  const auto refused = infer(server, request, &response, {.key = "first-key-0123456"}, &context);
  EXPECT_EQ(refused.error_code(), StatusCode::RESOURCE_EXHAUSTED) << refused.error_message();
  EXPECT_NE(refused.error_details().find("type.googleapis.com/google.rpc.RetryInfo"), std::string::npos);
  EXPECT_EQ(context.GetServerTrailingMetadata().count("grpc-retry-pushback-ms"), 1u);
  EXPECT_TRUE(infer(server, request, &response, {.key = "second-key-0123456"}).ok());
  busy.cancel();
  EXPECT_TRUE(is_free(server));
  // A key that goes is none in calls that began with it.
  InferStream later(server.channel(), kStream, {.key = "second-key-0123456"});
  ASSERT_TRUE(later.write(text_request("hello", 2, "a")));
  EXPECT_EQ(read_pieces(later, "a").reason, "length");
  ASSERT_TRUE(server.fake().api().replace_keys("one first-key-0123456\n", "keys", 7).has_value());
  ASSERT_TRUE(later.write(text_request("hello", 2, "b")));
  ASSERT_TRUE(later.read(&streamed));
  EXPECT_NE(streamed.error_message().find("needs an API key"), std::string::npos);
}

TEST(GrpcText, HealthFollowsTheEngine) {
  std::atomic<bool> fails{false};
  FakeServer::Options options;
  options.on_submit = [&](const StepBatch&) -> Result<> {
    if (fails) return error(Code::kInternal, "broken");
    return {};
  };
  GrpcFake server(std::move(options));
  const auto channel = server.channel();
  HealthCheckRequest request;
  HealthCheckResponse response;
  const std::string check = "/grpc.health.v1.Health/Check", watch = "/grpc.health.v1.Health/Watch";
  for (const char* service : {"", "inference.GRPCInferenceService"}) {
    request.set_service(service);
    ASSERT_TRUE(call(channel, check, request, &response).ok());
    EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);
  }
  Stream<HealthCheckRequest, HealthCheckResponse> watcher(channel, watch);
  ASSERT_TRUE(watcher.write(request) && watcher.read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);
  fails = true;
  inference::ModelInferResponse answer;
  EXPECT_FALSE(infer(server, text_request("hello", 3), &answer).ok());
  ASSERT_TRUE(watcher.read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);
  ASSERT_TRUE(call(channel, check, request, &response).ok());
  EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);
  inference::ServerReadyResponse ready;
  ASSERT_TRUE(call(channel, std::string(kService) + "ServerReady", inference::ServerReadyRequest(), &ready).ok());
  EXPECT_FALSE(ready.ready());
  inference::ModelReadyRequest model;
  inference::ModelReadyResponse model_ready;
  model.set_name("fake");
  ASSERT_TRUE(call(channel, std::string(kService) + "ModelReady", model, &model_ready).ok());
  EXPECT_FALSE(model_ready.ready());
  expect_status(infer(server, text_request("hello", 3), &answer), StatusCode::UNAVAILABLE, "");
  request.set_service("else");
  expect_status(call(channel, check, request, &response), StatusCode::NOT_FOUND, "else");
}

// lifecycle.drain
TEST(GrpcText, DrainingAnswersWhatWasAcceptedAndRefusesTheRest) {
  Gate gate;
  FakeServer::Options options;
  options.on_submit = [&](const StepBatch&) { return gate.pass(); };
  GrpcFake server(std::move(options));
  const auto channel = server.channel();
  std::vector<std::future<::grpc::Status>> whole;
  std::vector<std::unique_ptr<InferStream>> streams;
  for (int i = 0; i < 4; ++i) {
    whole.push_back(std::async(std::launch::async, [&] {
      inference::ModelInferResponse response;
      return call(channel, kInfer, text_request("hello", 5), &response);
    }));
    streams.push_back(std::make_unique<InferStream>(channel, kStream));
    ASSERT_TRUE(streams.back()->write(text_request("hello", 5, "s")));
    streams.back()->writes_done();
  }
  Stream<HealthCheckRequest, HealthCheckResponse> watcher(channel, "/grpc.health.v1.Health/Watch");
  HealthCheckResponse health;
  ASSERT_TRUE(watcher.write(HealthCheckRequest()) && watcher.read(&health));
  ASSERT_TRUE(becomes([&] {
    const EngineStats stats = server.fake().engine().stats();
    return stats.queued + stats.scheduler.waiting + stats.scheduler.running == 8;
  }));
  server.fake().api().set_draining();
  server.fake().engine().drain();
  inference::ModelInferResponse response;
  expect_status(infer(server, text_request("hello", 5), &response), StatusCode::UNAVAILABLE, "");
  ASSERT_TRUE(watcher.read(&health));
  EXPECT_EQ(health.status(), HealthCheckResponse::NOT_SERVING);
  EXPECT_FALSE(watcher.read(&health));
  EXPECT_TRUE(watcher.finish().ok());
  gate.open();
  for (auto& one : whole) EXPECT_TRUE(one.get().ok());
  for (auto& stream : streams) {
    EXPECT_EQ(read_pieces(*stream, "s").reason, "length");
    EXPECT_TRUE(stream->finish().ok());
  }
  EXPECT_TRUE(server.fake().wait_idle());
  server.grpc().stop(std::chrono::seconds(5));
  EXPECT_FALSE(infer(server, text_request("hello", 5), &response, {.timeout = std::chrono::seconds(2)}).ok());
}

TEST(GrpcText, ConnectionsAreBounded) {
  GrpcOptions grpc;
  grpc.limits.connections.connections_per_client = 3;
  GrpcFake server(saying("a"), grpc);
  const auto asks = [&](const std::shared_ptr<::grpc::Channel>& channel, int seconds) {
    inference::ServerLiveResponse live;
    return call(channel, std::string(kService) + "ServerLive", inference::ServerLiveRequest(), &live,
                {.timeout = std::chrono::seconds(seconds)});
  };
  {
    std::vector<std::shared_ptr<::grpc::Channel>> channels;
    for (int i = 0; i < 3; ++i) {
      channels.push_back(server.channel());
      EXPECT_TRUE(asks(channels.back(), 30).ok());
    }
    EXPECT_EQ(server.grpc().stats().connections, 3u);
    EXPECT_FALSE(asks(server.channel(), 2).ok());
    EXPECT_GE(server.grpc().stats().refused, 1u);
    for (const auto& channel : channels) EXPECT_TRUE(asks(channel, 30).ok());
  }
  EXPECT_TRUE(becomes([&] { return server.grpc().stats().connections == 0; }));
  EXPECT_TRUE(asks(server.channel(), 30).ok());
}

TEST(GrpcText, APortThatIsTaken) {
  GrpcFake server;
  GrpcOptions again;
  again.port = server.grpc().port();
  const auto started = GrpcServer::start(again, kserve_grpc_gate(server.fake().api()));
  ASSERT_FALSE(started.has_value());
  EXPECT_NE(started.error().text.find(fmt::format("port {}, for gRPC: Address already in use", again.port)),
            std::string::npos)
      << started.error().text;
}

TEST(GrpcText, TlsWithTheCertificateOfTheServer) {
  const OwnCertificate certificate;
  GrpcOptions grpc;
  grpc.tls_certificate = certificate.path();
  grpc.tls_key = certificate.key_path();
  GrpcFake server(saying("safe"), grpc);
  std::ifstream file(certificate.path());
  ::grpc::SslCredentialsOptions trust;
  trust.pem_root_certs.assign(std::istreambuf_iterator<char>(file), {});
  // Names would be looked up by c-ares, which leaks.
  const std::string address = server.address();
  ::grpc::ChannelArguments name;
  name.SetSslTargetNameOverride("localhost");
  inference::ModelInferResponse response;
  const auto trusted = ::grpc::CreateCustomChannel(address, ::grpc::SslCredentials(trust), name);
  const auto status = call(trusted, kInfer, text_request("hi", 10), &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(text_in(response), "safe");
  // Without it, and in plain text.
  const CallOptions brief{.timeout = std::chrono::seconds(2)};
  for (const auto& credentials : {::grpc::SslCredentials({}), ::grpc::InsecureChannelCredentials()})
    EXPECT_FALSE(
        call(::grpc::CreateCustomChannel(address, credentials, name), kInfer, text_request("hi", 10), &response, brief)
            .ok());
  grpc.tls_key = certificate.path();
  EXPECT_FALSE(GrpcServer::start(grpc, kserve_grpc_gate(server.fake().api())).has_value());
}

TEST(GrpcText, TheEndOfTheServerEndsWhatIsOpen) {
  GrpcFake server(slow(20));
  InferStream idle(server.channel(), kStream), busy(server.channel(), kStream);
  ASSERT_TRUE(busy.write(text_request("hello", 240)));
  ASSERT_TRUE(runs(server, 1));
  server.grpc().stop(std::chrono::milliseconds(100));
  EXPECT_TRUE(is_free(server));
  inference::ModelStreamInferResponse response;
  while (busy.read(&response)) {
  }
  EXPECT_FALSE(busy.finish().ok());
  EXPECT_FALSE(idle.read(&response));
  EXPECT_FALSE(idle.finish().ok());
}

}  // namespace
}  // namespace bolide::server
