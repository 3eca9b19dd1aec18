// SPDX-License-Identifier: MIT
// The other half of guide.h: the same kernels on a CPU, to check what they compute.
//
// Each thread of a workgroup is a fiber with a stack of its own; a scheduler runs them in turn, in an order that
// changes with the seed. A fiber gives way at barriers, when it exchanges data with its wave, and when it waits for a
// flag. Workgroups run one after another. Memory is in order here, so a missing fence is NOT found by this: it is
// looked for in the assembly. What is found: wrong arithmetic, wrong addresses, waits that never end.
#pragma once
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define GUIDE_DEVICE static inline
#define GUIDE_KERNEL(threads) static void

// Where the processor has no instruction that makes a bf16, clang calls these functions. Some compilers' run-time
// libraries lack them (that of zig 0.17, libgcc before 13), so they stand here: to nearest, ties to even.
#define GUIDE_HELPER extern "C" __attribute__((weak, visibility("hidden")))
GUIDE_HELPER bf16 __truncsfbf2(float x) {
    const u32 bits = __builtin_bit_cast(u32, x);
    const u32 rounded = x == x ? (bits + 0x7FFFu + (bits >> 16 & 1)) >> 16 : bits >> 16 | 0x40u;  // a NaN stays one
    return __builtin_bit_cast(bf16, (unsigned short)rounded);
}
GUIDE_HELPER bf16 __truncdfbf2(double x) {
    // To the neighbour in fp32 whose last bit is 1 first: it keeps on which side of a tie x lies.
    const float nearest = (float)x;
    u32 bits = __builtin_bit_cast(u32, nearest);
    if (x == x && nearest != x && !(bits & 1)) bits += fabs((double)nearest) < fabs(x) ? 1u : -1u;
    return __truncsfbf2(__builtin_bit_cast(float, bits));
}

namespace cpu {
constexpr int MAX_THREADS = 1024, STACK = 48 << 10, RECORDED = 256, LINE = 128;
constexpr int PATIENCE = 3000;  // rounds without progress before we call it a deadlock

struct Wave {
    u8 slots[2][64][32];  // what lanes hand to each other; two sets in turn, so that nobody overwrites an unread one
    int arrived;
    u32 generation;
    u64 loads[RECORDED][64];  // addresses of the n-th load of each lane, to count the cache lines of each instruction
};
struct Fiber {
    ucontext_t context;
    u8* stack;
    bool done;
    int loads;
};
struct Counts {
    u64 load_instructions, load_bytes, load_lines;
};

static Fiber fibers[MAX_THREADS];
static Wave waves[MAX_THREADS / 64];
static ucontext_t scheduler;
static int threads, current, bx, by, at_barrier;
static u32 barrier_generation, random_state;
static u64 progress;
static Counts counts;
static void (*body)(void*);
static void* argument;
static const char* failure;

static void give_way() { swapcontext(&fibers[current].context, &scheduler); }
static u32 random_number() { return random_state = random_state * 1664525u + 1013904223u; }

static void start() {
    body(argument);
    fibers[current].done = true;
    give_way();
}

// LDS: registered when first seen, filled with NaN before every workgroup.
struct Shared {
    void* at;
    u64 bytes;
    Shared* next;
};
static Shared* all_shared;
template <typename T, int N>
struct SharedArray {
    alignas(16) T data[N];
    Shared link;
    SharedArray() : link{data, sizeof(data), all_shared} { all_shared = &link; memset(data, 0xFF, sizeof(data)); }
};

static void run_workgroup() {
    for (Shared* s = all_shared; s; s = s->next) memset(s->at, 0xFF, s->bytes);
    memset(waves, 0, sizeof(waves));
    at_barrier = 0;
    for (int i = 0; i < threads; ++i) {
        Fiber& f = fibers[i];
        if (!f.stack) f.stack = (u8*)malloc(STACK);
        f.done = false;
        f.loads = 0;
        getcontext(&f.context);
        f.context.uc_stack.ss_sp = f.stack;
        f.context.uc_stack.ss_size = STACK;
        f.context.uc_link = &scheduler;
        makecontext(&f.context, start, 0);
    }
    int left = threads;
    u64 before = progress;
    for (int idle = 0; left && !failure; ++idle) {
        if (progress != before) before = progress, idle = 0;
        const int groups = threads / 64, first = random_number() / 65536 % groups;
        for (int w = 0; w < groups; ++w) {
            // Some waves sit out a round: fast and slow waves are what flags and queues have to survive.
            if (random_state && random_number() >> 31) continue;
            for (int lane = 0; lane < 64; ++lane) {
                current = (w + first) % groups * 64 + lane;
                if (fibers[current].done) continue;
                swapcontext(&scheduler, &fibers[current].context);
                if (fibers[current].done) --left, ++progress;
            }
        }
        if (idle > PATIENCE) failure = "deadlock: every thread waits";
    }
    for (int w = 0; w < threads / 64; ++w)
        for (int n = 0; n < RECORDED; ++n) {
            u64 seen[128];
            int lines = 0;
            u64 bytes = 0;
            for (int lane = 0; lane < 64; ++lane) {
                const u64 packed = waves[w].loads[n][lane];
                if (!packed) continue;
                bytes += packed >> 56;
                const u64 from = (packed & ~(0xFFull << 56)), to = from + (packed >> 56) - 1;
                for (u64 line = from / LINE; line <= to / LINE; ++line) {
                    int k = 0;
                    while (k < lines && seen[k] != line) ++k;
                    if (k == lines && lines < 128) seen[lines++] = line;
                }
            }
            counts.load_instructions += bytes != 0;
            counts.load_bytes += bytes;
            counts.load_lines += lines;
        }
}

template <typename Call>
static int run(int grid_x, int grid_y, int block, Call call) {
    body = [](void* p) { (*(Call*)p)(); };
    argument = &call;
    threads = block;
    failure = 0;
    for (by = 0; by < grid_y && !failure; ++by)
        for (bx = 0; bx < grid_x && !failure; ++bx) run_workgroup();
    return failure ? 1 : 0;
}

// Wait until all lanes of the wave have handed in `mine`; returns all 64.
template <typename T>
static const T* exchange(const T& mine) {
    static_assert(sizeof(T) <= 32, "slot");
    Wave& w = waves[current / 64];
    const u32 generation = w.generation;
    T* slots = (T*)w.slots[generation % 2];
    slots[current % 64] = mine;
    if (++w.arrived == 64) {
        w.arrived = 0;
        ++w.generation;
        ++progress;
    } else {
        while (w.generation == generation && !failure) give_way();
    }
    return slots;
}

template <typename T>
static void record(const T* p) {
    Fiber& f = fibers[current];
    if (f.loads < RECORDED) waves[current / 64].loads[f.loads++][current % 64] = (u64)p | (u64)sizeof(T) << 56;
}

static float fp8_value(u8 code) {  // e4m3, FNUZ
    if (code == 0x80) return NAN;
    const int e = code >> 3 & 15, m = code & 7;
    const float size = e ? ldexpf(8 + m, e - 11) : ldexpf(m, -10);
    return code & 0x80 ? -size : size;
}

// To nearest, ties to even; NaN beyond the maximum, as the instruction does. fp8_value is its inverse.
static u8 fp8_code(float x) {
    if (!(fabsf(x) < 248.0f)) return 0x80;
    int e;
    frexpf(x, &e);
    const int power = e - 1 < -7 ? -7 : e - 1;
    int steps = (int)nearbyintf(ldexpf(fabsf(x), 3 - power)), biased = power + 8;
    if (steps == 16) steps = 8, ++biased;
    const u8 code = steps < 8 ? steps : biased << 3 | (steps - 8);
    return code && x < 0 ? code | 0x80 : code;
}
}  // namespace cpu

#define GUIDE_SHARED(type, name, count)                \
    static cpu::SharedArray<type, count> name##_array; \
    type* const name = name##_array.data
#define GUIDE_LAUNCH(kernel, grid_x, grid_y, threads, stream, ...) \
    ((void)(stream), cpu::run(grid_x, grid_y, threads, [=] { kernel(__VA_ARGS__); }))

static inline u32 thread_id() { return cpu::current; }
static inline u32 block_x() { return cpu::bx; }
static inline u32 block_y() { return cpu::by; }
static inline u32 uniform(u32 value) { return value; }
static inline void barrier() {
    const u32 generation = cpu::barrier_generation;
    if (++cpu::at_barrier == cpu::threads) {
        cpu::at_barrier = 0;
        ++cpu::barrier_generation;
        ++cpu::progress;
    } else {
        while (cpu::barrier_generation == generation && !cpu::failure) cpu::give_way();
    }
}
static inline float lane_xor(float value, u32 mask) { return cpu::exchange(value)[(cpu::current % 64) ^ mask]; }
template <typename T>
static T load(const T* p) { cpu::record(p); return *p; }
template <typename T>
static void store(T* p, T value) { *p = value; }
static inline u32x4 load_once(const u32x4* p) { return load(p); }
static inline float exp2_fast(float x) { return exp2f(x); }
static inline float exp_full(float x) { return expf(x); }
static inline float reciprocal(float x) { return 1.0f / x; }
static inline float inverse_root(float x) { return 1.0f / sqrtf(x); }
static inline float clamp(float x, float low, float high) { return fminf(fmaxf(x, low), high); }
template <bool UPPER>
static u32 convert_two(float a, float b, u32 old) {
    const u32 two = cpu::fp8_code(a) | cpu::fp8_code(b) << 8;
    return UPPER ? (old & 0xFFFFu) | two << 16 : (old & 0xFFFF0000u) | two;
}

// The matrix instructions: lane l holds row (of A) or column (of B) l % 16, and depth block l / 16; of the result it
// gets column l % 16, rows 4 * (l / 16) to 4 * (l / 16) + 3. Layouts: AMD matrix instruction calculator.
static inline f32x4 mfma_16x16x32(u32x2 a, u32x2 b, f32x4 c) {
    struct Pair { u8 a[8], b[8]; } mine;
    memcpy(mine.a, &a, 8);
    memcpy(mine.b, &b, 8);
    const Pair* all = cpu::exchange(mine);
    const int lane = cpu::current % 64;
    for (int r = 0; r < 4; ++r)
        for (int k = 0; k < 32; ++k)
            c[r] += cpu::fp8_value(all[lane / 16 * 4 + r + k / 8 * 16].a[k % 8]) *
                    cpu::fp8_value(all[lane % 16 + k / 8 * 16].b[k % 8]);
    return c;
}
// Sparse A: 8 numbers stand for 16 places; of every 4 places two are filled, and `positions` says which (2 bits each).
static inline f32x4 smfmac_16x16x64(u32x2 a, u32x4 b, f32x4 c, u32 positions) {
    struct Operands { u8 a[8], b[16]; u32 positions; } mine;
    memcpy(mine.a, &a, 8);
    memcpy(mine.b, &b, 16);
    mine.positions = positions;
    const Operands* all = cpu::exchange(mine);
    const int lane = cpu::current % 64;
    for (int r = 0; r < 4; ++r)
        for (int k = 0; k < 32; ++k) {
            const Operands& row = all[lane / 16 * 4 + r + k / 8 * 16];
            const int place = k % 8 / 2 * 4 + (row.positions >> k % 8 * 2 & 3);
            c[r] += cpu::fp8_value(row.a[k % 8]) * cpu::fp8_value(all[lane % 16 + k / 8 * 16].b[place]);
        }
    return c;
}

static inline void flag_wait(u32* flag, u32 at_least) {
    while (*flag < at_least && !cpu::failure) cpu::give_way();
    cpu::exchange(at_least);  // the wave goes on together
}
static inline void flag_add(u32* flag, u32 lane) {
    cpu::exchange(lane);
    if (lane == 0) *flag += 1, ++cpu::progress;
}
static inline u32 take_ticket(u32* counter) { return (*counter)++; }
static inline void publish() {}
static inline void refresh() {}

extern "C" void guide_seed(u32 seed) { cpu::random_state = seed; }
extern "C" const char* guide_failure() { return cpu::failure ? cpu::failure : ""; }
extern "C" void guide_counts(u64* out) {
    out[0] = cpu::counts.load_instructions, out[1] = cpu::counts.load_bytes, out[2] = cpu::counts.load_lines;
    cpu::counts = cpu::Counts{};
}
