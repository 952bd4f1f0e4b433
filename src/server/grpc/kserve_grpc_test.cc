// ONNX models over gRPC, and what the server tells of itself: sockets, and a network that a function stands for.
#include "server/grpc/kserve_grpc.h"

#include <pb/reflection.pb.h>

#include <random>

#include "server/grpc/testing/grpc_client.h"

namespace bolide::server {
namespace {

using namespace test;
using ::grpc::StatusCode;
using Values = NetworkQueue::Values;

Result<Values> same(Values inputs) { return inputs; }

// x of any type that numpy has; out is in.
FakeServer::Options with_network(DType dtype, NetworkQueue::Run run = same) {
  const std::vector<int64_t> open = {-1};
  auto made = std::make_shared<ServedNetwork>();
  made->name = "net";
  made->inputs = {{"x", dtype, open}, {"t", DType::kString, open}};
  made->outputs = {{"y", dtype, open}, {"u", DType::kString, open}};
  made->queue = std::make_unique<NetworkQueue>(std::vector<NetworkQueue::Run>{std::move(run)}, NetworkQueue::Options());
  FakeServer::Options options;
  options.network = std::move(made);
  return options;
}

inference::ModelInferRequest request_of(const std::string& type, int64_t elements) {
  inference::ModelInferRequest request;
  request.set_model_name("net");
  request.set_id("42");
  for (const auto& [name, datatype, size] :
       {std::tuple{"t", std::string("BYTES"), int64_t{1}}, {"x", type, elements}}) {
    auto* input = request.add_inputs();
    input->set_name(name);
    input->set_datatype(datatype);
    input->add_shape(size);
  }
  return request;
}
const std::string kText = {5, 0, 0, 0, 'h', 'e', 'l', 'l', 'o'};

inference::ModelInferRequest raw_request(const std::vector<float>& x) {
  auto request = request_of("FP32", static_cast<int64_t>(x.size()));
  request.add_raw_input_contents(kText);
  request.add_raw_input_contents(std::string(reinterpret_cast<const char*>(x.data()), x.size() * sizeof(float)));
  return request;
}

::grpc::Status infer(const GrpcFake& server, const inference::ModelInferRequest& request,
                     inference::ModelInferResponse* response, const CallOptions& options = {}) {
  return call(server.channel(), std::string(kService) + "ModelInfer", request, response, options);
}
void expect_refusal(const GrpcFake& server, const inference::ModelInferRequest& request, StatusCode code,
                    std::string_view part) {
  inference::ModelInferResponse response;
  expect_status(infer(server, request, &response), code, part);
}

TEST(KserveGrpc, RawBytesComeBackAsTheyWere) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  GrpcFake server(with_network(DType::kF32));
  for (const size_t size : {0, 1, 7, 100'000}) {
    std::vector<float> x(size);
    for (float& one : x) one = std::uniform_real_distribution<float>(-9, 9)(random);
    const auto request = raw_request(x);
    inference::ModelInferResponse response;
    const auto status = infer(server, request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(response.id(), "42");
    EXPECT_EQ(response.model_name(), "net");
    EXPECT_EQ(response.model_version(), "1");
    ASSERT_EQ(response.outputs_size(), 2);
    EXPECT_EQ(response.outputs(0).name(), "y");
    EXPECT_EQ(response.outputs(0).datatype(), "FP32");
    EXPECT_EQ(response.outputs(0).shape(0), static_cast<int64_t>(size));
    EXPECT_FALSE(response.outputs(0).has_contents());
    ASSERT_EQ(response.raw_output_contents_size(), 2);
    EXPECT_EQ(response.raw_output_contents(0), request.raw_input_contents(1));
    EXPECT_EQ(response.raw_output_contents(1), kText);
  }
}

TEST(KserveGrpc, ListsOfEachTypeAreWhatTheBytesAre) {
  struct Case {
    DType dtype;
    const char* name;
    void (*add)(inference::InferTensorContents&, int);
    std::string raw;  // of -1 (or 1 where there are no signs), and 2
  };
  const auto bytes = [](auto... values) {
    std::string out;
    ((out.append(reinterpret_cast<const char*>(&values), sizeof values)), ...);
    return out;
  };
  using Contents = inference::InferTensorContents;
  const auto i32 = [](Contents& c, int v) { c.add_int_contents(v); };
  const auto u32 = [](Contents& c, int v) { c.add_uint_contents(static_cast<uint32_t>(std::abs(v))); };
  const std::vector<Case> cases = {
      {DType::kBool, "BOOL", [](Contents& c, int v) { c.add_bool_contents(v > 0); }, bytes(uint8_t{0}, uint8_t{1})},
      {DType::kI8, "INT8", i32, bytes(int8_t{-1}, int8_t{2})},
      {DType::kI16, "INT16", i32, bytes(int16_t{-1}, int16_t{2})},
      {DType::kI32, "INT32", i32, bytes(int32_t{-1}, int32_t{2})},
      {DType::kI64, "INT64", [](Contents& c, int v) { c.add_int64_contents(v); }, bytes(int64_t{-1}, int64_t{2})},
      {DType::kU8, "UINT8", u32, bytes(uint8_t{1}, uint8_t{2})},
      {DType::kU16, "UINT16", u32, bytes(uint16_t{1}, uint16_t{2})},
      {DType::kU32, "UINT32", u32, bytes(uint32_t{1}, uint32_t{2})},
      {DType::kU64, "UINT64", [](Contents& c, int v) { c.add_uint64_contents(static_cast<uint64_t>(std::abs(v))); },
       bytes(uint64_t{1}, uint64_t{2})},
      {DType::kF32, "FP32", [](Contents& c, int v) { c.add_fp32_contents(static_cast<float>(v)); }, bytes(-1.0f, 2.0f)},
      {DType::kF64, "FP64", [](Contents& c, int v) { c.add_fp64_contents(v); }, bytes(-1.0, 2.0)}};
  for (const Case& one : cases) {
    SCOPED_TRACE(one.name);
    GrpcFake server(with_network(one.dtype));
    auto request = request_of(one.name, 2);
    request.mutable_inputs(0)->mutable_contents()->add_bytes_contents("hello");
    for (const int value : {-1, 2}) one.add(*request.mutable_inputs(1)->mutable_contents(), value);
    inference::ModelInferResponse response;
    const auto status = infer(server, request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    ASSERT_EQ(response.raw_output_contents_size(), 2);
    EXPECT_EQ(response.raw_output_contents(0), one.raw);
    EXPECT_EQ(response.raw_output_contents(1), kText);
    // An element too many, or one of another list.
    auto more = request;
    one.add(*more.mutable_inputs(1)->mutable_contents(), 2);
    expect_refusal(server, more, StatusCode::INVALID_ARGUMENT, "input x: contents: the list of");
    auto mixed = request;
    mixed.mutable_inputs(1)->mutable_contents()->add_bytes_contents("");
    expect_refusal(server, mixed, StatusCode::INVALID_ARGUMENT, "2 elements of 3");
  }
}

TEST(KserveGrpc, WhatIsWrongIsNamed) {
  GrpcFake server(with_network(DType::kI8));
  auto good = request_of("INT8", 2);
  good.mutable_inputs(0)->mutable_contents()->add_bytes_contents("hello");
  for (int i = 0; i < 2; ++i) good.mutable_inputs(1)->mutable_contents()->add_int_contents(i);
  inference::ModelInferResponse response;
  ASSERT_TRUE(infer(server, good, &response).ok());
  const auto refused = [&](StatusCode code, std::string_view part, const auto& change) {
    auto request = good;
    change(request);
    expect_refusal(server, request, code, part);
  };
  using R = inference::ModelInferRequest;
  constexpr auto kBad = StatusCode::INVALID_ARGUMENT;
  constexpr auto kUnimplemented = StatusCode::UNIMPLEMENTED;
  refused(kBad, "contents: 200 is no element of INT8",
          [](R& r) { r.mutable_inputs(1)->mutable_contents()->set_int_contents(0, 200); });
  refused(kBad, "input x: datatype INT9: expected one of", [](R& r) { r.mutable_inputs(1)->set_datatype("INT9"); });
  refused(kBad, "shape: -1", [](R& r) { r.mutable_inputs(1)->set_shape(0, -1); });
  refused(kBad, "too many elements", [](R& r) {
    for (int i = 0; i < 3; ++i) r.mutable_inputs(1)->add_shape(int64_t{1} << 40);
  });
  refused(kBad, "input z: the model has none of this name", [](R& r) { r.mutable_inputs(1)->set_name("z"); });
  refused(kBad, "input x: is not given", [](R& r) { r.mutable_inputs()->RemoveLast(); });
  refused(kBad, "input t: is given twice", [](R& r) { *r.add_inputs() = r.inputs(0); });
  refused(kBad, "output w: the model has none", [](R& r) { r.add_outputs()->set_name("w"); });
  refused(kBad, "raw_input_contents: has 1, one for each of 2 inputs", [](R& r) { r.add_raw_input_contents("abc"); });
  refused(kBad, "has contents, and the request raw_input_contents", [](R& r) {
    for (int i = 0; i < 2; ++i) r.add_raw_input_contents("ab");
  });
  refused(kBad, "input x", [](R& r) {  // a byte too many
    for (int i = 0; i < 2; ++i) r.mutable_inputs(i)->clear_contents();
    r.add_raw_input_contents(kText);
    r.add_raw_input_contents("abc");
  });
  refused(kUnimplemented, "FP16 has no list", [](R& r) { r.mutable_inputs(1)->set_datatype("FP16"); });
  refused(kUnimplemented, "no shared memory",
          [](R& r) { (*r.mutable_inputs(1)->mutable_parameters())["shared_memory_region"].set_string_param("a"); });
  refused(kUnimplemented, "parameters.sequence_id",
          [](R& r) { (*r.mutable_parameters())["sequence_id"].set_int64_param(1); });
  refused(kBad, "parameters.timeout", [](R& r) { (*r.mutable_parameters())["timeout"].set_int64_param(-1); });
  refused(kBad, "parameters.a: has no value", [](R& r) { (*r.mutable_parameters())["a"]; });
  refused(kBad, "inputs: has 1025", [](R& r) {
    while (r.inputs_size() < 1025) r.add_inputs();
  });
  refused(kBad, "id: has 300 bytes", [](R& r) { r.set_id(std::string(300, 'a')); });
  refused(StatusCode::NOT_FOUND, "there is no model none", [](R& r) { r.set_model_name("none"); });
  refused(StatusCode::NOT_FOUND, "has version 1 alone, not 2", [](R& r) { r.set_model_version("2"); });
  refused(StatusCode::UNAVAILABLE, "absent is UNAVAILABLE: unloaded", [](R& r) { r.set_model_name("absent"); });
  EXPECT_EQ(server.grpc().stats().answers[200], 1u);
  EXPECT_GE(server.grpc().stats().answers[400], 10u);
}

TEST(KserveGrpc, BytesThatAreNoMessage) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  GrpcFake server(with_network(DType::kF32));
  const std::string good = raw_request({1, 2, 3}).SerializeAsString();
  const auto channel = server.channel();
  const auto send = [&](const std::string& bytes) {
    const ::grpc::Slice slice(bytes);
    ::grpc::ByteBuffer response;
    return call(channel, std::string(kService) + "ModelInfer", ::grpc::ByteBuffer(&slice, 1), &response);
  };
  EXPECT_TRUE(send(good).ok());
  for (int round = 0; round < 200; ++round) {
    std::string bytes = good;
    if (round % 2 == 0) bytes.resize(random() % bytes.size());
    for (int i = 0; i < 1 + round % 3 && !bytes.empty(); ++i)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    const auto status = send(bytes);
    // Whatever it says, it is the request's own fault, or none.
    EXPECT_TRUE(status.ok() || status.error_code() == StatusCode::INVALID_ARGUMENT ||
                status.error_code() == StatusCode::NOT_FOUND || status.error_code() == StatusCode::UNIMPLEMENTED)
        << status.error_code() << " " << status.error_message();
  }
  expect_status(send("\xFF\xFF\xFF"), StatusCode::INVALID_ARGUMENT, "the message is no ModelInferRequest");
  std::string deep;  // groups within groups, which proto3 has none of
  for (int i = 0; i < 100'000; ++i) deep += '\x0B';
  expect_status(send(deep), StatusCode::INVALID_ARGUMENT, "the message is no ModelInferRequest");
  std::string many;  // empty inputs, of two bytes each
  for (int i = 0; i < 1'100'000; ++i) many += std::string("\x2A\0", 2);
  expect_status(send(many), StatusCode::INVALID_ARGUMENT, "too many fields");
  EXPECT_TRUE(send(good).ok());
}

TEST(KserveGrpc, MessagesThatAreTooLong) {
  GrpcOptions grpc;
  grpc.limits.message_bytes = 100'000;
  GrpcFake server(with_network(DType::kF32), grpc);
  const size_t around = raw_request(std::vector<float>(20'000)).ByteSizeLong() - 80'000;
  inference::ModelInferResponse response;
  auto request = raw_request(std::vector<float>((100'000 - around) / 4));
  request.set_id(request.id() + std::string(100'000 - request.ByteSizeLong(), 'i'));
  EXPECT_EQ(request.ByteSizeLong(), 100'000u);
  EXPECT_TRUE(infer(server, request, &response).ok());
  request.set_id(request.id() + "i");
  expect_refusal(server, request, StatusCode::RESOURCE_EXHAUSTED, "the message has 100001 bytes, at most 100000");
  // Beyond what the library reads at all.
  const auto status = infer(server, raw_request(std::vector<float>(1'000'000)), &response);
  EXPECT_FALSE(status.ok());
  EXPECT_TRUE(infer(server, raw_request({1}), &response).ok());
}

TEST(KserveGrpc, WhatTheServerTells) {
  std::vector<std::string> changes;
  FakeServer::Options options = with_network(DType::kF32);
  options.on_change = [&](std::string_view name, std::string_view what) -> Result<> {
    changes.push_back(fmt::format("{} {}", what, name));
    return {};
  };
  options.api.version = "9.9";
  GrpcFake server(std::move(options));
  const auto channel = server.channel();
  const auto ask = [&](const char* name, const auto& request, auto* response) {
    return call(channel, std::string(kService) + name, request, response);
  };
  inference::ServerLiveResponse live;
  EXPECT_TRUE(ask("ServerLive", inference::ServerLiveRequest(), &live).ok() && live.live());
  inference::ServerReadyResponse ready;
  EXPECT_TRUE(ask("ServerReady", inference::ServerReadyRequest(), &ready).ok() && ready.ready());
  inference::ServerMetadataResponse about;
  EXPECT_TRUE(ask("ServerMetadata", inference::ServerMetadataRequest(), &about).ok());
  EXPECT_EQ(about.name() + about.version(), "bolide9.9");
  inference::ModelReadyRequest net;
  net.set_name("net");
  inference::ModelReadyResponse is_ready;
  EXPECT_TRUE(ask("ModelReady", net, &is_ready).ok() && is_ready.ready());
  net.set_name("absent");
  EXPECT_TRUE(ask("ModelReady", net, &is_ready).ok() && !is_ready.ready());
  inference::ModelMetadataRequest which;
  which.set_name("net");
  inference::ModelMetadataResponse metadata;
  EXPECT_TRUE(ask("ModelMetadata", which, &metadata).ok());
  ASSERT_EQ(metadata.inputs_size(), 2);
  EXPECT_EQ(metadata.inputs(0).name() + metadata.inputs(0).datatype(), "xFP32");
  EXPECT_EQ(metadata.inputs(0).shape(0), -1);
  EXPECT_EQ(metadata.outputs(1).datatype(), "BYTES");
  which.set_name("none");
  expect_status(ask("ModelMetadata", which, &metadata), StatusCode::NOT_FOUND, "none");
  inference::ModelConfigRequest of;
  of.set_name("fake");
  inference::ModelConfigResponse config;
  EXPECT_TRUE(ask("ModelConfig", of, &config).ok());
  EXPECT_TRUE(config.config().model_transaction_policy().decoupled());
  EXPECT_EQ(config.config().input(0).data_type(), inference::TYPE_STRING);
  inference::ModelInferResponse response;
  ASSERT_TRUE(infer(server, raw_request({1}), &response).ok());
  inference::ModelStatisticsRequest all;
  inference::ModelStatisticsResponse statistics;
  EXPECT_TRUE(ask("ModelStatistics", all, &statistics).ok());
  ASSERT_EQ(statistics.model_stats_size(), 2);
  EXPECT_EQ(statistics.model_stats(1).name(), "net");
  EXPECT_EQ(statistics.model_stats(1).inference_stats().success().count(), 1u);
  inference::RepositoryIndexRequest those;
  inference::RepositoryIndexResponse index;
  EXPECT_TRUE(ask("RepositoryIndex", those, &index).ok());
  EXPECT_EQ(index.models_size(), 3);
  those.set_ready(true);
  EXPECT_TRUE(ask("RepositoryIndex", those, &index).ok());
  EXPECT_EQ(index.models_size(), 2);
  inference::RepositoryModelUnloadRequest unload;
  unload.set_model_name("net");
  (*unload.mutable_parameters())["unload_dependents"].set_bool_param(true);
  inference::RepositoryModelUnloadResponse unloaded;
  EXPECT_TRUE(ask("RepositoryModelUnload", unload, &unloaded).ok());
  inference::RepositoryModelLoadRequest load;
  load.set_model_name("net");
  inference::RepositoryModelLoadResponse loaded;
  EXPECT_TRUE(ask("RepositoryModelLoad", load, &loaded).ok());
  EXPECT_EQ(changes, (std::vector<std::string>{"unload net", "load net"}));
  (*load.mutable_parameters())["file:1/model.onnx"].set_bytes_param("x");
  expect_status(ask("RepositoryModelLoad", load, &loaded), StatusCode::UNIMPLEMENTED, "parameters.file:1/model.onnx");
  for (const char* name : {"SystemSharedMemoryStatus", "CudaSharedMemoryRegister", "TraceSetting", "LogSettings"})
    expect_status(ask(name, load, &loaded), StatusCode::UNIMPLEMENTED, name);
  expect_status(ask("Nonsense", load, &loaded), StatusCode::UNIMPLEMENTED, "there is no method");
}

TEST(KserveGrpc, ReflectionDescribesTheServices) {
  using namespace ::grpc::reflection::v1;  // NOLINT(google-build-using-namespace)
  GrpcFake server;
  for (const char* version : {"v1", "v1alpha"}) {
    Stream<ServerReflectionRequest, ServerReflectionResponse> stream(
        server.channel(), fmt::format("/grpc.reflection.{}.ServerReflection/ServerReflectionInfo", version));
    ServerReflectionRequest request;
    ServerReflectionResponse response;
    request.set_list_services("");
    ASSERT_TRUE(stream.write(request) && stream.read(&response));
    std::vector<std::string> names;
    for (const auto& service : response.list_services_response().service()) names.push_back(service.name());
    EXPECT_EQ(names, (std::vector<std::string>{"inference.GRPCInferenceService", "grpc.health.v1.Health",
                                               "grpc.reflection.v1.ServerReflection"}));
    request.set_file_containing_symbol("inference.GRPCInferenceService.ModelInfer");
    ASSERT_TRUE(stream.write(request) && stream.read(&response));
    ASSERT_EQ(response.file_descriptor_response().file_descriptor_proto_size(), 1);
    EXPECT_NE(response.file_descriptor_response().file_descriptor_proto(0).find("ModelStreamInfer"), std::string::npos);
    for (const char* symbol : {"google.protobuf.FileDescriptorProto", "nothing"}) {
      request.set_file_containing_symbol(symbol);
      ASSERT_TRUE(stream.write(request) && stream.read(&response));
      EXPECT_EQ(response.error_response().error_code(), 5);
    }
    stream.writes_done();
    EXPECT_TRUE(stream.finish().ok());
  }
}

}  // namespace
}  // namespace bolide::server
