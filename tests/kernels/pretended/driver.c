/* SPDX-License-Identifier: MIT
 * The driver libraries of NVIDIA (libcuda.so.1) and AMD (libamdhip64.so), as far as Triton's launchers need them: they
 * load nothing and run nothing, and note what they are asked to launch. Built with -DHIP for AMD's. */
#include <stdint.h>
#include <string.h>

#define ROOM 65536
static int64_t notes[ROOM];
static long noted;
static int expected; /* parameters of the next launch: the driver's functions do not get their number */

void expect(int parameters) { expected = parameters; }

long take(int64_t *out) {
  long count = noted;
  memcpy(out, notes, sizeof(int64_t) * count);
  noted = 0;
  return count;
}

static int note(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                unsigned shared, void *stream, void **parameters) {
  int64_t head[] = {expected, (int64_t)function, gx, gy, gz, bx, by, bz, shared, (int64_t)stream};
  int words = sizeof(head) / sizeof(head[0]);
  if (noted + words + expected > ROOM)
    return 2; /* out of memory, in both vendors' numbers */
  memcpy(notes + noted, head, sizeof(head));
  noted += words;
  /* Each parameter has a place of its own, of up to 8 bytes; what a smaller one leaves is cut off by the reader. */
  for (int i = 0; i < expected; i++)
    memcpy(notes + noted++, parameters[i], sizeof(int64_t));
  return 0;
}

#define NOTHING(name, ...)                                                                                             \
  int name(__VA_ARGS__) { return 0; }

static void *next_function(void) {
  static intptr_t number = 100;
  return (void *)++number;
}

#ifndef HIP

typedef struct {
  unsigned gx, gy, gz, bx, by, bz, shared;
  void *stream, *attributes;
  unsigned count;
} Launch;

int cuLaunchKernelEx(const Launch *l, void *f, void **parameters, void **extra) {
  return note(f, l->gx, l->gy, l->gz, l->bx, l->by, l->bz, l->shared, l->stream, parameters);
}
int cuDeviceGetCount(int *n) { return *n = 1, 0; }
int cuCtxGetCurrent(void **c) { return *c = (void *)16, 0; }
int cuCtxGetDevice(int *d) { return *d = 0, 0; }
int cuCtxGetLimit(unsigned long *v, int limit) { return *v = 0, 0; }
int cuDeviceGet(int *d, int i) { return *d = i, 0; }
int cuDeviceGetAttribute(int *v, int attribute, int d) { return *v = 232448, 0; } /* LDS of a Hopper; enough of all */
int cuDevicePrimaryCtxRetain(void **c, int d) { return *c = (void *)16, 0; }
int cuDriverGetVersion(int *v) { return *v = 13000, 0; }
int cuFuncGetAttribute(int *v, int attribute, void *f) { return *v = attribute == 0 ? 1024 : 0, 0; }
int cuGetErrorString(int e, const char **s) { return *s = "pretended", 0; }
int cuModuleGetFunction(void **f, void *m, const char *name) { return *f = next_function(), 0; }
int cuModuleLoadData(void **m, const void *image) { return *m = (void *)7, 0; }
int cuOccupancyMaxActiveClusters(int *n, void *f, void *c) { return *n = 1, 0; }
int cuPointerGetAttribute(void *out, int a, unsigned long long p) { return memcpy(out, &p, sizeof(p)), 0; }
int cuStreamIsCapturing(void *s, int *v) { return *v = 0, 0; }
NOTHING(cuInit, unsigned flags)
NOTHING(cuCtxSetLimit, int limit, unsigned long v)
NOTHING(cuCtxSetCurrent, void *c)
NOTHING(cuFuncSetAttribute, void *f, int a, int v)
NOTHING(cuFuncSetCacheConfig, void *f, int c)
NOTHING(cuModuleUnload, void *m)
NOTHING(cuTensorMapEncodeIm2col, void *m)
NOTHING(cuTensorMapEncodeTiled, void *m)

#else

static const char *text(void) { return "pretended"; }
static int load(void **m, const void *image, unsigned n, void *o, void **v) { return *m = (void *)7, 0; }
static int function(void **f, void *m, const char *name) { return *f = next_function(), 0; }
static int attribute(int *v, int which, void *f) { return *v = which == 0 ? 1024 : 0, 0; }
static int pointer(void *out, int which, unsigned long long p) { return memcpy(out, &p, sizeof(p)), 0; }
static NOTHING(nothing, void *first)

static int launch(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                  unsigned shared, void *stream, void **parameters, void **extra) {
  return note(f, gx, gy, gz, bx, by, bz, shared, stream, parameters);
}

struct launch_config { /* hip_runtime_api.h: HIP_LAUNCH_CONFIG */
  unsigned gx, gy, gz, bx, by, bz, shared;
  void *stream, *attributes;
  unsigned count;
};

static int launch_config(const struct launch_config *c, void *f, void **parameters, void **extra) {
  return note(f, c->gx, c->gy, c->gz, c->bx, c->by, c->bz, c->shared, c->stream, parameters);
}

int hipDriverGetVersion(int *v) { return *v = 70200000, 0; }

int hipGetProcAddress(const char *name, void **f, int version, uint64_t flags, void *status) {
  static const struct {
    const char *name;
    void *address;
  } all[] = {
      {"hipGetLastError", text},         {"hipGetErrorString", text},          {"hipGetDeviceProperties", nothing},
      {"hipModuleLoadDataEx", load},     {"hipModuleUnload", nothing},         {"hipModuleGetFunction", function},
      {"hipFuncGetAttribute", attribute}, {"hipPointerGetAttribute", pointer}, {"hipModuleLaunchKernel", launch},
      {"hipModuleLaunchCooperativeKernel", launch}, {"hipDrvLaunchKernelEx", launch_config}, /* Triton 3.7 wants it */
  };
  for (unsigned i = 0; i < sizeof(all) / sizeof(all[0]); i++)
    if (!strcmp(name, all[i].name))
      return *f = all[i].address, 0;
  return *f = 0, 1; /* an optional one */
}

#endif
