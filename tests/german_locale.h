// A locale in which 0.7 is written "0,7" and May is "Mai", as a program may have set that uses
// sluice as a library.
#pragma once

#include <clocale>
#include <cstdlib>

#include "tests/temporary_folder.h"

namespace sluice::test {

class GermanLocale {
 public:
  // Makes the locale, where the system has what it is made of.
  GermanLocale() {
    const std::string name = (folder_ / "de_DE.UTF-8").string();
    const std::string command = "localedef -i de_DE -f UTF-8 '" + name + "' >/dev/null 2>&1";
    if (std::system(command.c_str()) != 0) return;
    ::setenv("LOCPATH", folder_.path().c_str(), 1);
    is_set_ = std::setlocale(LC_ALL, "de_DE.UTF-8") != nullptr;
  }
  ~GermanLocale() {
    std::setlocale(LC_ALL, "C");
    ::unsetenv("LOCPATH");
  }
  GermanLocale(const GermanLocale&) = delete;
  GermanLocale& operator=(const GermanLocale&) = delete;

  bool is_set() const { return is_set_; }

 private:
  TemporaryFolder folder_;
  bool is_set_ = false;
};

}  // namespace sluice::test
