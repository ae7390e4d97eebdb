/* trace_recorder.c - preloaded into a program that was built with -finstrument-functions, it writes
 * down which functions are entered while the switch is on (trace_calls.py).
 *
 * EMBD_TRACE_DIR names a folder with a file "switch" of one byte, which the traced call's client
 * turns to 1 and 0. Each process adds a file PROGRAM.PID: where its program was loaded, then one
 * record a function entered. */
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define RECORDS (UINT64_C(1) << 21)

struct record {
    uint64_t thread, address;
};

static struct {
    atomic_uchar *is_on;
    struct record *records; /* [RECORDS]; the first has the address the program was loaded to */
    atomic_uint_fast64_t n;
} recorder;

static atomic_uint_fast64_t n_threads;
static _Thread_local uint64_t thread;

#define EXPORTED __attribute__((visibility("default")))

EXPORTED void __cyg_profile_func_enter(void *function, void *caller);
EXPORTED void __cyg_profile_func_exit(void *function, void *caller);

static int on_object(struct dl_phdr_info *info, size_t bytes, void *base)
{
    (void)bytes;
    *(uint64_t *)base = info->dlpi_addr;
    return 1; /* the program is the first of all */
}

static void *map(const char *folder, const char *name, size_t bytes)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0)
        abort();
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return memory != MAP_FAILED ? memory : NULL;
}

__attribute__((constructor)) static void start(void)
{
    const char *folder = getenv("EMBD_TRACE_DIR");
    char name[300];
    uint64_t base = 0;
    if (folder == NULL)
        return;
    snprintf(name, sizeof name, "%s.%ld", program_invocation_short_name, (long)getpid());
    struct record *records = map(folder, name, RECORDS * sizeof *records);
    atomic_uchar *is_on = map(folder, "switch", 1);
    if (records == NULL || is_on == NULL)
        abort();
    dl_iterate_phdr(on_object, &base);
    records[0] = (struct record){UINT64_MAX, base};
    recorder.n = 1;
    recorder.records = records;
    recorder.is_on = is_on;
}

void __cyg_profile_func_enter(void *function, void *caller)
{
    (void)caller;
    if (recorder.is_on == NULL || !*recorder.is_on)
        return;
    if (thread == 0)
        thread = 1 + atomic_fetch_add(&n_threads, 1);
    uint64_t at = atomic_fetch_add(&recorder.n, 1);
    if (at < RECORDS)
        recorder.records[at] = (struct record){thread, (uint64_t)(uintptr_t)function};
}

void __cyg_profile_func_exit(void *function, void *caller)
{
    (void)function;
    (void)caller;
}
