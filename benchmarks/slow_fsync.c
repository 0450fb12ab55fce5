/* A disk whose fsync takes $SLOW_FSYNC_US microseconds longer:
     cc -O2 -shared -fPIC -o slow_fsync.so slow_fsync.c -ldl
     LD_PRELOAD=./slow_fsync.so SLOW_FSYNC_US=2000 COMMAND */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

static void linger(void) {
  static long us = -1;
  if (us < 0) {
    const char *given = getenv("SLOW_FSYNC_US");
    us = given ? atol(given) : 0;
  }
  if (us > 0) usleep(us);
}

typedef int (*sync_fn)(int);

int fsync(int fd) {
  static sync_fn real;
  if (!real) real = (sync_fn)dlsym(RTLD_NEXT, "fsync");
  linger();
  return real(fd);
}

int fdatasync(int fd) {
  static sync_fn real;
  if (!real) real = (sync_fn)dlsym(RTLD_NEXT, "fdatasync");
  linger();
  return real(fd);
}
