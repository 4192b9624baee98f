// Whole models: a tiny one of any architecture, with what its header and its weights say changed,
// through load, plan and two steps.
#pragma once

#include <string>
#include <vector>

#include "tests/fuzz/fuzz.h"

namespace sluice::fuzz {

enum class ModelOutcome {
  refused,    // by an error, while it was read or later
  evaluated,  // with a state, and a token, for each step
};

// The names of the shapes that are changed.
const std::vector<std::string>& hostile_models();

// The choices say which model, and then what is changed of it.
ModelOutcome try_hostile_model(Choices choices);

}  // namespace sluice::fuzz
