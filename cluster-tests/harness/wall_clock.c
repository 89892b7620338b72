// Preloaded into a node: its wall clock is WALL_OFFSET seconds ahead, its monotonic clock as it is.
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *time) {
    int result = (int)syscall(SYS_clock_gettime, clock, time);
    const char *offset = getenv("WALL_OFFSET");
    if (clock == CLOCK_REALTIME && offset != NULL) {
        time->tv_sec += atol(offset);
    }
    return result;
}
