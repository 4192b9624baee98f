// What /metrics says of a model that runs.
#pragma once

#include "core/http/api/generation.h"
#include "core/http/api/metrics.h"
#include "core/serve/service.h"

namespace sluice::http {

void write_model_metrics(MetricsText& text, const serve::Service& service,
                         const GenerationHost& host);

}  // namespace sluice::http
