// Keys looked at by tensor cores: tiles of 16 keys for all of a block's query heads at once. Tensor cores
// multiply bfloat16 exactly and add up in float32; all else is in float32 as in `lanes.cu`.
//
// They want a matrix spread over the lanes of a warp in one way, and here that way fits without any moving
// about. Call a lane's `row` the eighth of the warp it is in, and `column` its place among those four lanes:
//
// - Scores are queries times keys, [16 heads, 8 keys] at a time, of which the last eight heads are zero. A lane
//   holds queries of head `row`, and keys of number `row`; what comes out are its head's scores of keys
//   `2 column` and the next. A dot product's numbers may be taken in any order if it is the same for both: a
//   lane takes 8 that lie together, and the next 8 are the next lane's.
// - What values come to is values times weights, [16 numbers, 8 heads] at a time: across, so that no
//   head that is not there takes up registers. The weights are wanted where the scores came out. Numbers may
//   again be taken in any order: a lane takes 8 that lie together of each of its four keys, by `row`.
#if TILED

// Keys that a warp looks at before it weighs them: as many as registers hold with their values, for loads to be
// on their way while others are waited for.
#define SPAN (HEAD == 64 ? 2 * TILE : TILE)

// Eight numbers as they lie in memory, two a word.
struct Words {
    unsigned at[4];
};

__device__ inline Words words(const number* from) {
    uint4 packed = *(const uint4*)from;
    return {{packed.x, packed.y, packed.z, packed.w}};
}

// The lower and the upper halves of two words.
__device__ inline unsigned lowers(unsigned a, unsigned b) { return __byte_perm(a, b, 0x5410); }
__device__ inline unsigned uppers(unsigned a, unsigned b) { return __byte_perm(a, b, 0x7632); }

// A word's numbers.
__device__ inline float lower(unsigned pair) { return __uint_as_float(pair << 16); }
__device__ inline float upper(unsigned pair) { return __uint_as_float(pair & 0xffff0000u); }

#ifdef __CUDACC__ // else the machine of the tests has its own
// sum += a · b, [16, 8] from [16, 16] and [16, 8], by all lanes of a warp together.
__device__ inline void mma(float (&sum)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0,
                           unsigned b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
#endif

typedef Words Keys[SPAN / 8][HEAD / 32];
typedef Words Values[SPAN / TILE][4][HEAD / 64];

// Of the keys from `first` on, those that this lane holds. In the place of those behind the last one is the
// last one again, which is there and will have no weight.
__device__ inline void load(Keys& keys, const Past& past, int first, int last, int row, int column) {
#pragma unroll
    for (int n = 0; n < SPAN / 8; n++) {
        const number* key = past.key(min(first + n * 8 + row, last), column);
#pragma unroll
        for (int c = 0; c < HEAD / 32; c++) keys[n][c] = words(key + c * 32);
    }
}

// Likewise of the values: of each tile keys 2 column, the next, and the same eight further on.
__device__ inline void load(Values& values, const Past& past, int first, int last, int row, int column) {
#pragma unroll
    for (int i = 0; i < SPAN / TILE * 4; i++) {
        int at = first + i / 2 * 8 + column * 2 + i % 2;
        const number* value = past.value(min(at, last), row);
#pragma unroll
        for (int c = 0; c < HEAD / 64; c++) values[i / 4][i % 4][c] = words(value + c * 64);
    }
}

__device__ inline void look(const number* queries, const Past& past, int from, int to, Found& found) {
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, row = lane / 4, column = lane % 4;
    int first = from + warp * SPAN, last = to - 1;
    // For heads that are not there the last one again: nobody looks at what comes of it.
    Words query[HEAD / 32];
#pragma unroll
    for (int c = 0; c < HEAD / 32; c++)
        query[c] = words(queries + min(row, SHARE - 1) * HEAD + c * 32 + column * 8);
    // A row has a key at least, so that there is always one to be asked for.
    Keys keys;
    Values values;
    load(keys, past, first, last, row, column);
    load(values, past, first, last, row, column);

    // Of head `row`, the sum over this lane's keys alone; and of heads 2 column and the next: of each 16
    // numbers an even one and the odd one after it.
    float top = NOTHING, total = 0, sum[HEAD / 16][4] = {};
    for (; first < to; first += WARPS * SPAN) {
        float score[SPAN / 8][4] = {};
#pragma unroll
        for (int c = 0; c < HEAD / 32; c++) {
            const unsigned* q = query[c].at;
#pragma unroll
            for (int half = 0; half < 4; half += 2) {
#pragma unroll
                for (int n = 0; n < SPAN / 8; n++)
                    mma(score[n], q[half], 0, q[half + 1], 0, keys[n][c].at[half], keys[n][c].at[half + 1]);
            }
        }
        // What comes next is asked for as soon as there is room for it.
        int next = first + WARPS * SPAN;
        if (next < to) load(keys, past, next, last, row, column);

        float highest = NOTHING;
#pragma unroll
        for (int n = 0; n < SPAN / 8; n++) {
            unsigned pair = narrow(score[n][0], score[n][1]);
            int i = first + n * 8 + column * 2;
            score[n][0] = i < to ? lower(pair) : NOTHING;
            score[n][1] = i + 1 < to ? upper(pair) : NOTHING;
            highest = fmaxf(highest, fmaxf(score[n][0], score[n][1]));
        }
        // As `softmax.cu` has it, to the last bit.
        float peak = fmaxf(top, ceilf(highest * SCALE));
        // Later keys seldom have a higher peak than all before.
        if (__ballot_sync(ALL, peak > top)) {
            peak = fmaxf(peak, __shfl_xor_sync(ALL, peak, 1));
            peak = fmaxf(peak, __shfl_xor_sync(ALL, peak, 2));
            // No key yet: any number will do to measure from.
            float keep = exp2f(top - (peak == NOTHING ? 0 : peak));
            float keeps[2] = {__shfl_sync(ALL, keep, column * 8), __shfl_sync(ALL, keep, column * 8 + 4)};
            top = peak;
            total *= keep;
#pragma unroll
            for (int m = 0; m < HEAD / 16; m++) {
#pragma unroll
                for (int j = 0; j < 4; j++) sum[m][j] *= keeps[j % 2];
            }
        }

        float base = top == NOTHING ? 0 : top;
#pragma unroll
        for (int d = 0; d < SPAN / TILE; d++) {
            unsigned weights[2];
#pragma unroll
            for (int n = 0; n < 2; n++) {
                const float* two = score[d * 2 + n];
                weights[n] = narrow(exp2f(two[0] * SCALE - base), exp2f(two[1] * SCALE - base));
                total += lower(weights[n]) + upper(weights[n]);
            }
#pragma unroll
            for (int m = 0; m < HEAD / 16; m++) {
                unsigned v[4];
#pragma unroll
                for (int i = 0; i < 4; i++) v[i] = values[d][i][m / 4].at[m % 4];
                mma(sum[m], lowers(v[0], v[1]), uppers(v[0], v[1]), lowers(v[2], v[3]), uppers(v[2], v[3]),
                    weights[0], weights[1]);
            }
        }
        if (next < to) load(values, past, next, last, row, column);
    }

    total += __shfl_xor_sync(ALL, total, 1);
    total += __shfl_xor_sync(ALL, total, 2);
    if (column == 0 && row < SHARE) {
        found.tops[warp][row] = top;
        found.totals[warp][row] = total;
    }
#pragma unroll
    for (int j = 0; j < 2; j++) {
        int h = column * 2 + j;
        if (h >= SHARE) continue;
#pragma unroll
        for (int m = 0; m < HEAD / 16; m += 2)
            found.sums[warp][h][m / 4 * 16 + row * 2 + m % 4 / 2] =
                make_float4(sum[m][j], sum[m][j + 2], sum[m + 1][j], sum[m + 1][j + 2]);
    }
}
#endif
