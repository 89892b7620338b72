// Cuts the power of a file system of ext4: what was not synced is gone, journal included. The node has been
// killed before; unmounting and mounting again is the restart of the machine.
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/ioctl.h>

#define EXT4_IOC_SHUTDOWN _IOR('X', 125, uint32_t)

int main(int count, char **arguments) {
    uint32_t without_flushing_the_log = 2;
    int folder = count == 2 ? open(arguments[1], O_RDONLY | O_DIRECTORY) : -1;
    if (folder < 0 || ioctl(folder, EXT4_IOC_SHUTDOWN, &without_flushing_the_log)) {
        perror("power");
        return 1;
    }
    return 0;
}
