// Kserve: the routes below /v2 of KServe's Open Inference Protocol over REST, with Triton's extensions for raw bytes,
// generation, statistics and the repository of models.
//
// Thread rules: any thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "server/api_keys.h"
#include "server/http.h"
#include "server/kserve_calls.h"

namespace bolide::server {

class Kserve {
 public:
  // `calls` must have ended when this does.
  explicit Kserve(KserveCalls& calls);

  // True: what is asked for is answered here, if it is answered at all.
  static bool has(std::string_view path) { return path == "/v2" || path.starts_with("/v2/"); }
  // What those hear who have no key.
  static HttpResponse stranger();
  void handle(const std::shared_ptr<HttpExchange>& exchange, const ApiKey& caller);

 private:
  using Shared = std::shared_ptr<HttpExchange>;
  struct Action;
  static const Action kActions[];

  KserveCall call_of(const Shared& exchange, const ApiKey* caller, std::string model) const;
  void refuse(const Shared& exchange, HttpResponse response);
  void refuse_method(const Shared& exchange, std::string_view allowed);
  // False: it was refused. `method`: GET, or POST.
  bool check(const Shared& exchange, std::string_view method);
  void repository(const Shared& exchange, std::string_view path);
  void model(const Shared& exchange, const ApiKey* caller, std::string_view path);

  void metadata(const KserveCall& call);
  void config(const KserveCall& call);
  void ready(const KserveCall& call);
  void statistics(const KserveCall& call);
  void infer(const KserveCall& call);
  void generate(const KserveCall& call);
  void generate_stream(const KserveCall& call);
  void generate(const KserveCall& call, bool stream);

  KserveCalls& calls_;
  const std::shared_ptr<const KserveDialect> dialect_;
};

}  // namespace bolide::server
