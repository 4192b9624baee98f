#include "core/http/api/served_model.h"

#include "core/plan/plan_json.h"

namespace sluice::http {

using nlohmann::ordered_json;

ordered_json model_json(const ServedModel& model) {
  const engine::EngineFacts& facts = model.service->engine().facts();
  return {{"id", model.name},
          {"object", "model"},
          {"created", model.created},
          {"owned_by", "sluice"},
          {"meta",
           {{"architecture", facts.architecture},
            {"context", model.context == 0 ? ordered_json() : ordered_json(model.context)},
            {"vocabulary", facts.vocabulary},
            {"bytes", facts.weights_bytes}}}};
}

ordered_json props_json(const ServedModel& model) {
  const engine::Engine& engine = model.service->engine();
  const plan::MemoryPlan& plan = engine.plan();
  const rows::RowDefaults& defaults = model.maker->options().defaults;
  const sampling::SamplerOptions& sampler = defaults.sampler;
  return {{"model", model.name},
          {"context", model_json(model)["meta"]["context"]},
          {"total_slots", model.parallel},
          {"isa", engine.facts().isa},
          {"threads", engine.facts().threads},
          {"io", engine.facts().io},
          {"has_chat", model.maker->options().dialogue != nullptr},
          {"defaults",
           {{"max_tokens", defaults.tokens_max},
            {"temperature", sampler.temperature},
            {"top_p", sampler.top_p},
            {"top_k", sampler.top_k},
            {"min_p", sampler.min_p},
            {"repeat_penalty", sampler.repeat_penalty}}},
          {"plan",
           {{"lines", plan::lines_json(plan)},
            {"total_bytes", plan.total_bytes()},
            {"budget_bytes", plan.budget.bytes}}}};
}

std::string_view state_name(serve::Service::State state) {
  using State = serve::Service::State;
  switch (state) {
    case State::loading:
      return "loading";
    case State::ready:
      return "ok";
    case State::draining:
      return "stopping";
    case State::stopped:
      return "stopped";
    case State::failed:
      return "failed";
  }
  return "failed";
}

}  // namespace sluice::http
