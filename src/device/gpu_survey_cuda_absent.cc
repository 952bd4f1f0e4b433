// No GPU to survey. Linked in place of device/cuda in builds without CUDA.
#include "device/gpu_survey.h"

namespace bolide {

GpuSurvey survey_gpus(const std::filesystem::path&) { return {}; }

}  // namespace bolide
