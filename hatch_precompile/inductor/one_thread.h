// A parallel region for one thread, and most are where tensors are small, costs half a microsecond: libgomp makes a
// team for it. The compiler calls libgomp by this name; within a library it finds this function instead, which calls
// the region's body. Within somebody else's parallel region libgomp is called: the body's loops would be shared out
// among their threads.
#if defined(__GNUC__) && !defined(__clang__) && defined(_OPENMP) && defined(__linux__)
#include <omp.h>
extern "C" {
void precompiled_gomp_parallel(void (*)(void *), void *, unsigned, unsigned);
__asm__(".symver precompiled_gomp_parallel, GOMP_parallel@GOMP_4.0");
__attribute__((visibility("hidden"))) void GOMP_parallel(void (*body)(void *), void *data, unsigned threads,
                                                         unsigned flags) {
    if (threads == 1 && !omp_in_parallel())
        body(data);
    else
        precompiled_gomp_parallel(body, data, threads, flags);
}
}
#endif
