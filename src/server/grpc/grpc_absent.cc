// gRPC in builds without it.
#include "server/grpc/grpc_server.h"
#include "server/grpc/kserve_grpc.h"

namespace bolide::server {

Result<> grpc_available() {
  return error(Code::kUnsupported,
               "--grpc-port: this program was built without gRPC; build it with -DBOLIDE_GRPC=ON (packages "
               "libgrpc++-dev, libprotobuf-dev, protobuf-compiler)");
}

Result<std::unique_ptr<GrpcServer>> GrpcServer::start(const GrpcOptions&, GrpcGate) { return grpc_available().error(); }

GrpcGate kserve_grpc_gate(Api&) { return nullptr; }

}  // namespace bolide::server
