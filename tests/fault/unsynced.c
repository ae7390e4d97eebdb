/* unsynced.c - a disk that says it has synced and has not: loaded before libc, so that the test of
 * power cuts is seen to find a server without fdatasync. */
int fdatasync(int fd);

int fdatasync(int fd)
{
    (void)fd;
    return 0;
}
