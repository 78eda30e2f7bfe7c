// A library that is preloaded into a server, and lets a test set the server's wall clock. The test writes two numbers
// to the file that CLOCK names: nanoseconds since the epoch, and seconds to add to them. The monotonic clock, which
// servers use for their timers, does not change. A coarse read of the wall clock returns the time of the kernel's last
// tick, and the kernel ticks 250 times a second.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *wall;

__attribute__((constructor)) static void open_clock(void) {
    const char *path = getenv("CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *page = mmap(NULL, 2 * sizeof *wall, PROT_READ, MAP_SHARED, file, 0);
    if (page != MAP_FAILED) wall = page;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    if (!wall || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE))
        return (int)syscall(SYS_clock_gettime, clock, now);
    int64_t ns = clock == CLOCK_REALTIME ? wall[0] : wall[0] - wall[0] % 4000000;
    now->tv_sec = ns / 1000000000 + wall[1];
    now->tv_nsec = ns % 1000000000;
    return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    (void)zone;
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *seconds) {
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (seconds) *seconds = precise.tv_sec;
    return precise.tv_sec;
}

#ifdef RTLD_DEEPBIND /* musl lacks RTLD_DEEPBIND. */
// Remove RTLD_DEEPBIND, with which Valkey loads modules. Otherwise, a module would find libc's functions before those
// in this file, and read a different clock from its server's.
void *dlopen(const char *path, int flags) {
    void *(*original)(const char *, int) = (void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen");
    return original(path, flags & ~RTLD_DEEPBIND);
}
#endif

// Hide /proc/cpuinfo. If that file says that the processor's ticks are constant, Valkey 9 adds the ticks to its time
// between two reads of the wall clock, and its time would go on while the test's clock stands still.
static FILE *open_unless_cpuinfo(const char *name, const char *path, const char *mode) {
    if (!strcmp(path, "/proc/cpuinfo")) return NULL;
    FILE *(*original)(const char *, const char *) = (FILE * (*)(const char *, const char *)) dlsym(RTLD_NEXT, name);
    return original(path, mode);
}

FILE *fopen(const char *restrict path, const char *restrict mode) {
    return open_unless_cpuinfo("fopen", path, mode);
}

#ifdef __GLIBC__ /* In musl, fopen64 is a macro for fopen. */
FILE *fopen64(const char *restrict path, const char *restrict mode) {
    return open_unless_cpuinfo("fopen64", path, mode);
}
#endif
