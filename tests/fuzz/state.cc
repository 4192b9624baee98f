// Files in which the program keeps what it knows: WHICH, CONTENTS, CHOICES.
#include <string>
#include <vector>

#include "core/batch/job_state.h"
#include "core/batch/journal.h"
#include "core/chat/conversation.h"
#include "core/engine/machine_profile.h"
#include "core/engine/page_store.h"
#include "core/error.h"
#include "core/fetch/ollama.h"
#include "core/fetch/reference.h"
#include "core/http/api/keys.h"
#include "core/http/jobs/batch_store.h"
#include "core/http/jobs/file_store.h"
#include "tests/fuzz/fuzz.h"
#include "tests/temporary_folder.h"

namespace sluice::fuzz {
namespace {

void read_job_state(std::string_view contents) {
  const std::filesystem::path output = scratch_folder() / "out.jsonl";
  const InputFile file(contents, "out.jsonl.state");
  try {
    const auto state = batch::read_state(output);
    require(state.has_value(), "a state is there");
    batch::JobState now;
    now.settings = {{"--temp", 0.5}, {batch::date_setting, "2026-11-26"}};
    for (const std::string& line : batch::differences(*state, now)) {
      require(line.find('\n') == std::string::npos, "a difference is one line");
    }
    batch::keep_date(now, state);
    static_cast<void>(batch::date_of(now));
    static_cast<void>(batch::date_of(*state));
    batch::write_state(output, *state);
    const auto again = batch::read_state(output);
    require(again && batch::differences(*state, *again).empty(), "a state comes back");
  } catch (const UsageError&) {
  }
}

void read_journal(std::string_view contents) {
  const InputFile file(contents, "journal.jsonl");
  try {
    batch::Journal journal(file.path());
    journal.go_on();
    std::size_t lines = 0;
    journal.read([&](const batch::ResultFacts&, std::string_view) { ++lines; });
    require(lines == journal.scan().found.size(), "each line that was found can be read");
    const auto kept = std::filesystem::file_size(file.path());
    require(kept == journal.scan().whole_bytes, "what is no result is cut off");
  } catch (const UsageError&) {
    require(test::content(file.path()) == contents, "a foreign file is left as it is");
  }
}

void read_profile(std::string_view contents) {
  const InputFile file(contents, "machine.json");
  engine::MachineProfile profile(file.path(), "machine", 1'800'000'000);
  for (const char* const name : {"disk", "memory", "x"}) {
    const auto rate = profile.rate(name);
    if (!rate) continue;
    require(rate->low > 0 && rate->low <= rate->usual && rate->usual <= rate->high,
            "a range is in order");
  }
  profile.add("disk", 1e9);
  require(profile.save().empty() && profile.rate("disk").has_value(), "what was added is kept");
}

void read_page(std::string_view contents, Choices choices) {
  const test::TemporaryFolder folder(scratch_folder());
  const engine::PageStore store(folder.path(), 1000, [](const std::string&) {});
  const engine::PageKey key = engine::PageKey{}.derive(std::vector<tokenizer::Token>{1, 2, 3});
  const std::vector<tokenizer::Token> tokens = {1, 2, 3};
  std::vector<std::byte> payload(64, std::byte{7});
  const std::span<const std::byte> parts[] = {std::span(payload).first(10),
                                              std::span(payload).subspan(10)};
  store.write(key, tokens, parts);
  std::string whole = test::content(store.path(key)), page = whole;
  if (choices.below(2) != 0) {
    page = std::string(contents);
  } else {
    for (const char c : contents) page[choices.below(page.size())] ^= c;
  }
  test::write(store.path(key), page);
  const std::span<std::byte> into[] = {std::span(payload).first(10),
                                       std::span(payload).subspan(10)};
  require(store.read(key, tokens, into) == (page == whole), "a page is whole or not read");
  store.trim();
}

void read_stores(std::string_view contents) {
  const test::TemporaryFolder folder(scratch_folder());
  test::write(folder / "batch_1.json", std::string(contents));
  http::BatchStore batches(folder.path());
  static_cast<void>(batches.list());
  for (const std::string& id : batches.not_ended()) {
    batches.set_counts(id, 3, 2, 1);
    batches.set_pause(id, "why");
    batches.set_status(id, "completed", {{"output_file_id", "file-1"}});
    const auto found = http::BatchStore(folder.path()).find(id);
    require(found && http::is_final(*found), "an end is kept");
  }
  const test::TemporaryFolder other(scratch_folder());
  test::write(other / "file-1.json", std::string(contents));
  test::write(other / "file-1", "contents");
  http::FileStore files(other.path(), 1000);
  for (const http::StoredFile& file : files.list()) static_cast<void>(file.json());
  const auto found = files.find("file-1");
  if (found) files.remove(*found);
}

void read_conversation(std::string_view contents) {
  try {
    const chat::Conversation read = chat::conversation_from_json(contents, "file");
    const chat::Conversation again = chat::conversation_from_json(chat::to_json(read), "file");
    require(read.size() == again.size(), "a conversation comes back");
  } catch (const UsageError&) {
  }
}

void read_small(std::string_view contents) {
  try {
    const http::ApiKeys keys = http::ApiKeys::parse(contents, "file");
    require(!keys.empty() && !keys.find(""), "no key is empty");
  } catch (const UsageError&) {
  }
  static_cast<void>(http::bearer_key(contents));
  try {
    const fetch::Reference reference = fetch::parse_reference(contents);
    const bool is_remote = reference.kind != fetch::ReferenceKind::file;
    require(!is_remote || reference.repository.find("..") == std::string::npos ||
                reference.repository.find("/../") == std::string::npos,
            "a repository is safe as a path");
    require(reference.kind != fetch::ReferenceKind::hub_file || fetch::is_safe_path(reference.file),
            "a file is safe as a path");
  } catch (const UsageError&) {
  }
  try {
    static_cast<void>(fetch::weights_of_manifest(contents, "file"));
  } catch (const Error&) {
  }
}

}  // namespace

void run(std::string_view input) {
  const auto parts = split(input, 3);
  switch (Choices(parts[0]).below(7)) {
    case 0:
      return read_job_state(parts[1]);
    case 1:
      return read_journal(parts[1]);
    case 2:
      return read_profile(parts[1]);
    case 3:
      return read_page(parts[1], Choices(parts[2]));
    case 4:
      return read_stores(parts[1]);
    case 5:
      return read_conversation(parts[1]);
    default:
      return read_small(parts[1]);
  }
}

std::vector<std::string> seeds() {
  std::vector<std::string> all;
  const auto add = [&](char which, const std::string& contents) {
    all.push_back(joined({std::string(1, which), contents, "\1\2\3\4"}));
  };
  add(0, R"({"sluice_batch": 1, "input": {"bytes": 5, "digest": 7, "rows": 2}, "shard": "1/2", )"
         R"("settings": {"--temp": 0.5, "model": "m", "the date": "2026-11-26"}})");
  add(1, "{\"row\":1,\"id\":null,\"text\":\"a\"}\n");
  batch::JobState state;
  rows::Completion completion;
  completion.text = "an answer";
  add(1, batch::result_line(1, {}, "m", completion) +
             batch::error_line(2, {}, {"invalid_request", 3, "why"}) + "{\"row\"");
  add(2, R"({"version": 1, "machine": "machine", "rates": {"disk": [[1e9, 1799999999], )"
         R"([2e9, 1799999990]], "memory": [[5, 1799999999]]}})");
  add(3, "");
  add(3, "\x10\x20");
  add(4, R"({"id": "batch_1", "object": "batch", "status": "in_progress", "input_file_id": "f", )"
         R"("created_at": 3, "model": "m", "request_counts": {"total": 1, "failed": 0}, )"
         R"("errors": null, "metadata": {"a": "b"}})");
  add(4, R"({"id": "file-1", "filename": "a", "purpose": "batch", "bytes": 8, "created_at": 5})");
  add(5, R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}, )"
         R"({"role": "assistant", "content": "a", "reasoning_content": "t"}]})");
  add(6, "# keys\nabcdefgh12345\n\nzyxwvuts\n");
  add(6, "hf:owner/repo@main/folder/file.gguf");
  add(6, "ollama:localhost:11434/space/name:tag");
  add(6, R"({"layers": [{"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:)" +
             std::string(64, 'a') + R"(", "size": 5}]})");
  return all;
}

}  // namespace sluice::fuzz
