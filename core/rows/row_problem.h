// What a row has thrown, as the problem of that row.
//
// A row is the unit of failure: its text, tools, schema, template, guide, reader or callback may
// throw anything, and it is this row that fails.
#pragma once

#include <exception>
#include <string>

namespace sluice::rows {

// Why a row cannot be run, for whoever asked for it: one line; an error of the system does not name
// the files of this machine.
std::string problem_of(const std::exception& error);

}  // namespace sluice::rows
