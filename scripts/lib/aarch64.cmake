# Compiles for aarch64 with Debian's cross compiler, against the root of scripts/lib/aarch64-root
# (scripts/setup --aarch64 installs both). Tests run under QEMU; $SLUICE_QEMU_CPU names the CPU.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)

execute_process(COMMAND ${CMAKE_CURRENT_LIST_DIR}/aarch64-root --where
                OUTPUT_VARIABLE root OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT EXISTS ${root}/.is-made)
  message(FATAL_ERROR "${root} has no libraries of aarch64; run scripts/setup --aarch64")
endif()
set(CMAKE_SYSROOT ${root})
set(CMAKE_FIND_ROOT_PATH ${root})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${root})
set(ENV{PKG_CONFIG_LIBDIR} ${root}/usr/lib/aarch64-linux-gnu/pkgconfig:${root}/usr/share/pkgconfig)

# With the root in it: what a test makes of the environment must not lead to another one.
set(CMAKE_CROSSCOMPILING_EMULATOR ${CMAKE_BINARY_DIR}/run-aarch64)
configure_file(${CMAKE_CURRENT_LIST_DIR}/run-aarch64.in ${CMAKE_CROSSCOMPILING_EMULATOR} @ONLY
               FILE_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
