// The names that other servers give to what Bolide counts, so that their dashboards and alerts fit.
//
// Thread rules: pure functions.
#pragma once

#include <prometheus/metric_family.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "server/metrics.h"

namespace bolide::server {

// Adds those of "vllm", "trtllm" or "triton"; of another word none.
void add_aliases(std::string_view compat, std::vector<prometheus::MetricFamily>& families);

// Triton's sums of what requests to each model took.
void add_triton_totals(const std::map<std::string, ModelTotals>& totals,
                       std::vector<prometheus::MetricFamily>& families);

}  // namespace bolide::server
