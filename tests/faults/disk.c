/* A disk that can fail, be slow, end its process, or be watched, put under an unchanged process:
     cc -O2 -shared -fPIC -pthread -o disk.so disk.c -ldl
     LD_PRELOAD=./disk.so DISK_UNDER=/the/state/directory DISK_RULE="sync -wal 3 1 kill" COMMAND
   disk.py has the words of a rule and reads the record. What is mapped into memory (-shm) does not pass here. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define REAL(name) ({ static __typeof__(name) *real; if (!real) real = dlsym(RTLD_NEXT, #name); real; })

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *under, *while_there;
static int record = -1;
static char op[16], suffix[32], verb[16];
static long first, count, seen;
static char last_written[4096]; /* the file of the last call, if that was a write: a run of writes is one */

/* Whether anything is to be watched. Asked until it is: a forked process may be told long after its start. */
static int is_told(void) {
  if (under) return 1;
  const char *rule = getenv("DISK_RULE"), *path = getenv("DISK_RECORD"), *folder = getenv("DISK_UNDER");
  if (!folder) return 0;
  pthread_mutex_lock(&lock);
  if (under) goto done;
  while_there = getenv("DISK_WHILE");
  if (rule && sscanf(rule, "%15s %31s %ld %ld %15s", op, suffix, &first, &count, verb) != 5) abort();
  if (path) record = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  under = folder;
done:
  pthread_mutex_unlock(&lock);
  return 1;
}

/* The path of a descriptor, if it is a file of ours. */
static int ours(int fd, char *path) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, 4095);
  if (length < 0) return 0;
  path[length] = 0;
  return strncmp(path, under, strlen(under)) == 0;
}

/* One entry: kind, three numbers, then a path and data of those lengths. The caller holds the lock. */
static void note(char kind, int64_t where, const char *path, const void *data, size_t length) {
  if (record < 0) return;
  struct __attribute__((packed)) { char kind; int64_t where; uint32_t path, data; } head = {
      kind, where, (uint32_t)strlen(path), (uint32_t)length};
  struct iovec parts[] = {{&head, sizeof head}, {(void *)path, head.path}, {(void *)data, length}};
  syscall(SYS_writev, record, parts, 3);
}

static int ends_with(const char *path, const char *end) {
  size_t a = strlen(path), b = strlen(end);
  return strcmp(end, "*") == 0 || (a >= b && strcmp(path + a - b, end) == 0);
}

/* Whether the rule is about this call; "run" counts only the first of several writes to a file in a row. */
static int is_meant(const char *kind, const char *path) {
  int is_write = strcmp(kind, "write") == 0, goes_on = is_write && strcmp(last_written, path) == 0;
  snprintf(last_written, sizeof last_written, "%s", is_write ? path : "");
  if (!ends_with(path, suffix)) return 0;
  if (strcmp(op, "run") == 0 ? !is_write || goes_on : strcmp(op, "any") != 0 && strcmp(op, kind) != 0) return 0;
  if (while_there && access(while_there, F_OK) != 0) return 0;
  seen++;
  return seen >= first && seen < first + count;
}

static void die(void) {
  kill(getpid(), SIGKILL);
  for (;;) pause();
}

enum fate { GOES_ON, DIES_AFTER, FAILS };

/* What becomes of a call: it fails with errno set, or the process ends before or after it, or it takes longer. */
static enum fate meet(const char *kind, const char *path) {
  int saved = errno, meant;
  pthread_mutex_lock(&lock);
  meant = is_meant(kind, path);
  pthread_mutex_unlock(&lock);
  errno = saved;
  if (!meant) return GOES_ON;
  if (strcmp(verb, "kill") == 0) die();
  if (strcmp(verb, "killed") == 0) return DIES_AFTER;
  if (strncmp(verb, "slow:", 5) == 0) {
    usleep(atol(verb + 5));
    errno = saved;
    return GOES_ON;
  }
  pthread_mutex_lock(&lock);
  note('e', atoi(verb), path, kind, strlen(kind));
  pthread_mutex_unlock(&lock);
  errno = atoi(verb);
  return FAILS;
}

/* The record says of a write that it may have been made, so it is noted first; of a sync that it was, so afterwards. */
#define NOTED(...) do { pthread_mutex_lock(&lock); note(__VA_ARGS__); pthread_mutex_unlock(&lock); } while (0)

static int is_watched(int fd, char *path) {
  return is_told() && ours(fd, path);
}

#define WRITE(kind, path, where, data, length, call) do { \
    enum fate fate = meet(kind, path); \
    if (fate == FAILS) return -1; \
    NOTED('w', where, path, data, length); \
    ssize_t done = call; \
    if (fate == DIES_AFTER) die(); \
    return done; \
  } while (0)

ssize_t write(int fd, const void *data, size_t length) {
  char path[4096];
  if (!is_watched(fd, path)) return REAL(write)(fd, data, length);
  off_t where = fcntl(fd, F_GETFL) & O_APPEND ? lseek(fd, 0, SEEK_END) : lseek(fd, 0, SEEK_CUR);
  WRITE("write", path, where, data, length, REAL(write)(fd, data, length));
}

static ssize_t write_at(int fd, const void *data, size_t length, off64_t where) {
  char path[4096];
  if (!is_watched(fd, path)) return REAL(pwrite64)(fd, data, length, where);
  WRITE("write", path, where, data, length, REAL(pwrite64)(fd, data, length, where));
}

ssize_t pwrite(int fd, const void *data, size_t length, off_t where) { return write_at(fd, data, length, where); }
ssize_t pwrite64(int fd, const void *data, size_t length, off64_t where) { return write_at(fd, data, length, where); }

#define SYNC(name) \
  int name(int fd) { \
    char path[4096]; \
    if (!is_watched(fd, path)) return REAL(name)(fd); \
    enum fate fate = meet("sync", path); \
    if (fate == FAILS) return -1; \
    int done = REAL(name)(fd); \
    if (done == 0) NOTED('s', 0, path, "", 0); \
    if (fate == DIES_AFTER) die(); \
    return done; \
  }
SYNC(fsync)
SYNC(fdatasync)

static int cut(int fd, off64_t length) {
  char path[4096];
  if (!is_watched(fd, path)) return REAL(ftruncate64)(fd, length);
  enum fate fate = meet("cut", path);
  if (fate == FAILS) return -1;
  NOTED('t', length, path, "", 0);
  int done = REAL(ftruncate64)(fd, length);
  if (fate == DIES_AFTER) die();
  return done;
}
int ftruncate(int fd, off_t length) { return cut(fd, length); }
int ftruncate64(int fd, off64_t length) { return cut(fd, length); }

/* Names: only those given in full, as all of ours are. */
static int is_named(const char *path) {
  return is_told() && strncmp(path, under, strlen(under)) == 0;
}

int rename(const char *from, const char *to) {
  if (!is_named(from)) return REAL(rename)(from, to);
  enum fate fate = meet("name", to);
  if (fate == FAILS) return -1;
  NOTED('r', 0, from, to, strlen(to));
  int done = REAL(rename)(from, to);
  if (fate == DIES_AFTER) die();
  return done;
}

int unlink(const char *path) {
  if (!is_named(path)) return REAL(unlink)(path);
  enum fate fate = meet("name", path);
  if (fate == FAILS) return -1;
  int done = REAL(unlink)(path);
  if (done == 0) NOTED('u', 0, path, "", 0);
  if (fate == DIES_AFTER) die();
  return done;
}

int mkdir(const char *path, mode_t mode) {
  if (!is_named(path)) return REAL(mkdir)(path, mode);
  enum fate fate = meet("name", path);
  if (fate == FAILS) return -1;
  int done = REAL(mkdir)(path, mode);
  if (done == 0) NOTED('m', 0, path, "", 0);
  if (fate == DIES_AFTER) die();
  return done;
}

static int opened(const char *path, int flags, mode_t mode, __typeof__(open) *real) {
  if (!is_named(path)) return real(path, flags, mode);
  int is_new = flags & O_CREAT && access(path, F_OK) != 0;
  enum fate fate = is_new ? meet("name", path) : GOES_ON;
  if (fate == FAILS) return -1;
  if (is_new) NOTED('c', 0, path, "", 0);
  int fd = real(path, flags, mode);
  if (fate == DIES_AFTER) die();
  if (fd >= 0) NOTED('f', flags & O_ACCMODE, path, "", 0);
  return fd;
}
#define OPEN(name) \
  int name(const char *path, int flags, ...) { \
    va_list more; \
    va_start(more, flags); \
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0; \
    va_end(more); \
    return opened(path, flags, mode, REAL(name)); \
  }
OPEN(open)
OPEN(open64)

/* What is said over sockets stands in the same record: an answer is on its way before anything that follows it. */
ssize_t send(int fd, const void *data, size_t length, int flags) {
  if (is_told() && record >= 0) NOTED('o', fd, "", data, length);
  return REAL(send)(fd, data, length, flags);
}

ssize_t recv(int fd, void *data, size_t length, int flags) {
  ssize_t done = REAL(recv)(fd, data, length, flags);
  if (done > 0 && is_told() && record >= 0) NOTED('i', fd, "", data, done);
  return done;
}
