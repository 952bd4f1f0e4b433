// Models of published shapes with generated weights (synth/): nothing is read but the name.
#include <fmt/format.h>

#include "formats/quantised_checkpoint.h"
#include "load/family_weights.h"
#include "load/load.h"
#include "models/families.h"
#include "synth/synth_tokenizer.h"
#include "synth/synth_weights.h"

namespace bolide {

Result<LoadedModel> load_synth(const std::string& name, const LoadOptions& options) {
  if (!options.config.empty())
    return error(Code::kInvalid, fmt::format("{}: a generated model has its own configuration; another ({}) cannot be "
                                             "given",
                                             name, options.config.string()));
  BOLIDE_TRY(const SynthRequest request, parse_synth_name(name));
  LoadedModel model;
  model.path = name;
  model.format = "synth";
  model.name = to_string(request);
  BOLIDE_TRY(model.config, ModelConfig::parse(synth_config(request), name));
  BOLIDE_TRY(const Family* family, find_family(model.config));
  model.config = model.config.with_aliases(family->fields);
  BOLIDE_TRY(model.generation, read_generation_config(nullptr, model.config));
  BOLIDE_TRY(std::shared_ptr<const WeightSource> weights, SynthWeights::create(request));
  BOLIDE_TRY(weights, family_weights(std::move(weights), *family));
  BOLIDE_TRY(model.weights, read_quantised(std::move(weights), model.config));
  BOLIDE_TRY(check_config_against_weights(model.config, *model.weights));
  model.tokenizer.tokenizer_json = synth_tokenizer(request.architecture->vocab);
  return model;
}

}  // namespace bolide
