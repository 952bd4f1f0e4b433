// A client of the gRPC server, which the library makes, and a FakeServer that speaks gRPC.
#pragma once

#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/client_unary_call.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/sync_stream.h>
#include <gtest/gtest.h>
#include <pb/kserve.pb.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "server/grpc/kserve_grpc.h"
#include "server/testing/fake_server.h"

namespace bolide::server::test {

inline constexpr const char* kService = "/inference.GRPCInferenceService/";

class GrpcFake {
 public:
  explicit GrpcFake(FakeServer::Options options = {}, GrpcOptions grpc = {}) : fake_(std::move(options)) {
    grpc.port = 0;
    grpc.threads = 2;
    auto started = GrpcServer::start(grpc, kserve_grpc_gate(fake_.api()));
    EXPECT_TRUE(started.has_value()) << started.error().text;
    server_ = *std::move(started);
  }
  FakeServer& fake() { return fake_; }
  GrpcServer& grpc() { return *server_; }
  std::string address() const { return fmt::format("127.0.0.1:{}", server_->port()); }
  std::shared_ptr<::grpc::Channel> channel() const {
    ::grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a connection of its own
    arguments.SetMaxReceiveMessageSize(-1);
    return ::grpc::CreateCustomChannel(address(), ::grpc::InsecureChannelCredentials(), arguments);
  }

 private:
  FakeServer fake_;
  std::unique_ptr<GrpcServer> server_;
};

struct CallOptions {
  std::string key;
  std::chrono::milliseconds timeout{30'000};
};
inline void set_up(::grpc::ClientContext& context, const CallOptions& options) {
  context.set_deadline(std::chrono::system_clock::now() + options.timeout);
  if (!options.key.empty()) context.AddMetadata("authorization", "Bearer " + options.key);
}

// `context`: for what else the answer says.
template <class Response, class Request>
::grpc::Status call(const std::shared_ptr<::grpc::Channel>& channel, const std::string& path, const Request& request,
                    Response* response, const CallOptions& options = {}, ::grpc::ClientContext* context = nullptr) {
  ::grpc::ClientContext own;
  ::grpc::ClientContext& used = context != nullptr ? *context : own;
  set_up(used, options);
  const ::grpc::internal::RpcMethod method(path.c_str(), ::grpc::internal::RpcMethod::NORMAL_RPC, channel);
  return ::grpc::internal::BlockingUnaryCall<Request, Response, Request, Response>(channel.get(), method, &used,
                                                                                   request, response);
}

// A call with many messages both ways.
template <class Request, class Response>
class Stream {
 public:
  Stream(const std::shared_ptr<::grpc::Channel>& channel, const std::string& path, const CallOptions& options = {})
      : path_(path) {
    set_up(context_, options);
    const ::grpc::internal::RpcMethod method(path_.c_str(), ::grpc::internal::RpcMethod::BIDI_STREAMING, channel);
    stream_.reset(
        ::grpc::internal::ClientReaderWriterFactory<Request, Response>::Create(channel.get(), method, &context_));
  }
  bool write(const Request& request) { return stream_->Write(request); }
  bool read(Response* response) { return stream_->Read(response); }
  void writes_done() { stream_->WritesDone(); }
  void cancel() { context_.TryCancel(); }
  ::grpc::Status finish() { return stream_->Finish(); }

 private:
  const std::string path_;
  ::grpc::ClientContext context_;
  std::unique_ptr<::grpc::ClientReaderWriter<Request, Response>> stream_;
};
using InferStream = Stream<inference::ModelInferRequest, inference::ModelStreamInferResponse>;

inline inference::ModelInferRequest text_request(const std::string& text, int64_t tokens, const std::string& id = "") {
  inference::ModelInferRequest request;
  request.set_model_name("fake");
  request.set_id(id);
  auto* input = request.add_inputs();
  input->set_name("text_input");
  input->set_datatype("BYTES");
  input->add_shape(1);
  input->mutable_contents()->add_bytes_contents(text);
  (*request.mutable_parameters())["max_tokens"].set_int64_param(tokens);
  return request;
}

// The only text of a response.
inline std::string text_in(const inference::ModelInferResponse& response) {
  EXPECT_EQ(response.outputs_size(), 1);
  EXPECT_EQ(response.raw_output_contents_size(), 1);
  if (response.raw_output_contents_size() != 1) return {};
  EXPECT_EQ(response.outputs(0).name(), "text_output");
  EXPECT_EQ(response.outputs(0).datatype(), "BYTES");
  const std::string& raw = response.raw_output_contents(0);
  EXPECT_GE(raw.size(), sizeof(uint32_t));
  if (raw.size() < sizeof(uint32_t)) return {};
  EXPECT_EQ(load_unaligned<uint32_t>(as_bytes(raw).data()), raw.size() - sizeof(uint32_t));
  return raw.substr(sizeof(uint32_t));
}

inline void expect_status(const ::grpc::Status& status, ::grpc::StatusCode code, std::string_view part) {
  EXPECT_EQ(status.error_code(), code) << status.error_message();
  EXPECT_NE(status.error_message().find(part), std::string::npos) << status.error_message();
}

}  // namespace bolide::server::test
