// A plugin of QEMU that counts the instructions which a program executes, and prints the number at
// its end. scripts/count-instructions compiles it.
//
// What it uses of QEMU is declared here, as version 1 of the interface has it, since distributions
// have no package of qemu-plugin.h.
#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct qemu_plugin_tb;  // a stretch of instructions that QEMU translates together
enum { add_to_number };  // QEMU_PLUGIN_INLINE_ADD_U64

void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id,
                                           void (*call)(uint64_t, struct qemu_plugin_tb*));
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb* stretch);
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb* stretch, int what,
                                              void* number, uint64_t amount);
void qemu_plugin_register_atexit_cb(uint64_t id, void (*call)(uint64_t, void*), void* data);

int qemu_plugin_version = 1;

static uint64_t executed;

static void count(uint64_t id, struct qemu_plugin_tb* stretch) {
  (void)id;
  qemu_plugin_register_vcpu_tb_exec_inline(stretch, add_to_number, &executed,
                                           qemu_plugin_tb_n_insns(stretch));
}

static void print(uint64_t id, void* data) {
  (void)id;
  (void)data;
  fprintf(stderr, "%" PRIu64 "\n", executed);
}

int qemu_plugin_install(uint64_t id, const void* info, int argc, char** argv) {
  (void)info;
  (void)argc;
  (void)argv;
  qemu_plugin_register_vcpu_tb_trans_cb(id, count);
  qemu_plugin_register_atexit_cb(id, print, NULL);
  return 0;
}
