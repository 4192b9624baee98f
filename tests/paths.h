// Where the sources and the program of this build are.
//
// Only the generated paths.cc names these folders. All other objects are the same in every clone,
// so a compiler cache that one clone has filled serves the others.
#pragma once

namespace sluice::test {

extern const char* const source_folder;
extern const char* const program_path;  // built before the tests that say RUNS_PROGRAM
// What runs a program of this build, where the machine itself cannot; empty where it can.
extern const char* const emulator;

}  // namespace sluice::test
