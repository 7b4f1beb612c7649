// Causal attention of whole sequences by tensor cores, without its weights in memory: for bfloat16 and heads of
// 64 or 128 numbers; `softmax.cu` has all others. Forward it is FlashAttention 2 (arXiv:2307.08691); backward it
// makes weights anew, in two kernels, so that every sum has one order: one for the gradients of keys and
// values, one for that of queries.
//
// It rounds where `softmax.cu` and `attend` round: scores; weights, which are measured from a power of two, so
// that a later and higher one changes none of their bits; what values come to, before it is divided by the sum
// of the weights.
//
// A block has ROWS rows, 16 for each warp, and goes through the columns that they have to do with, a tile
// at a time; while it works on one tile, the next is on its way into shared memory. What the tensor cores want
// and give, and which lane has what of it, is as in `tiles.cu`.
#define FLASH (BF16 && (HEAD == 64 || HEAD == 128))
#define ROWS (16 * WARPS)
#define EIGHTS (HEAD / 8)
// Gradients of scores are multiplied by this, as scores are divided by its inverse.
#define SHRINK (1 / sqrtf((float)HEAD))

// Columns of a tile, and blocks that a multiprocessor's registers are to hold: the fastest of those that were tried
// on an H200 with sequences of 256, 1,024 and 4,096 tokens.
#define COLUMNS 64
#define COLUMNS_KEYS (HEAD == 64 ? 64 : 32)
#define RESIDENT_FLASH (HEAD == 64 ? 4 : 2)

#if FLASH
// A tile's eight numbers in shared memory: moved about within a row, so that eight rows of one column lie in
// different banks.
__device__ inline number* place(number* tile, int row, int eighth) {
    return tile + row * HEAD + (eighth ^ (row & 7)) * 8;
}

#ifdef __CUDACC__ // else the machine of the tests has its own
__device__ inline unsigned address(const void* shared) { return (unsigned)__cvta_generic_to_shared(shared); }

// Four matrices of 8 x 8 from shared memory, of which each lane names a row: of each matrix a lane gets numbers
// `2 column` and the next of row `row`; or, `across`, of rows `2 column` and the next number `row`.
__device__ inline void matrices(unsigned (&to)[4], const number* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address(row)));
}
__device__ inline void matrices_across(unsigned (&to)[4], const number* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address(row)));
}

// Eight numbers on their way into shared memory. They are there once a later `arrived` has returned: with 0 all
// that was asked for, with 1 all but what was asked for after the last `asked`.
__device__ inline void ask(number* shared, const number* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address(shared)), "l"(from) : "memory");
}
__device__ inline void asked() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int LATER>
__device__ inline void arrived() {
    asm volatile("cp.async.wait_group %0;" ::"n"(LATER) : "memory");
}
#endif

// Two to the power of a number; 0 where it is not a normal one.
#ifdef __CUDACC__
__device__ inline float power(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
#else
__device__ inline float power(float x) { return exp2f(x); }
#endif

// Asks for N rows of a head, [tokens, HEAD], from the `first` on. In the place of rows behind the last one is the
// last one again: what comes of it is used for nothing.
template <int N>
__device__ inline void ask(number* tile, const number* head, int first, int tokens) {
#pragma unroll
    for (int n = 0; n < N * EIGHTS / (WARPS * WARP); n++) {
        int i = threadIdx.x + n * WARPS * WARP, row = i / EIGHTS, eighth = i % EIGHTS;
        ask(place(tile, row, eighth), head + (u64)min(first + row, tokens - 1) * HEAD + eighth * 8);
    }
}

// products = rows · tileᵀ, [16, 8 N], of this warp's 16 rows.
template <int N>
__device__ inline void dots(float (&products)[N][4], number* rows, number* tile) {
    int lane = threadIdx.x % WARP, first = threadIdx.x / WARP * 16;
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int j = 0; j < 4; j++) products[n][j] = 0;
#pragma unroll
    for (int c = 0; c < HEAD / 16; c++) {
        unsigned a[4];
        matrices(a, place(rows, first + lane % 16, c * 2 + lane / 16));
#pragma unroll
        for (int n = 0; n < N / 2; n++) {
            unsigned b[4];
            matrices(b, place(tile, n * 16 + lane % 8 + lane / 16 * 8, c * 2 + lane / 8 % 2));
            mma(products[2 * n], a[0], a[1], a[2], a[3], b[0], b[1]);
            mma(products[2 * n + 1], a[0], a[1], a[2], a[3], b[2], b[3]);
        }
    }
}

// sums += weights · tile, [16, HEAD]. Of eight columns of weights a lane has two pairs, of rows `row` and `row` + 8.
template <int N>
__device__ inline void mix(float (&sums)[EIGHTS][4], const unsigned (&weights)[N][2], number* tile) {
    int lane = threadIdx.x % WARP;
#pragma unroll
    for (int k = 0; k < N / 2; k++)
#pragma unroll
        for (int c = 0; c < HEAD / 16; c++) {
            unsigned b[4];
            matrices_across(b, place(tile, k * 16 + lane % 16, c * 2 + lane / 16));
            const unsigned *w = weights[2 * k], *x = weights[2 * k + 1];
            mma(sums[2 * c], w[0], w[1], x[0], x[1], b[0], b[1]);
            mma(sums[2 * c + 1], w[0], w[1], x[0], x[1], b[2], b[3]);
        }
}

// A head's sums, rounded, into [tokens, HEAD].
__device__ inline void store(number* head, const float (&sums)[EIGHTS][4], int first, int tokens) {
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int row = first + warp * 16 + lane / 4 + i * 8;
        if (row >= tokens) continue;
#pragma unroll
        for (int e = 0; e < EIGHTS; e++)
            *(unsigned*)(head + (u64)row * HEAD + e * 8 + lane % 4 * 2) =
                narrow(sums[e][2 * i], sums[e][2 * i + 1]);
    }
}

// Waits for the columns of a step, while those of the next one are asked for.
template <class Next>
__device__ inline void turn_to(int step, int count, Next next) {
    if (step + 1 < count) {
        next(step + 1);
        arrived<1>();
    } else {
        arrived<0>();
    }
    __syncthreads();
}

// One half of the backward pass. With KEYS, a block's rows are keys and columns queries, and it makes the
// gradients of keys and of values; else rows are queries and columns keys, and it makes that of queries. Sums are over
// the columns of `heads` query heads, which share the head of keys. `room` is 2 rows' and 4 columns' tiles.
//
// mine, theirs: keys and values, or queries and the gradients of what their values come to, [tokens, HEAD] each;
// bases, deltas: of queries, [heads, tokens].
template <bool KEYS, int WIDTH>
__device__ inline void backward(number* room, const number* const (&mine)[2], const number* const (&theirs)[2],
                                const float* bases, const float* deltas, number* const (&out)[2], int first,
                                int heads, int tokens) {
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, row = first + warp * 16 + lane / 4;
    // Queries see keys up to themselves.
    int last = min(first + ROWS, tokens) - 1;
    int from = KEYS ? first / WIDTH : 0;
    int each = (KEYS ? (tokens - 1) / WIDTH : last / WIDTH) + 1 - from;
    number *tile = room, *other = room + ROWS * HEAD, *rest = other + ROWS * HEAD;
    auto next = [&](int step) {
        number* at = rest + step % 2 * 2 * WIDTH * HEAD;
        u64 head = (u64)(step / each) * tokens * HEAD;
        int column = (from + step % each) * WIDTH;
        ask<WIDTH>(at, theirs[0] + head, column, tokens);
        ask<WIDTH>(at + WIDTH * HEAD, theirs[1] + head, column, tokens);
        asked();
    };
    ask<ROWS>(tile, mine[0], first, tokens);
    ask<ROWS>(other, mine[1], first, tokens);
    next(0);

    float base[2], delta[2];
    if (!KEYS)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int query = min(row + i * 8, tokens - 1);
            base[i] = bases[query];
            delta[i] = deltas[query];
        }
    // Gradients of keys or of queries; of values.
    float sums[EIGHTS][4] = {}, more[EIGHTS][4] = {};
    for (int step = 0; step < heads * each; step++) {
        turn_to(step, heads * each, next);
        number* a = rest + step % 2 * 2 * WIDTH * HEAD;
        number* b = a + WIDTH * HEAD;
        int column = (from + step % each) * WIDTH;
        u64 head = (u64)(step / each) * tokens;
        float scores[WIDTH / 8][4], slopes[WIDTH / 8][4];
        unsigned weights[WIDTH / 8][2];
        dots(scores, tile, a);
        bool all = KEYS ? column >= last && column + WIDTH <= tokens : column + WIDTH <= first;
#pragma unroll
        for (int n = 0; n < WIDTH / 8; n++) {
            int at = column + n * 8 + lane % 4 * 2;
            // Tokens are a multiple of 8: both of two are there, or neither.
            float2 top;
            if (KEYS) top = *(const float2*)(bases + head + min(at, tokens - 2));
#pragma unroll
            for (int i = 0; i < 2; i++) {
                float* two = scores[n] + i * 2;
                unsigned score = narrow(two[0], two[1]);
                two[0] = power(lower(score) * SCALE - (KEYS ? top.x : base[i]));
                two[1] = power(upper(score) * SCALE - (KEYS ? top.y : base[i]));
                if (!all) {
                    int here = row + i * 8;
#pragma unroll
                    for (int j = 0; j < 2; j++) {
                        bool seen = KEYS ? here <= at + j && at + j < tokens : at + j <= here;
                        if (!seen) two[j] = 0;
                    }
                }
                weights[n][i] = narrow(two[0], two[1]);
            }
        }
        if (KEYS) mix(more, weights, b);
        dots(slopes, other, b);
#pragma unroll
        for (int n = 0; n < WIDTH / 8; n++) {
            float2 less;
            if (KEYS) less = *(const float2*)(deltas + head + min(column + n * 8 + lane % 4 * 2, tokens - 2));
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const float* two = slopes[n] + i * 2;
                unsigned& weight = weights[n][i];
                weight = narrow(lower(weight) * (two[0] - (KEYS ? less.x : delta[i])) * SHRINK,
                                upper(weight) * (two[1] - (KEYS ? less.y : delta[i])) * SHRINK);
            }
        }
        mix(sums, weights, a);
        __syncthreads();
    }
    store(out[0], sums, first, tokens);
    if (KEYS) store(out[1], more, first, tokens);
}
#endif

// What values come to by attention, side by side, [B, tokens, HEADS, HEAD]; the sums of its weights, and what those
// are measured from, [2, B, HEADS, tokens]. Blocks: [HEADS, B, tokens / ROWS], the longest rows first.
// Shared memory: the rows' tile and 4 of columns.
extern "C" __global__ void __launch_bounds__(WARPS* WARP, RESIDENT_FLASH)
    flash(const number* q, const number* k, const number* v, number* mixed, float* sums, int tokens) {
#if FLASH
    SHARED(number, room);
    number *tile = room, *rest = room + ROWS * HEAD;
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    int first = (gridDim.z - 1 - blockIdx.z) * ROWS, row = first + warp * 16 + lane / 4;
    u64 head = (u64)blockIdx.y * HEADS + blockIdx.x;
    u64 kv = ((u64)blockIdx.y * KV_HEADS + blockIdx.x / (HEADS / KV_HEADS)) * tokens * HEAD;
    int count = (min(first + ROWS, tokens) - 1) / COLUMNS + 1;
    auto next = [&](int step) {
        number* at = rest + step % 2 * 2 * COLUMNS * HEAD;
        ask<COLUMNS>(at, k + kv, step * COLUMNS, tokens);
        ask<COLUMNS>(at + COLUMNS * HEAD, v + kv, step * COLUMNS, tokens);
        asked();
    };
    ask<ROWS>(tile, q + head * tokens * HEAD, first, tokens);
    next(0);

    float top[2] = {NOTHING, NOTHING}, total[2] = {}, values[EIGHTS][4] = {};
    for (int step = 0; step < count; step++) {
        turn_to(step, count, next);
        number* keys = rest + step % 2 * 2 * COLUMNS * HEAD;
        float scores[COLUMNS / 8][4];
        unsigned weights[COLUMNS / 8][2];
        dots(scores, tile, keys);
        bool all = (step + 1) * COLUMNS <= first;
        float peak[2];
        bool higher = false;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float highest = NOTHING;
#pragma unroll
            for (int n = 0; n < COLUMNS / 8; n++) {
                float* two = scores[n] + i * 2;
                unsigned score = narrow(two[0], two[1]);
                two[0] = lower(score), two[1] = upper(score);
                if (!all) {
                    int key = step * COLUMNS + n * 8 + lane % 4 * 2;
                    if (key > row + i * 8) two[0] = NOTHING;
                    if (key + 1 > row + i * 8) two[1] = NOTHING;
                }
                highest = fmaxf(highest, fmaxf(two[0], two[1]));
            }
            peak[i] = fmaxf(top[i], ceilf(highest * SCALE));
            higher |= peak[i] > top[i];
        }
        // Later keys seldom have a higher peak than all before.
        if (__ballot_sync(ALL, higher)) {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                peak[i] = fmaxf(peak[i], __shfl_xor_sync(ALL, peak[i], 1));
                peak[i] = fmaxf(peak[i], __shfl_xor_sync(ALL, peak[i], 2));
                // The first tile has a key for every row, so that this is a number.
                float keep = power(top[i] - peak[i]);
                top[i] = peak[i];
                total[i] *= keep;
#pragma unroll
                for (int e = 0; e < EIGHTS; e++) {
                    values[e][2 * i] *= keep;
                    values[e][2 * i + 1] *= keep;
                }
            }
        }
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int n = 0; n < COLUMNS / 8; n++) {
                const float* two = scores[n] + i * 2;
                unsigned weight = narrow(power(two[0] * SCALE - top[i]), power(two[1] * SCALE - top[i]));
                weights[n][i] = weight;
                total[i] += lower(weight) + upper(weight);
            }
        mix(values, weights, keys + COLUMNS * HEAD);
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        total[i] += __shfl_xor_sync(ALL, total[i], 1);
        total[i] += __shfl_xor_sync(ALL, total[i], 2);
        int query = row + i * 8;
        if (query >= tokens) continue;
        if (lane % 4 == 0) {
            sums[head * tokens + query] = total[i];
            sums[((u64)gridDim.y * HEADS + head) * tokens + query] = top[i];
        }
        number* to = mixed + (((u64)blockIdx.y * tokens + query) * HEADS + blockIdx.x) * HEAD + lane % 4 * 2;
#pragma unroll
        for (int e = 0; e < EIGHTS; e++)
            *(unsigned*)(to + e * 8) = narrow(rounded(values[e][2 * i]) / total[i],
                                              rounded(values[e][2 * i + 1]) / total[i]);
    }
#endif
}

// From the gradients of `mixed`: divided by the sums of the weights and with heads by themselves, [B, HEADS, tokens,
// HEAD]; and what all slopes of a query's weights are taken from, the sum of weights * slopes over that of the
// weights, which is the dot product with `mixed`, [B, HEADS, tokens]. One warp a head of a token.
extern "C" __global__ void flash_slopes(const number* dmixed, const number* mixed, const float* sums,
                                        number* slopes, float* deltas, int rows, int tokens) {
#if FLASH
    Head at = find(rows, tokens, HEADS);
    if (!at.is) return;
    float sum = sums[at.alone / HEAD], dot = 0;
    for (int i = threadIdx.x % WARP * 2; i < HEAD; i += WARP * 2) {
        unsigned slope = *(const unsigned*)(dmixed + at.beside + i);
        unsigned value = *(const unsigned*)(mixed + at.beside + i);
        float a = lower(slope) / sum, b = upper(slope) / sum;
        dot += a * lower(value) + b * upper(value);
        *(unsigned*)(slopes + at.alone + i) = narrow(a, b);
    }
    dot = warp_sum(dot);
    if (threadIdx.x % WARP == 0) deltas[at.alone / HEAD] = dot;
#endif
}

// Gradients of keys and values, [B, KV_HEADS, tokens, HEAD] each. `bases` are the second half of what `flash` calls
// `sums`. Blocks: [KV_HEADS, B, tokens / ROWS]. Shared memory: 2 tiles of rows and 4 of columns.
extern "C" __global__ void __launch_bounds__(WARPS* WARP, 2)
    flash_keys(const number* q, const number* k, const number* v, const number* slopes, const float* bases,
               const float* deltas, number* dk, number* dv, int tokens) {
#if FLASH
    SHARED(number, room);
    u64 kv = (u64)blockIdx.y * KV_HEADS + blockIdx.x, queries = kv * (HEADS / KV_HEADS) * tokens;
    const number* const mine[2] = {k + kv * tokens * HEAD, v + kv * tokens * HEAD};
    const number* const theirs[2] = {q + queries * HEAD, slopes + queries * HEAD};
    number* const out[2] = {dk + kv * tokens * HEAD, dv + kv * tokens * HEAD};
    backward<true, COLUMNS_KEYS>(room, mine, theirs, bases + queries, deltas + queries, out,
                                      blockIdx.z * ROWS, HEADS / KV_HEADS, tokens);
#endif
}

// Gradients of queries, [B, HEADS, tokens, HEAD]. Blocks: [HEADS, B, tokens / ROWS], the longest first.
extern "C" __global__ void __launch_bounds__(WARPS* WARP, RESIDENT_FLASH)
    flash_queries(const number* q, const number* k, const number* v, const number* slopes, const float* bases,
                  const float* deltas, number* dq, int tokens) {
#if FLASH
    SHARED(number, room);
    u64 head = (u64)blockIdx.y * HEADS + blockIdx.x;
    u64 kv = ((u64)blockIdx.y * KV_HEADS + blockIdx.x / (HEADS / KV_HEADS)) * tokens * HEAD;
    const number* const mine[2] = {q + head * tokens * HEAD, slopes + head * tokens * HEAD};
    const number* const theirs[2] = {k + kv, v + kv};
    number* const out[2] = {dq + head * tokens * HEAD, nullptr};
    backward<false, COLUMNS>(room, mine, theirs, bases + head * tokens, deltas + head * tokens, out,
                                       (gridDim.z - 1 - blockIdx.z) * ROWS, 1, tokens);
#endif
}
