// What is wrong with a grammar or a schema, in one line that names the place.
#pragma once

#include <string>

#include "core/error.h"

namespace sluice::constrain {

class GrammarError : public UsageError {
 public:
  using UsageError::UsageError;
};

}  // namespace sluice::constrain
