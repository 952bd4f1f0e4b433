#include "server/served_network.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/cpu.h"
#include "server/kserve_tensors.h"

namespace bolide::server {

Result<std::vector<TensorPort>> tensor_ports(const std::vector<OnnxProgram::Port>& ports, std::string_view what) {
  std::vector<TensorPort> list;
  for (const OnnxProgram::Port& port : ports) {
    const auto dtype = onnx_dtype(port.type.element);
    if (port.type.kind != OnnxType::Kind::kTensor || !dtype.has_value() || !kserve_name(*dtype))
      return error(Code::kUnsupported, fmt::format("{} {:.100} is {}: only tensors of {} can be served", what,
                                                   port.name, to_string(port.type), kserve_names()));
    TensorPort& one = list.emplace_back();
    one.name = port.name;
    one.dtype = *dtype;
    if (!port.type.dims) continue;
    one.dims.emplace();
    for (const OnnxDim& dim : *port.type.dims) one.dims->push_back(dim.value.value_or(-1));
  }
  return list;
}

Result<std::unique_ptr<ServedNetwork>> open_served_network(const std::string& name, const std::filesystem::path& path,
                                                           const ServedNetworkOptions& options) {
  using std::chrono::seconds;
  BOLIDE_TRY(const std::shared_ptr<const NetworkModel> model, NetworkModel::open(path, options.settings));
  auto network = std::make_unique<ServedNetwork>();
  network->name = name;
  network->created = std::chrono::duration_cast<seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  BOLIDE_TRY(network->inputs, tensor_ports(model->inputs(), "input").context(path.string()));
  BOLIDE_TRY(network->outputs, tensor_ports(model->outputs(), "output").context(path.string()));
  // Sessions share the threads: more of them than cores would only wait for each other.
  const int all = options.settings.threads > 0 ? options.settings.threads : detect_cpu().cores();
  const int threads = std::max(1, all / std::max(1, options.sessions));
  std::vector<NetworkQueue::Run> runs;
  for (int i = 0; i < options.sessions; ++i) {
    BOLIDE_TRY(NetworkSession made, NetworkSession::make(model, threads, options.settings.isa));
    auto session = std::make_shared<NetworkSession>(std::move(made));
    network->device = session->device().name;
    runs.emplace_back([session](NetworkQueue::Values inputs) { return session->run(std::move(inputs)); });
  }
  network->queue = std::make_unique<NetworkQueue>(std::move(runs), options.queue);
  return network;
}

}  // namespace bolide::server
