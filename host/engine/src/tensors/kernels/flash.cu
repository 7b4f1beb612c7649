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
#define COLUMNS 64
// Backward there are more sums to keep in registers.
#define COLUMNS_BACK (HEAD == 64 ? 64 : 32)
#define EIGHTS (HEAD / 8)
// What scores are multiplied with, as far as their slopes are concerned.
#define SHRINK (1 / sqrtf((float)HEAD))

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

// Asks for N rows of a head, [tokens, HEAD], from the `first` on. In the place of rows behind the last one is the
// last one again: what comes of it is used for nothing.
template <int N>
__device__ inline void ask(number* tile, const number* head, int first, int tokens) {
    for (int i = threadIdx.x; i < N * EIGHTS; i += WARPS * WARP) {
        int row = i / EIGHTS, eighth = i % EIGHTS;
        ask(place(tile, row, eighth), head + (u64)min(first + row, tokens - 1) * HEAD + eighth * 8);
    }
}

// This warp's 16 rows of a tile, as the first factor of products.
typedef unsigned Mine[HEAD / 16][4];

__device__ inline void load(Mine& mine, number* tile) {
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
#pragma unroll
    for (int c = 0; c < HEAD / 16; c++)
        matrices(mine[c], place(tile, warp * 16 + lane % 16, c * 2 + lane / 16));
}

// products = mine · tileᵀ, [16, 8 N].
template <int N>
__device__ inline void dots(float (&products)[N][4], const Mine& mine, number* tile) {
    int lane = threadIdx.x % WARP;
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int j = 0; j < 4; j++) products[n][j] = 0;
#pragma unroll
    for (int c = 0; c < HEAD / 16; c++)
#pragma unroll
        for (int n = 0; n < N / 2; n++) {
            unsigned b[4];
            matrices(b, place(tile, n * 16 + lane % 8 + lane / 16 * 8, c * 2 + lane / 8 % 2));
            const unsigned* a = mine[c];
            mma(products[2 * n], a[0], a[1], a[2], a[3], b[0], b[1]);
            mma(products[2 * n + 1], a[0], a[1], a[2], a[3], b[2], b[3]);
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
    for (int r = 0; r < 2; r++) {
        int row = first + warp * 16 + lane / 4 + r * 8;
        if (row >= tokens) continue;
#pragma unroll
        for (int e = 0; e < EIGHTS; e++)
            *(unsigned*)(head + (u64)row * HEAD + e * 8 + lane % 4 * 2) =
                narrow(sums[e][2 * r], sums[e][2 * r + 1]);
    }
}

// One half of the backward pass. With KEYS, a block's rows are keys and columns queries, and it makes the
// gradients of keys and of values; else rows are queries and columns keys, and it makes that of queries. Sums are over
// the columns of `heads` query heads, which share the head of keys. `room` is 2 ROWS + 4 COLUMNS_BACK rows.
//
// mine, theirs: keys and values, or queries and the gradients of what their values come to, [tokens, HEAD] each;
// bases, deltas: of queries, [heads, tokens].
template <bool KEYS>
__device__ inline void backward(number* room, const number* const (&mine)[2], const number* const (&theirs)[2],
                            const float* bases, const float* deltas, number* const (&out)[2], int first,
                            int heads, int tokens) {
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, row = first + warp * 16 + lane / 4;
    // Queries see keys up to themselves.
    int last = min(first + ROWS, tokens) - 1;
    int from = KEYS ? first / COLUMNS_BACK : 0;
    int each = (KEYS ? (tokens - 1) / COLUMNS_BACK : last / COLUMNS_BACK) + 1 - from;
    number *tile = room, *other = room + ROWS * HEAD, *rest = other + ROWS * HEAD;
    auto next = [&](int step) {
        number* at = rest + step % 2 * 2 * COLUMNS_BACK * HEAD;
        u64 head = (u64)(step / each) * tokens * HEAD;
        int column = (from + step % each) * COLUMNS_BACK;
        ask<COLUMNS_BACK>(at, theirs[0] + head, column, tokens);
        ask<COLUMNS_BACK>(at + COLUMNS_BACK * HEAD, theirs[1] + head, column, tokens);
        asked();
    };
    ask<ROWS>(tile, mine[0], first, tokens);
    ask<ROWS>(other, mine[1], first, tokens);
    next(0);

    float base[2] = {}, delta[2] = {};
    if (!KEYS)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            int query = min(row + r * 8, tokens - 1);
            base[r] = bases[query];
            delta[r] = deltas[query];
        }
    // Gradients of keys and values, or of queries and of nothing.
    float sums[2][EIGHTS][4] = {};
    for (int step = 0; step < heads * each; step++) {
        if (step + 1 < heads * each) {
            next(step + 1);
            arrived<1>();
        } else {
            arrived<0>();
        }
        __syncthreads();
        number* a = rest + step % 2 * 2 * COLUMNS_BACK * HEAD;
        number* b = a + COLUMNS_BACK * HEAD;
        int column = (from + step % each) * COLUMNS_BACK;
        u64 head = (u64)(step / each) * tokens;
        Mine own;
        float scores[COLUMNS_BACK / 8][4], slopes[COLUMNS_BACK / 8][4];
        unsigned weights[COLUMNS_BACK / 8][2];
        load(own, tile);
        dots(scores, own, a);
        load(own, other);
        dots(slopes, own, b);
        bool all = KEYS ? column >= last && column + COLUMNS_BACK <= tokens : column + COLUMNS_BACK <= first;
#pragma unroll
        for (int n = 0; n < COLUMNS_BACK / 8; n++) {
            int at = column + n * 8 + lane % 4 * 2;
            float top[2] = {base[0], base[0]}, less[2] = {delta[0], delta[0]};
            if (KEYS) {
                // Tokens are a multiple of 8: both of two are there, or neither.
                u64 query = head + min(at, tokens - 2);
                float2 two = *(const float2*)(bases + query), delta = *(const float2*)(deltas + query);
                top[0] = two.x, top[1] = two.y, less[0] = delta.x, less[1] = delta.y;
            }
#pragma unroll
            for (int r = 0; r < 2; r++) {
                if (!KEYS) top[0] = top[1] = base[r], less[0] = less[1] = delta[r];
                unsigned score = narrow(scores[n][2 * r], scores[n][2 * r + 1]);
                float weight[2] = {exp2f(lower(score) * SCALE - top[0]), exp2f(upper(score) * SCALE - top[1])};
                int here = row + r * 8;
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    bool seen = KEYS ? here <= at + j && at + j < tokens : at + j <= here;
                    if (!all && !seen) weight[j] = 0;
                }
                weights[n][r] = narrow(weight[0], weight[1]);
                slopes[n][2 * r] = lower(weights[n][r]) * (slopes[n][2 * r] - less[0]) * SHRINK;
                slopes[n][2 * r + 1] = upper(weights[n][r]) * (slopes[n][2 * r + 1] - less[1]) * SHRINK;
            }
        }
        if (KEYS) mix(sums[1], weights, b);
#pragma unroll
        for (int n = 0; n < COLUMNS_BACK / 8; n++)
#pragma unroll
            for (int r = 0; r < 2; r++) weights[n][r] = narrow(slopes[n][2 * r], slopes[n][2 * r + 1]);
        mix(sums[0], weights, a);
        __syncthreads();
    }
    store(out[0], sums[0], first, tokens);
    if (KEYS) store(out[1], sums[1], first, tokens);
}
#endif

// What values come to by attention, side by side, [B, tokens, HEADS, HEAD]; the sums of its weights, and what those
// are measured from, [2, B, HEADS, tokens]. Blocks: [HEADS, B, tokens / ROWS], the longest rows first. Shared
// memory: ROWS + 4 COLUMNS rows of a head.
extern "C" __global__ void __launch_bounds__(WARPS* WARP)
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

    Mine query;
    float top[2] = {NOTHING, NOTHING}, total[2] = {}, values[EIGHTS][4] = {};
    for (int step = 0; step < count; step++) {
        if (step + 1 < count) {
            next(step + 1);
            arrived<1>();
        } else {
            arrived<0>();
        }
        __syncthreads();
        if (step == 0) load(query, tile);
        number* keys = rest + step % 2 * 2 * COLUMNS * HEAD;
        float scores[COLUMNS / 8][4];
        unsigned weights[COLUMNS / 8][2];
        dots(scores, query, keys);
        bool all = (step + 1) * COLUMNS <= first;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float highest = NOTHING;
#pragma unroll
            for (int n = 0; n < COLUMNS / 8; n++) {
                unsigned score = narrow(scores[n][2 * r], scores[n][2 * r + 1]);
                int key = step * COLUMNS + n * 8 + lane % 4 * 2;
                scores[n][2 * r] = all || key <= row + r * 8 ? lower(score) : NOTHING;
                scores[n][2 * r + 1] = all || key + 1 <= row + r * 8 ? upper(score) : NOTHING;
                highest = fmaxf(highest, fmaxf(scores[n][2 * r], scores[n][2 * r + 1]));
            }
            highest = fmaxf(highest, __shfl_xor_sync(ALL, highest, 1));
            highest = fmaxf(highest, __shfl_xor_sync(ALL, highest, 2));
            // The first tile has a key for every row, so that this is a number.
            float peak = fmaxf(top[r], ceilf(highest * SCALE)), keep = exp2f(top[r] - peak);
            top[r] = peak;
            total[r] *= keep;
#pragma unroll
            for (int e = 0; e < EIGHTS; e++) {
                values[e][2 * r] *= keep;
                values[e][2 * r + 1] *= keep;
            }
#pragma unroll
            for (int n = 0; n < COLUMNS / 8; n++) {
                const float* two = scores[n] + 2 * r;
                weights[n][r] = narrow(exp2f(two[0] * SCALE - peak), exp2f(two[1] * SCALE - peak));
                total[r] += lower(weights[n][r]) + upper(weights[n][r]);
            }
        }
        mix(values, weights, keys + COLUMNS * HEAD);
        __syncthreads();
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        total[r] += __shfl_xor_sync(ALL, total[r], 1);
        total[r] += __shfl_xor_sync(ALL, total[r], 2);
        int query = row + r * 8;
        if (query >= tokens) continue;
        if (lane % 4 == 0) {
            sums[head * tokens + query] = total[r];
            sums[((u64)gridDim.y * HEADS + head) * tokens + query] = top[r];
        }
        number* to = mixed + (((u64)blockIdx.y * tokens + query) * HEADS + blockIdx.x) * HEAD + lane % 4 * 2;
#pragma unroll
        for (int e = 0; e < EIGHTS; e++)
            *(unsigned*)(to + e * 8) = narrow(rounded(values[e][2 * r]) / total[r],
                                              rounded(values[e][2 * r + 1]) / total[r]);
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
// `sums`. Blocks: [KV_HEADS, B, tokens / ROWS]. Shared memory: 2 ROWS + 4 COLUMNS_BACK rows of a head.
extern "C" __global__ void __launch_bounds__(WARPS* WARP)
    flash_keys(const number* q, const number* k, const number* v, const number* slopes, const float* bases,
               const float* deltas, number* dk, number* dv, int tokens) {
#if FLASH
    SHARED(number, room);
    u64 kv = (u64)blockIdx.y * KV_HEADS + blockIdx.x, queries = kv * (HEADS / KV_HEADS) * tokens;
    const number* const mine[2] = {k + kv * tokens * HEAD, v + kv * tokens * HEAD};
    const number* const theirs[2] = {q + queries * HEAD, slopes + queries * HEAD};
    number* const out[2] = {dk + kv * tokens * HEAD, dv + kv * tokens * HEAD};
    backward<true>(room, mine, theirs, bases + queries, deltas + queries, out, blockIdx.z * ROWS, HEADS / KV_HEADS,
               tokens);
#endif
}

// Gradients of queries, [B, HEADS, tokens, HEAD]. Blocks: [HEADS, B, tokens / ROWS], the longest first.
extern "C" __global__ void __launch_bounds__(WARPS* WARP)
    flash_queries(const number* q, const number* k, const number* v, const number* slopes, const float* bases,
                  const float* deltas, number* dq, int tokens) {
#if FLASH
    SHARED(number, room);
    u64 head = (u64)blockIdx.y * HEADS + blockIdx.x;
    u64 kv = ((u64)blockIdx.y * KV_HEADS + blockIdx.x / (HEADS / KV_HEADS)) * tokens * HEAD;
    const number* const mine[2] = {q + head * tokens * HEAD, slopes + head * tokens * HEAD};
    const number* const theirs[2] = {k + kv, v + kv};
    number* const out[2] = {dq + head * tokens * HEAD, nullptr};
    backward<false>(room, mine, theirs, bases + head * tokens, deltas + head * tokens, out,
                (gridDim.z - 1 - blockIdx.z) * ROWS, 1, tokens);
#endif
}
