/* Lets calls that write fail below a folder, as a disk does that is full, broken or read-only.
 *
 * FAILING_DISK names a file that says while it exists: a number of errno, a space, the folder.
 * Loaded by LD_PRELOAD. Only the calls that a program makes through libc are reached. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static int fails(int folder, const char *path) {
    const char *order = getenv("FAILING_DISK");
    char text[4096], whole[8192], base[64];
    int kept = errno, number = 0, at = 0;
    if (!order || !path) return 0;
    int file = syscall(SYS_openat, AT_FDCWD, order, O_RDONLY | O_CLOEXEC);
    ssize_t size = file < 0 ? -1 : syscall(SYS_read, file, text, sizeof text - 1);
    if (file >= 0) syscall(SYS_close, file);
    errno = kept;
    if (size <= 0) return 0;
    text[size] = 0;
    if (sscanf(text, "%d %n", &number, &at) != 1) return 0;
    whole[0] = 0;
    if (path[0] != '/') {
        snprintf(base, sizeof base, folder == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d", folder);
        ssize_t length = syscall(SYS_readlinkat, AT_FDCWD, base, whole, 4096);
        if (length < 0) { errno = kept; return 0; }
        whole[length] = 0;
        if (*path) strcat(whole, "/");
    }
    strncat(whole, path, 4000);
    errno = kept;
    return strncmp(whole, text + at, strlen(text + at)) == 0 ? number : 0;
}

#define FAIL(folder, path) { int e = fails(folder, path); if (e) { errno = e; return -1; } }
#define NEXT(name) ((__typeof__(name) *)dlsym(RTLD_NEXT, #name))
#define OPENING(name) \
    int name(const char *path, int flags, ...) { \
        va_list rest; va_start(rest, flags); mode_t mode = va_arg(rest, int); va_end(rest); \
        if (flags & (O_WRONLY | O_RDWR | O_CREAT)) FAIL(AT_FDCWD, path) \
        return NEXT(name)(path, flags, mode); }
#define OPENING_AT(name) \
    int name(int folder, const char *path, int flags, ...) { \
        va_list rest; va_start(rest, flags); mode_t mode = va_arg(rest, int); va_end(rest); \
        if (flags & (O_WRONLY | O_RDWR | O_CREAT)) FAIL(folder, path) \
        return NEXT(name)(folder, path, flags, mode); }
#define WRITING(type, name, parameters, ...) \
    type name parameters { FAIL(file, "") return NEXT(name)(__VA_ARGS__); }
#define NAMING(name, parameters, ...) \
    int name parameters { FAIL(AT_FDCWD, path) return NEXT(name)(__VA_ARGS__); }

OPENING(open)
OPENING(open64)
OPENING_AT(openat)
OPENING_AT(openat64)
WRITING(ssize_t, write, (int file, const void *bytes, size_t size), file, bytes, size)
WRITING(ssize_t, writev, (int file, const struct iovec *parts, int count), file, parts, count)
WRITING(ssize_t, pwrite, (int file, const void *b, size_t n, off_t at), file, b, n, at)
WRITING(ssize_t, pwrite64, (int file, const void *b, size_t n, off64_t at), file, b, n, at)
WRITING(ssize_t, pwritev, (int file, const struct iovec *v, int n, off_t at), file, v, n, at)
WRITING(int, ftruncate, (int file, off_t size), file, size)
WRITING(int, ftruncate64, (int file, off64_t size), file, size)
NAMING(truncate, (const char *path, off_t size), path, size)
NAMING(truncate64, (const char *path, off64_t size), path, size)
NAMING(rename, (const char *path, const char *to), path, to)
NAMING(unlink, (const char *path), path)
NAMING(mkdir, (const char *path, mode_t mode), path, mode)
