// SPDX-License-Identifier: MIT
// Skinny GEMM in FP8: C = scale * A * B^T with 1 to 8 rows of A through the sparse matrix instruction, 9 to 16 through
// the dense one. A is (rows, depth), B is the weight, (columns, depth); both e4m3, depth contiguous.
//
// Twelve waves with three roles make a workgroup, which computes 32 columns over a part of the depth (split-K):
//   2 consumer waves    16 columns each: LDS -> matrix core
//   8 producer waves    the weight: memory -> registers -> LDS, a stage of 32 columns x 256 deep at a time
//   2 producer waves    the skinny input, cut into the two halves that the sparse trick needs
// They meet in a queue of QUEUE stages in LDS. Each stage has three counters that only grow: how often its weight was
// written, how often its input was written, how often it was read. A producer of turn t waits until the stage has been
// read t / QUEUE times by both consumers; a consumer waits until it has been written t / QUEUE + 1 times.
#include "guide.h"

constexpr int CONSUMERS = 2, WEIGHT_PRODUCERS = 8, INPUT_PRODUCERS = 2;
constexpr int WAVES = CONSUMERS + WEIGHT_PRODUCERS + INPUT_PRODUCERS, GEMM_THREADS = WAVES * WAVE;
constexpr int COLUMNS = 16 * CONSUMERS, DEPTH = 256;
// 16 bytes more than the data: rows then start at different LDS banks, and 16 lanes reading 16 rows do not collide.
constexpr int PITCH = DEPTH + 16;

template <int QUEUE>
struct Roles {
    u32 weight_written[QUEUE], input_written[QUEUE], read[QUEUE], last;
};

// Of each group of four numbers, a lane pair of the sparse instruction takes two and two: the even lane places 0 and 1,
// the odd lane places 2 and 3. Sixteen bytes (four groups) become eight bytes for each of them.
GUIDE_DEVICE u32x4 halves(u32x4 w) {
    return u32x4{(w.x & 0xFFFFu) | w.y << 16, (w.z & 0xFFFFu) | w.w << 16, w.x >> 16 | (w.y & 0xFFFF0000u),
                 w.z >> 16 | (w.w & 0xFFFF0000u)};
}

template <bool SPARSE>
GUIDE_DEVICE f32x4 consume(const u8* weight, const u8* input, u32 consumer, u32 lane, f32x4 sum) {
    const u32 line = lane % 16, block = lane / 16;  // row of A or column of B, and which 16 of 64 places in depth
    const u8* b = weight + (consumer * 16 + line) * PITCH + block * 16;
    const u8* a = SPARSE ? input + line / 2 * PITCH + block * 16 + line % 2 * 8 : input + line * PITCH + block * 16;
#pragma unroll
    for (int k = 0; k < DEPTH; k += 64) {
        const u32x4 columns = *(const u32x4*)(b + k);
        if (SPARSE) {
            // Positions, two bits each and four groups: 0 and 1 in even rows (0100), 2 and 3 in odd rows (1110).
            sum = smfmac_16x16x64(*(const u32x2*)(a + k), columns, sum, line % 2 ? 0xEEEEu : 0x4444u);
        } else {
            const u32x4 rows = *(const u32x4*)(a + k);
            sum = mfma_16x16x32(rows.xy, columns.xy, sum);
            sum = mfma_16x16x32(rows.zw, columns.zw, sum);
        }
    }
    return sum;
}

template <bool SPARSE, typename T>
GUIDE_DEVICE void skinny_gemm(const u8* a, const u8* b, T* c, float* partial, u32* tickets, int rows, int columns,
                              int depth, int splits, float scale) {
    // As many stages as leave room for a second workgroup on the compute unit (64 KiB of LDS).
    constexpr int ROWS = SPARSE ? 8 : 16, QUEUE = SPARSE ? 3 : 2;
    constexpr int WEIGHT = COLUMNS * PITCH, STAGE = WEIGHT + ROWS * PITCH;
    GUIDE_SHARED(u32x4, lds, QUEUE * STAGE / 16);
    GUIDE_SHARED(Roles<QUEUE>, roles, 1);
    const u32 lane = thread_id() % WAVE, wave = uniform(thread_id() / WAVE);
    const int first_column = block_x() * COLUMNS, turns = depth / DEPTH / splits;
    const u64 start = (u64)block_y() * turns * DEPTH;
    if (thread_id() < QUEUE * 3) ((u32*)roles)[thread_id()] = 0;
    barrier();

    f32x4 sum = {0.0f, 0.0f, 0.0f, 0.0f};
    if (wave < CONSUMERS) {
        for (int t = 0; t < turns; ++t) {
            const int slot = t % QUEUE;
            flag_wait(&roles->weight_written[slot], t / QUEUE + 1);
            flag_wait(&roles->input_written[slot], t / QUEUE + 1);
            const u8* stage = (const u8*)lds + slot * STAGE;
            sum = consume<SPARSE>(stage, stage + WEIGHT, wave, lane, sum);
            flag_add(&roles->read[slot], lane);
        }
    } else if (wave < CONSUMERS + WEIGHT_PRODUCERS) {
        // 16 lanes read 256 contiguous bytes of one column; the wave takes 4 columns with each of 8 loads.
        constexpr int LOADS = COLUMNS / 4;
        const u32 within = lane / 16 * PITCH + lane % 16 * 16;
        const u8* from = b + (u64)(first_column + lane / 16) * depth + start + lane % 16 * 16;
        for (int t = wave - CONSUMERS; t < turns; t += WEIGHT_PRODUCERS) {
            u32x4 held[LOADS];
#pragma unroll
            for (int i = 0; i < LOADS; ++i) held[i] = load_once((const u32x4*)(from + (u64)t * DEPTH + (u64)i * 4 * depth));
            const int slot = t % QUEUE;
            flag_wait(&roles->read[slot], t / QUEUE * CONSUMERS);  // the loads are under way meanwhile
            u8* to = (u8*)lds + slot * STAGE + within;
#pragma unroll
            for (int i = 0; i < LOADS; ++i) *(u32x4*)(to + i * 4 * PITCH) = held[i];
            flag_add(&roles->weight_written[slot], lane);
        }
    } else {
        constexpr int LOADS = ROWS / 4;
        for (int t = wave - CONSUMERS - WEIGHT_PRODUCERS; t < turns; t += INPUT_PRODUCERS) {
            u32x4 held[LOADS];
#pragma unroll
            for (int i = 0; i < LOADS; ++i) {
                const int row = i * 4 + lane / 16;
                held[i] = u32x4{0, 0, 0, 0};  // rows that do not exist
                if (row < rows) held[i] = load((const u32x4*)(a + (u64)row * depth + start + t * DEPTH + lane % 16 * 16));
            }
            const int slot = t % QUEUE;
            flag_wait(&roles->read[slot], t / QUEUE * CONSUMERS);
            u8* to = (u8*)lds + slot * STAGE + WEIGHT + lane / 16 * PITCH + lane % 16 * 16;
#pragma unroll
            for (int i = 0; i < LOADS; ++i) *(u32x4*)(to + i * 4 * PITCH) = SPARSE ? halves(held[i]) : held[i];
            flag_add(&roles->input_written[slot], lane);
        }
    }

    // The lane holds column lane % 16, rows 4 * (lane / 16) and the next three. Sparse: neighbouring rows are the two
    // halves of one true row, and lie in neighbouring registers, so that putting them together is one addition.
    if (wave < CONSUMERS) {
        const int column = first_column + wave * 16 + lane % 16;
        float values[4] = {sum.x, sum.y, sum.z, sum.w};
        if (SPARSE) values[0] = sum.x + sum.y, values[1] = sum.z + sum.w;
        const int row = SPARSE ? lane / 16 * 2 : lane / 16 * 4;
        for (int i = 0; i < (SPARSE ? 2 : 4); ++i) {
            if (row + i >= rows) continue;
            const u64 at = (u64)(row + i) * columns + column;
            if (splits == 1) c[at] = (T)(values[i] * scale);
            else partial[(u64)block_y() * rows * columns + at] = values[i];
        }
    }
    if (splits == 1) return;

    // Split-K: the workgroup that comes last adds up what all have left, in order, so that the result never varies.
    publish();
    barrier();
    if (thread_id() == 0) {
        roles->last = take_ticket(&tickets[block_x()]) == (u32)splits - 1;
        if (roles->last) tickets[block_x()] = 0;  // ready for the next launch
    }
    barrier();
    if (!roles->last) return;
    refresh();
    for (int i = thread_id(); i < rows * COLUMNS; i += GEMM_THREADS) {
        const u64 at = (u64)(i / COLUMNS) * columns + first_column + i % COLUMNS;
        float total = 0.0f;
        for (int s = 0; s < splits; ++s) total += partial[(u64)s * rows * columns + at];
        c[at] = (T)(total * scale);
    }
}

#define SKINNY(name, SPARSE, T)                                                                                      \
    GUIDE_KERNEL(GEMM_THREADS)                                                                                       \
    name(const u8* a, const u8* b, T* c, float* partial, u32* tickets, int rows, int columns, int depth, int splits, \
         float scale) {                                                                                              \
        skinny_gemm<SPARSE, T>(a, b, c, partial, tickets, rows, columns, depth, splits, scale);                      \
    }
SKINNY(skinny_gemm_sparse_f16, true, f16)
SKINNY(skinny_gemm_sparse_bf16, true, bf16)
SKINNY(skinny_gemm_dense_f16, false, f16)
SKINNY(skinny_gemm_dense_bf16, false, bf16)

#define LAUNCH(name, T)                                                                                              \
    GUIDE_LAUNCH(name, columns / COLUMNS, splits, GEMM_THREADS, stream, (const u8*)a, (const u8*)b, (T*)c, partial,  \
                 tickets, rows, columns, depth, splits, scale)

// type of c: 0 for fp16, 1 for bf16. dense: 1 to use the dense instruction even for 8 rows or fewer. With splits > 1,
// partial has splits * rows * columns floats and tickets columns / 32 zeros (which it leaves zero). 0 means started; -1
// that the arguments do not fit (columns: a multiple of 32; depth: of 256 * splits; rows: 1 to 16).
extern "C" int guide_skinny_gemm(int type, int dense, const void* a, const void* b, void* c, float* partial,
                                 u32* tickets, int rows, int columns, int depth, int splits, float scale,
                                 void* stream) {
    if (rows < 1 || rows > 16 || columns < COLUMNS || columns % COLUMNS || type < 0 || type > 1) return -1;
    if (splits < 1 || depth < DEPTH || depth % (DEPTH * splits) || (splits > 1 && (!partial || !tickets))) return -1;
    if (rows > 8 || dense) return type ? LAUNCH(skinny_gemm_dense_bf16, bf16) : LAUNCH(skinny_gemm_dense_f16, f16);
    return type ? LAUNCH(skinny_gemm_sparse_bf16, bf16) : LAUNCH(skinny_gemm_sparse_f16, f16);
}
