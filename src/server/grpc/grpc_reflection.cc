#include "server/grpc/grpc_reflection.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <pb/health.pb.h>
#include <pb/kserve.pb.h>
#include <pb/reflection.pb.h>

#include <string>

namespace bolide::server {
namespace {

namespace pb = google::protobuf;
using grpc::reflection::v1::ServerReflectionRequest;
using grpc::reflection::v1::ServerReflectionResponse;

constexpr int kNotFound = 5;  // gRPC's code
constexpr size_t kRequestBytesMax = 4096;

// The files of the services that there are; nothing else is told, though the program may know more.
const pb::FileDescriptor* const* files() {
  static const pb::FileDescriptor* const kFiles[] = {inference::ModelReadyRequest::descriptor()->file(),
                                                     grpc::health::v1::HealthCheckRequest::descriptor()->file(),
                                                     ServerReflectionRequest::descriptor()->file(), nullptr};
  return kFiles;
}

const pb::FileDescriptor* file_of_symbol(const std::string& symbol) {
  const pb::FileDescriptor* found = pb::DescriptorPool::generated_pool()->FindFileContainingSymbol(symbol);
  for (auto file = files(); *file != nullptr; ++file)
    if (*file == found) return found;
  return nullptr;
}

const pb::FileDescriptor* file_of_name(const std::string& name) {
  for (auto file = files(); *file != nullptr; ++file)
    if ((*file)->name() == name) return *file;
  return nullptr;
}

void refuse(ServerReflectionResponse& response, std::string what) {
  response.mutable_error_response()->set_error_code(kNotFound);
  response.mutable_error_response()->set_error_message(std::move(what));
}

// None of them needs another.
void answer(ServerReflectionResponse& response, const pb::FileDescriptor* file, const std::string& asked) {
  if (file == nullptr) return refuse(response, fmt::format("there is no {:.200}", asked));
  pb::FileDescriptorProto description;
  file->CopyTo(&description);
  response.mutable_file_descriptor_response()->add_file_descriptor_proto(description.SerializeAsString());
}

}  // namespace

Result<std::string> reflect(std::string_view request) {
  ServerReflectionResponse response;
  ServerReflectionRequest& asked = *response.mutable_original_request();
  if (request.size() > kRequestBytesMax || !asked.ParseFromArray(request.data(), static_cast<int>(request.size())))
    return error(Code::kInvalid, "the message is no ServerReflectionRequest");
  response.set_valid_host(asked.host());
  switch (asked.message_request_case()) {
    case ServerReflectionRequest::kFileByFilename:
      answer(response, file_of_name(asked.file_by_filename()), asked.file_by_filename());
      break;
    case ServerReflectionRequest::kFileContainingSymbol:
      answer(response, file_of_symbol(asked.file_containing_symbol()), asked.file_containing_symbol());
      break;
    case ServerReflectionRequest::kListServices:
      for (auto file = files(); *file != nullptr; ++file)
        for (int i = 0; i < (*file)->service_count(); ++i)
          response.mutable_list_services_response()->add_service()->set_name((*file)->service(i)->full_name());
      break;
    default: refuse(response, "there are no extensions");
  }
  return response.SerializeAsString();
}

}  // namespace bolide::server
