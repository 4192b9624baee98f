// sluice doctor: what this machine can run, what stands in its way, and what to type next.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace sluice::cli {

struct DoctorOptions {
  std::string folder;  // of the models; empty: where `sluice pull` puts them
  bool json = false;
};

CLI::App* add_doctor(CLI::App& program, DoctorOptions& options);
int run_doctor(const DoctorOptions& options);  // returns the exit status

}  // namespace sluice::cli
