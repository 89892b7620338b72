// Faults of one node's disk and wall clock, for LD_PRELOAD: calls on files whose path contains
// CALL_FAULTS_UNDER, and readings of the wall clock, obey the first page of the file CALL_FAULTS, which the
// test writes while the node runs (`harness/disk.rs`).
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

struct control {
    volatile uint32_t sync_errno;  // what a sync fails with
    volatile uint32_t sync_hangs;  // syncs wait while it is set
    volatile uint32_t sync_lies;   // syncs do nothing and succeed
    volatile uint32_t write_errno; // what a write fails with
    volatile uint32_t read_errno;  // what a read fails with
    volatile uint32_t free_mib;    // free space of the file system, if it is not 0
    volatile uint32_t sync_ms;     // how much longer a sync takes
    volatile uint32_t hits;        // written by this library: how many calls a fault has changed
    volatile int32_t wall_s;       // how many seconds the wall clock is ahead
    volatile int32_t wall_percent; // how much too fast it runs, from when this was set
};

static struct control none, *mapped;

// Direct system calls: the C library's own may not be ready when the allocator makes the first ones.
static struct control *control(void) {
    if (!mapped) {
        const char *path = getenv("CALL_FAULTS");
        int fd = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR) : -1;
        if (fd < 0) return &none;
        void *page = (void *)syscall(SYS_mmap, 0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        syscall(SYS_close, fd);
        mapped = page == MAP_FAILED ? &none : page;
    }
    return mapped;
}

static int concerns(int fd) {
    const char *under = getenv("CALL_FAULTS_UNDER");
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    long length = syscall(SYS_readlink, link, path, sizeof path - 1);
    if (length <= 0 || !under) return 0;
    path[length] = 0;
    return strstr(path, under) != 0;
}

static int fails(uint32_t error, int fd) {
    if (!error || !concerns(fd)) return 0;
    __atomic_fetch_add(&control()->hits, 1, __ATOMIC_RELAXED);
    errno = (int)error;
    return 1;
}

static int sync_file(int fd, long call) {
    struct control *c = control();
    if ((c->sync_hangs || c->sync_lies || c->sync_ms) && concerns(fd)) {
        __atomic_fetch_add(&c->hits, 1, __ATOMIC_RELAXED);
        while (c->sync_hangs) usleep(5000);
        if (c->sync_ms) usleep(c->sync_ms * 1000);
        if (c->sync_lies) return 0;
    }
    if (fails(c->sync_errno, fd)) return -1;
    return (int)syscall(call, fd);
}

int fsync(int fd) { return sync_file(fd, SYS_fsync); }
int fdatasync(int fd) { return sync_file(fd, SYS_fdatasync); }

ssize_t write(int fd, const void *from, size_t bytes) {
    if (fails(control()->write_errno, fd)) return -1;
    return syscall(SYS_write, fd, from, bytes);
}

ssize_t pwrite64(int fd, const void *from, size_t bytes, off64_t at) {
    if (fails(control()->write_errno, fd)) return -1;
    return syscall(SYS_pwrite64, fd, from, bytes, at);
}

ssize_t pwrite(int fd, const void *from, size_t bytes, off_t at) { return pwrite64(fd, from, bytes, at); }

ssize_t read(int fd, void *to, size_t bytes) {
    if (fails(control()->read_errno, fd)) return -1;
    return syscall(SYS_read, fd, to, bytes);
}

ssize_t pread64(int fd, void *to, size_t bytes, off64_t at) {
    if (fails(control()->read_errno, fd)) return -1;
    return syscall(SYS_pread64, fd, to, bytes, at);
}

ssize_t pread(int fd, void *to, size_t bytes, off_t at) { return pread64(fd, to, bytes, at); }

int statvfs(const char *path, struct statvfs *found) {
    struct statfs real;
    if (syscall(SYS_statfs, path, &real)) return -1;
    memset(found, 0, sizeof *found);
    found->f_bsize = (unsigned long)real.f_bsize;
    found->f_frsize = (unsigned long)real.f_frsize;
    found->f_blocks = real.f_blocks;
    found->f_bfree = real.f_bfree;
    found->f_bavail = real.f_bavail;
    uint32_t free_mib = control()->free_mib;
    if (free_mib) found->f_bfree = found->f_bavail = ((uint64_t)free_mib << 20) / found->f_frsize;
    return 0;
}

int statvfs64(const char *path, struct statvfs64 *found) { return statvfs(path, (struct statvfs *)found); }

// Milliseconds of the monotonic clock.
static int64_t monotonic_ms(void) {
    struct timespec now;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    static volatile int64_t drifts_since;
    int result = (int)syscall(SYS_clock_gettime, clock, time);
    struct control *c = control();
    int32_t percent = c->wall_percent;
    if (clock != CLOCK_REALTIME || result) return result;
    if (!percent) drifts_since = 0;
    if (!percent && !c->wall_s) return 0;
    __atomic_fetch_add(&c->hits, 1, __ATOMIC_RELAXED);
    if (percent && !drifts_since) drifts_since = monotonic_ms();
    int64_t ahead_ms = percent ? (monotonic_ms() - drifts_since) * percent / 100 : 0;
    int64_t ms = (int64_t)c->wall_s * 1000 + ahead_ms + time->tv_nsec / 1000000;
    int64_t seconds = ms >= 0 ? ms / 1000 : -((999 - ms) / 1000);
    time->tv_sec += seconds;
    time->tv_nsec = (ms - seconds * 1000) * 1000000 + time->tv_nsec % 1000000;
    return 0;
}
