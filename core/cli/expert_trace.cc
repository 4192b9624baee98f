#include "core/cli/expert_trace.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <memory>
#include <string>
#include <system_error>

#include "core/cli/output.h"
#include "core/files/durable_file.h"

namespace sluice::cli {
namespace {

class ExpertTrace {
 public:
  explicit ExpertTrace(const std::filesystem::path& path)
      : file_(path, {.named_by = files::NamedBy::user}) {
    text_ = fmt::format("{}\n", expert_trace_head);
  }

  ~ExpertTrace() {
    try {
      file_.write(text_);
      file_.commit();
    } catch (const std::system_error& error) {
      warn(error.what());
    }
  }

  void add(const model::ExpertChoices& choices) {
    constexpr std::size_t held_max = std::size_t{1} << 16;
    text_ +=
        fmt::format("{} {}: {}\n", choices.group, choices.experts, fmt::join(choices.chosen, " "));
    if (text_.size() < held_max) return;
    file_.write(text_);
    text_.clear();
  }

 private:
  files::DurableFile file_;
  std::string text_;  // not yet written
};

}  // namespace

bool is_expert_trace(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string head;
  return std::getline(file, head) && head == expert_trace_head;
}

model::ExpertWatch trace_experts(const std::filesystem::path& path) {
  return [trace = std::make_shared<ExpertTrace>(path)](const model::ExpertChoices& choices) {
    trace->add(choices);
  };
}

}  // namespace sluice::cli
