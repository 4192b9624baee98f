// Exists so that its header is compiled once for all tests (tests/CMakeLists.txt).
#include "tests/catch.h"
