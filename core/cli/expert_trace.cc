#include "core/cli/expert_trace.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "core/cli/output.h"

namespace sluice::cli {

bool is_expert_trace(const std::filesystem::path& path) {
  std::error_code absent;
  if (!std::filesystem::is_regular_file(path, absent)) return false;  // a device may have no end
  const std::string wanted = fmt::format("{}\n", expert_trace_head);
  std::string head(wanted.size(), '\0');
  std::ifstream(path).read(head.data(), static_cast<std::streamsize>(head.size()));
  return head == wanted;
}

ExpertTrace::~ExpertTrace() {
  try {
    end();
  } catch (const std::system_error& error) {
    warn(error.what());
  }
}

model::ExpertWatch ExpertTrace::watch(const std::filesystem::path& path) {
  if (!file_) {
    const files::DurableFileOptions options{.named_by = files::NamedBy::user};
    file_ = std::make_unique<files::DurableFile>(path, options);
    text_ = fmt::format("{}\n", expert_trace_head);
  }
  return [this](const model::ExpertChoices& choices) { add(choices); };
}

void ExpertTrace::end() {
  if (!file_) return;
  const std::unique_ptr<files::DurableFile> file = std::move(file_);  // there is one attempt
  if (failure_) std::rethrow_exception(failure_);
  file->write(text_);
  file->commit();
}

void ExpertTrace::add(const model::ExpertChoices& choices) {
  if (failure_) return;
  constexpr std::size_t held_max = std::size_t{1} << 16;
  text_ +=
      fmt::format("{} {}: {}\n", choices.group, choices.experts, fmt::join(choices.chosen, " "));
  if (text_.size() < held_max) return;
  try {
    file_->write(text_);
  } catch (const std::system_error&) {
    failure_ = std::current_exception();
  }
  text_.clear();
}

}  // namespace sluice::cli
