// What there is over gRPC: KServe's service (kserve.proto), health, reflection.
//
// Thread rules: any thread.
#pragma once

#include "server/api.h"
#include "server/grpc/grpc_server.h"

namespace bolide::server {

// Calls have the keys, limits, models and metrics of `api`, which must outlive the server.
GrpcGate kserve_grpc_gate(Api& api);

}  // namespace bolide::server
