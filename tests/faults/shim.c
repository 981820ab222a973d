/* Preloaded library in which one call fails: the n-th write, fsync, rename, open for writing, mmap or large allocation.
 *
 * Only files below one folder count, so that the interpreter itself is left alone. Allocations count from 1 MB on, but
 * for safetensors'. A fault happens once; in mode 1 every later call of its kind fails too, as on a disk that stays full; in mode 2 the
 * process is killed in the call.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

enum { NONE, WRITE, FSYNC, RENAME, OPEN, MMAP, ALLOC, NUM_KINDS };
enum { LARGE = 1 << 20 };

static char folder[4096];
static size_t folder_length;
static int armed, mode;
static long fail_at;
static atomic_long seen[NUM_KINDS];

void fault_watch(const char *path) {
    folder_length = strlen(path);
    memcpy(folder, path, folder_length + 1);
}

void fault_arm(int kind, long n, int how) {
    for (int i = 0; i < NUM_KINDS; i++) atomic_store(&seen[i], 0);
    armed = kind, fail_at = n, mode = how;
}

long fault_seen(int kind) { return atomic_load(&seen[kind]); }

/* Count a call; return 1 if it is the one to fail. */
static int fails(int kind, int error) {
    long n = atomic_fetch_add(&seen[kind], 1) + 1;
    if (kind != armed || (mode == 1 ? n < fail_at : n != fail_at)) return 0;
    if (mode == 2) kill(getpid(), SIGKILL);
    errno = error;
    return 1;
}

static int path_counts(const char *path) {
    if (!folder_length || !path) return 0;
    if (path[0] != '/') return 1; /* the working folder is the watched one */
    return !strncmp(path, folder, folder_length);
}

static int file_counts(int fd) {
    char link[64], path[4096];
    if (!folder_length || fd < 0) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    return path[0] == '/' && !strncmp(path, folder, folder_length);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int fd, const void *data, size_t size) {
    return file_counts(fd) && fails(WRITE, ENOSPC) ? -1 : REAL(write)(fd, data, size);
}
ssize_t writev(int fd, const struct iovec *parts, int count) {
    return file_counts(fd) && fails(WRITE, ENOSPC) ? -1 : REAL(writev)(fd, parts, count);
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t place) {
    return file_counts(fd) && fails(WRITE, ENOSPC) ? -1 : REAL(pwrite)(fd, data, size, place);
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t place) {
    return file_counts(fd) && fails(WRITE, ENOSPC) ? -1 : REAL(pwrite64)(fd, data, size, place);
}
int ftruncate(int fd, off_t size) { return file_counts(fd) && fails(WRITE, ENOSPC) ? -1 : REAL(ftruncate)(fd, size); }
int ftruncate64(int fd, off64_t size) {
    return file_counts(fd) && fails(WRITE, ENOSPC) ? -1 : REAL(ftruncate64)(fd, size);
}

int fsync(int fd) { return file_counts(fd) && fails(FSYNC, EIO) ? -1 : REAL(fsync)(fd); }
int fdatasync(int fd) { return file_counts(fd) && fails(FSYNC, EIO) ? -1 : REAL(fdatasync)(fd); }

int rename(const char *from, const char *to) {
    return path_counts(from) && fails(RENAME, EIO) ? -1 : REAL(rename)(from, to);
}
int renameat(int from_dir, const char *from, int to_dir, const char *to) {
    return path_counts(from) && fails(RENAME, EIO) ? -1 : REAL(renameat)(from_dir, from, to_dir, to);
}
int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags) {
    return path_counts(from) && fails(RENAME, EIO) ? -1 : REAL(renameat2)(from_dir, from, to_dir, to, flags);
}

#define MODE(flags, mode)                                    \
    mode_t mode = 0;                                         \
    if (flags & (O_CREAT | O_TMPFILE)) {                     \
        va_list rest;                                        \
        va_start(rest, flags);                               \
        mode = va_arg(rest, mode_t);                         \
        va_end(rest);                                        \
    }

static int open_fails(const char *path, int flags) {
    return (flags & O_ACCMODE) != O_RDONLY && path_counts(path) && fails(OPEN, ENOSPC);
}
int open(const char *path, int flags, ...) {
    MODE(flags, mode)
    return open_fails(path, flags) ? -1 : REAL(open)(path, flags, mode);
}
int open64(const char *path, int flags, ...) {
    MODE(flags, mode)
    return open_fails(path, flags) ? -1 : REAL(open64)(path, flags, mode);
}
int openat(int dir, const char *path, int flags, ...) {
    MODE(flags, mode)
    return open_fails(path, flags) ? -1 : REAL(openat)(dir, path, flags, mode);
}
int openat64(int dir, const char *path, int flags, ...) {
    MODE(flags, mode)
    return open_fails(path, flags) ? -1 : REAL(openat64)(dir, path, flags, mode);
}

void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t place) {
    if (file_counts(fd) && fails(MMAP, ENOMEM)) return MAP_FAILED;
    return REAL(mmap)(at, size, protection, flags, fd, place);
}
void *mmap64(void *at, size_t size, int protection, int flags, int fd, off64_t place) {
    if (file_counts(fd) && fails(MMAP, ENOMEM)) return MAP_FAILED;
    return REAL(mmap64)(at, size, protection, flags, fd, place);
}

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t),
    *__libc_memalign(size_t, size_t);

/* Rust ends the process when an allocation fails, and safetensors is written in it: only allocations of others count. */
static int is_rust(void *caller) {
    Dl_info found;
    return dladdr(caller, &found) && found.dli_fname && strstr(found.dli_fname, "safetensors") != NULL;
}

static int alloc_fails_for(size_t size, void *caller) {
    return folder_length && size >= LARGE && !is_rust(caller) && fails(ALLOC, ENOMEM);
}
#define alloc_fails(size) alloc_fails_for(size, __builtin_return_address(0))

void *malloc(size_t size) { return alloc_fails(size) ? NULL : __libc_malloc(size); }
void *calloc(size_t count, size_t size) {
    return count && size > LARGE / count && alloc_fails(LARGE) ? NULL : __libc_calloc(count, size);
}
void *realloc(void *old, size_t size) { return alloc_fails(size) ? NULL : __libc_realloc(old, size); }
void *aligned_alloc(size_t alignment, size_t size) {
    return alloc_fails(size) ? NULL : __libc_memalign(alignment, size);
}
int posix_memalign(void **found, size_t alignment, size_t size) {
    *found = alloc_fails(size) ? NULL : __libc_memalign(alignment, size);
    return *found ? 0 : ENOMEM;
}
