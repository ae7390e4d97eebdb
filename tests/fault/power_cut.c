/* power_cut.c - `embd-power-cut DIRECTORY`: its ext4 file system stops at once, its log not
 * flushed; after an unmount and a mount it is what a power cut would have left. Prints the seconds
 * of CLOCK_MONOTONIC just before. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define EXT4_IOC_SHUTDOWN _IOR('X', 125, uint32_t)
#define NO_LOG_FLUSH      2u

int main(int argc, char **argv)
{
    uint32_t flags = NO_LOG_FLUSH;
    struct timespec now;
    int fd = argc == 2 ? open(argv[1], O_RDONLY | O_DIRECTORY) : -1;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (fd < 0 || ioctl(fd, EXT4_IOC_SHUTDOWN, &flags) != 0) {
        perror("embd-power-cut");
        return 1;
    }
    close(fd);
    printf("%lld.%09ld\n", (long long)now.tv_sec, now.tv_nsec);
    return 0;
}
