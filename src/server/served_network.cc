#include "server/served_network.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/log.h"
#include "server/client_text.h"
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
    for (const OnnxDim& dim : *port.type.dims) {
      one.dims->push_back(dim.value.value_or(-1));
      one.dim_names.emplace_back(dim.value.has_value() ? std::string_view() : std::string_view(dim.symbol));
    }
  }
  return list;
}

Result<std::unique_ptr<ServedNetwork>> open_served_network(const std::string& name, const std::filesystem::path& path,
                                                           const ServedNetworkOptions& options) {
  BOLIDE_TRY(const std::shared_ptr<const NetworkModel> model, NetworkModel::open(path, options.settings));
  auto network = std::make_unique<ServedNetwork>();
  network->name = name;
  network->created = unix_seconds();
  BOLIDE_TRY(network->inputs, tensor_ports(model->inputs(), "input").context(path.string()));
  BOLIDE_TRY(network->outputs, tensor_ports(model->outputs(), "output").context(path.string()));
  // Sessions share the threads: more of them than cores would only wait for each other.
  const int all = options.settings.threads > 0 ? options.settings.threads : detect_cpu().cores();
  const int threads = std::max(1, all / std::max(1, options.sessions));
  network->gpu = model->gpu();
  std::vector<NetworkQueue::Run> runs;
  for (int i = 0; i < options.sessions; ++i) {
    BOLIDE_TRY(NetworkSession made, NetworkSession::make(model, threads, options.settings.isa));
    auto session = std::make_shared<NetworkSession>(std::move(made));
    network->device = session->device().name;
    runs.emplace_back([session, name, path](NetworkQueue::Values inputs) -> Result<NetworkQueue::Values> {
      auto outputs = session->run(std::move(inputs));
      if (outputs) return outputs;
      log::info("run failed", {{"model", std::string_view(name)}, {"error", std::string_view(outputs.error().text)}});
      return error(outputs.error().code, without_path(outputs.error().text, path, name));
    });
  }
  network->queue = std::make_unique<NetworkQueue>(std::move(runs), options.queue);
  return network;
}

}  // namespace bolide::server
