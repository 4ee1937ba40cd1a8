// SPDX-License-Identifier: Apache-2.0
// The functions that count.c counts, and the names under which Benchmarks/Scripts/counts adds them up. The script reads these
// lines too: the place of a line is the place of its counter in the file.

COUNT(retains, swift_retain)
COUNT(retains, swift_retain_n)
COUNT(retains, swift_bridgeObjectRetain)
COUNT(retains, swift_bridgeObjectRetain_n)
COUNT(releases, swift_release)
COUNT(releases, swift_release_n)
COUNT(releases, swift_bridgeObjectRelease)
COUNT(releases, swift_bridgeObjectRelease_n)
COUNT(unique, swift_isUniquelyReferenced_native)
COUNT(unique, swift_isUniquelyReferenced_nonNull_native)
COUNT(unique, swift_isUniquelyReferenced_nonNull)
COUNT(unique, swift_isUniquelyReferencedNonObjC)
COUNT(unique, swift_isUniquelyReferencedNonObjC_nonNull)
COUNT(unique, swift_isUniquelyReferenced_nonNull_bridgeObject)
COUNT(unique, swift_isUniquelyReferencedNonObjC_nonNull_bridgeObject)
COUNT(accesses, swift_beginAccess)
COUNT(objects, swift_allocObject)
COUNT(objects, swift_allocBox)
COUNT(mutexes, pthread_mutex_lock)
COUNT(mutexes, pthread_mutex_trylock)
COUNT(clocks, clock_gettime)
COUNT(turns, epoll_wait)
// Allocation functions are needed before any symbol can be looked up; glibc has them by other names as well.
COUNT_KNOWN(mallocs, malloc, __libc_malloc)
COUNT_KNOWN(mallocs, calloc, __libc_calloc)
COUNT_KNOWN(mallocs, realloc, __libc_realloc)
COUNT_KNOWN(mallocs, memalign, __libc_memalign)
COUNT_KNOWN(mallocs, aligned_alloc, __libc_memalign)
// This function has no other name; count.c defines it.
COUNT_DEFINED(mallocs, posix_memalign)
