// The program itself in tests: a folder for its files, and shell commands that run it. A test that
// includes this says RUNS_PROGRAM in CMakeLists.txt.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/catch.h"
#include "tests/paths.h"
#include "tests/temporary_folder.h"

namespace sluice::test {

namespace fs = std::filesystem;

inline const std::string program = program_path;

// A folder whose files go into shell commands.
class Folder : public TemporaryFolder {
 public:
  std::string file(const std::string& name) const { return (path() / name).string(); }
  std::size_t file_count() const { return files_in(path()); }
};

struct Result {
  int status = -1;
  std::string output;
  std::string errors;
};

// Runs a shell command in which "sluice" stands for the program; standard input is empty, and what
// the program keeps of its user is not kept.
inline Result shell(const std::string& command) {
  const Folder folder;
  const std::string script = "export XDG_STATE_HOME='" + folder.file("state") + "'; sluice() { '" +
                             program + "' \"$@\"; }; { " + command + "\n} >'" + folder.file("out") +
                             "' 2>'" + folder.file("err") + "' </dev/null";
  const int status = std::system(script.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, content(folder.file("out")),
          content(folder.file("err"))};
}

inline bool is_one_line(const std::string& text) {
  return text.starts_with("sluice: ") && text.find('\n') == text.size() - 1;
}

inline void check_fails(const std::string& command, int status, const std::string& says = "") {
  const Result result = shell(command);
  INFO(command << "\n" << result.errors);
  CHECK(result.status == status);
  CHECK(is_one_line(result.errors));
  CHECK(result.errors.find(says) != std::string::npos);
  CHECK(result.output.empty());
}

inline std::string make_model(const Folder& folder) {
  const std::string model = folder.file("tiny.gguf");
  REQUIRE(shell("sluice synth tiny " + model + " --seed 1").status == 0);
  return model;
}

}  // namespace sluice::test
