// SPDX-License-Identifier: Apache-2.0
// Counts a running program's calls of Swift's runtime and of the system. Benchmarks/Scripts/counts builds this as a library,
// preloads it, and reads the counts from the file that HHSOCKET_COUNTS names: eight bytes in the machine's order for
// each line of functions.h.
//
// A stub with the name of each function adds one and jumps to it. All registers and the stack are unchanged, so the
// calling convention does not matter; C could not express that of Swift's runtime. Only calls from another library are
// counted: neither inlined ones nor calls within a library.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if !defined(__linux__) || !defined(__x86_64__)
#error "The stubs are written for Linux on x86-64."
#endif

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

// A separate page, which the mapped file replaces: the stubs add to the file without knowing its address.
#define PAGE 4096
__attribute__((visibility("hidden"), aligned(PAGE))) uint64_t counts[PAGE / sizeof(uint64_t)];

enum {
#define COUNT(name, function) place_of_##function,
#define COUNT_KNOWN(name, function, known) place_of_##function,
#define COUNT_DEFINED(name, function) place_of_##function,
#include "functions.h"
#undef COUNT
#undef COUNT_KNOWN
#undef COUNT_DEFINED
    number_of_counts
};
_Static_assert(number_of_counts <= PAGE / sizeof(uint64_t), "the counts are longer than a page");

// The functions to which the stubs jump; null until they were looked up.
__attribute__((visibility("hidden"))) void *functions[] = {
#define COUNT(name, function) NULL,
#define COUNT_KNOWN(name, function, known) known,
#define COUNT_DEFINED(name, function) NULL,
#include "functions.h"
#undef COUNT
#undef COUNT_KNOWN
#undef COUNT_DEFINED
};

// One statement, so that the order is certain.
__asm__(
    ".text\n.set offset, 0\n"
#define COUNT(name, function)                                                                                           \
    ".globl " #function "\n.type " #function ", @function\n" #function ":\n"                                            \
    "lock incq counts + offset(%rip)\njmp *functions + offset(%rip)\n.size " #function ", . - " #function "\n"          \
    ".set offset, offset + 8\n"
#define COUNT_KNOWN(name, function, known) COUNT(name, function)
#define COUNT_DEFINED(name, function) ".set offset, offset + 8\n"
#include "functions.h"
#undef COUNT
#undef COUNT_KNOWN
#undef COUNT_DEFINED
);

// Linked with -z initfirst this runs before the constructors of all other libraries, glibc's among them: getenv finds
// nothing yet, but glibc passes the environment to constructors.
__attribute__((constructor)) static void begin(int argc, char **argv, char **environment) {
    (void)argc;
    (void)argv;
#define COUNT(name, function) functions[place_of_##function] = dlsym(RTLD_NEXT, #function);
#define COUNT_KNOWN(name, function, known)
#define COUNT_DEFINED(name, function)
#include "functions.h"
    static const char variable[] = "HHSOCKET_COUNTS=";
    while (*environment != NULL && strncmp(*environment, variable, sizeof variable - 1) != 0) environment += 1;
    if (*environment == NULL) return;
    const char *path = *environment + sizeof variable - 1;
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) return;
    // If this fails the file stays as it is, and the script reports that nothing was counted.
    if (ftruncate(file, PAGE) == 0) mmap(counts, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0);
    close(file);
}

int posix_memalign(void **memory, size_t alignment, size_t size) {
    if (alignment % sizeof(void *) != 0 || alignment == 0 || (alignment & (alignment - 1)) != 0) return EINVAL;
    __atomic_fetch_add(&counts[place_of_posix_memalign], 1, __ATOMIC_RELAXED);
    void *result = __libc_memalign(alignment, size);
    if (result == NULL) return ENOMEM;
    *memory = result;
    return 0;
}
