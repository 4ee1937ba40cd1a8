// Counts what a program allocates, while it runs. Scripts/allocations builds this as a library, preloads it, and reads
// the count from the file that HHSOCKET_ALLOCATIONS names: eight bytes in the machine's order.
//
// The functions of glibc are called by the names that they have beside the replaced ones. Looking them up with dlsym
// would allocate, and so end here again.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

// Until the file is mapped, and where there is none.
static atomic_ulong own_count;
static atomic_ulong *_Atomic count = &own_count;

// Before any program code that allocates from several threads.
__attribute__((constructor)) static void share_count(void) {
    const char *path = getenv("HHSOCKET_ALLOCATIONS");
    if (path == NULL) return;
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) return;
    if (ftruncate(file, sizeof(atomic_ulong)) == 0) {
        void *memory = mmap(NULL, sizeof(atomic_ulong), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (memory != MAP_FAILED) count = memory;
    }
    close(file);
}

static void allocates(void) { atomic_fetch_add_explicit(count, 1, memory_order_relaxed); }

void *malloc(size_t size) {
    allocates();
    return __libc_malloc(size);
}

void *calloc(size_t number, size_t size) {
    allocates();
    return __libc_calloc(number, size);
}

void *realloc(void *memory, size_t size) {
    allocates();
    return __libc_realloc(memory, size);
}

void *memalign(size_t alignment, size_t size) {
    allocates();
    return __libc_memalign(alignment, size);
}

void *aligned_alloc(size_t alignment, size_t size) {
    allocates();
    return __libc_memalign(alignment, size);
}

int posix_memalign(void **memory, size_t alignment, size_t size) {
    if (alignment % sizeof(void *) != 0 || alignment == 0 || (alignment & (alignment - 1)) != 0) return EINVAL;
    allocates();
    void *result = __libc_memalign(alignment, size);
    if (result == NULL) return ENOMEM;
    *memory = result;
    return 0;
}
