// Attention of each row's newest token over its prompt, whose keys and values all answers to it share, and
// over its own cache. Softmax is made as keys go by; nothing of the scores is written down.
//
// A block serves SHARE query heads of one head of keys and values, so that keys and values are read once for
// them. What it gives is rounded where the products of `softmax.cu` round, when whole sequences are scored:
// the score of a key; its weight, which is measured from a power of two, so that it is the same whichever of
// those it is measured from; what the values come to, before it is divided by the sum of the weights.
//
// Each warp looks at some of the keys, by `look`: in `tiles.cu` by tensor cores, for bfloat16 and heads of 64,
// 128, 192 or 256 numbers; in `lanes.cu` number by number, for all others. Here a block's warps are put
// together. Long rows are cut into `splits` parts, which `join` puts together.
#define WARPS 4
#define CHUNKS (HEADS / KV_HEADS / SHARE)
#define TILED (BF16 && HEAD % 64 == 0)

// Parts of a row are a multiple of this long, so that no tile of `tiles.cu` is cut.
#define TILE 16

// Blocks that a multiprocessor's registers are to hold, by `tiles.cu`. `lanes.cu` takes what it needs.
#define RESIDENT (TILED && HEAD == 64 ? 4 : TILED && HEAD == 128 ? 3 : 1)

// Scores times this are the exponents of two of the weights: log2(e) / sqrt(HEAD).
#define SCALE (1.4426950408889634f / sqrtf((float)HEAD))

// Where a row's keys and values of one head lie: those of its prompt, and its own, which are counted on from
// its prompt's. Places are counted in keys and in eights of numbers, so that they fit into 32 bits.
struct Past {
    const number *prompt_keys, *prompt_values, *keys, *values;
    int prompt;
    unsigned own; // where among all caches a key of number 0 would lie: it may wrap

    // From an eighth number on, of a key or a value.
    __device__ inline const number* key(int i, int eighth) const { return at(prompt_keys, keys, i, eighth); }
    __device__ inline const number* value(int i, int eighth) const {
        return at(prompt_values, values, i, eighth);
    }
    __device__ inline const number* at(const number* shared, const number* caches, int i, int eighth) const {
        return (i < prompt ? shared : caches) + (u64)((i + (i < prompt ? 0 : own)) * (HEAD / 8) + eighth) * 8;
    }
};

// What each warp found: what its weights are measured from, their sum, and what the values come to by them.
// Four numbers beyond each head's end, so that heads don't begin at the same bank.
struct Found {
    float tops[WARPS][SHARE], totals[WARPS][SHARE];
    float4 sums[WARPS][SHARE][HEAD / 4 + 1];
};

// This warp's share of the keys from `from` to before `to`, for the SHARE heads whose queries are given.
__device__ inline void look(const number* queries, const Past& past, int from, int to, Found& found);

// Blocks: [rows, KV_HEADS * CHUNKS, splits]. `prompts` holds addresses of keys and values, [slots, layers,
// 2], which are [KV_HEADS, prompt, HEAD]. `parts` is [rows, HEADS, splits, HEAD + 2], used where splits > 1:
// what the values come to, then the largest score and the sum of the weights.
extern "C" __global__ void __launch_bounds__(WARPS* WARP, RESIDENT)
    attend(const number* queries, const u64* prompts, const number* keys, const number* values,
           const unsigned* slots, const Row* states, number* mixed, float* parts, int layer, int layers,
           int room, int splits) {
    __shared__ Found found;
    unsigned slot = slots[blockIdx.x];
    const u64* shared = prompts + (slot * layers + layer) * 2;
    u64 prompt_keys = shared[0], prompt_values = shared[1];
    Row state = states[slot];
    // Nobody's slot may have no prompt either. Asked at once, so that addresses don't wait for the state.
    if ((state.done != 0) | (prompt_keys == 0) | (prompt_values == 0)) return;
    unsigned kv = blockIdx.y / CHUNKS;
    unsigned first = blockIdx.x * HEADS + kv * (HEADS / KV_HEADS) + blockIdx.y % CHUNKS * SHARE;
    int prompt = state.prompt, length = prompt + (int)(state.before + state.count);
    u64 of_prompt = (u64)(kv * prompt) * HEAD;
    Past past = {(const number*)prompt_keys + of_prompt,
                 (const number*)prompt_values + of_prompt,
                 keys,
                 values,
                 prompt,
                 (slot * KV_HEADS + kv) * room - prompt};

    int each = (unsigned)(length + splits * TILE - 1) / (unsigned)(splits * TILE) * TILE;
    int from = blockIdx.z * each, to = min(length, from + each);
    look(queries + (u64)first * HEAD, past, from, to, found);

    __syncthreads();
    for (int i = threadIdx.x; i < SHARE * (HEAD / 8); i += blockDim.x) {
        int h = i / (HEAD / 8), e = i % (HEAD / 8) * 8;
        float peak = NOTHING, all = 0;
        Eight value = {};
#pragma unroll
        for (int w = 0; w < WARPS; w++) peak = fmaxf(peak, found.tops[w][h]);
#pragma unroll
        for (int w = 0; w < WARPS; w++) {
            // No key at all: any number will do to measure from.
            float keep = exp2f(found.tops[w][h] - (peak == NOTHING ? 0 : peak));
            float4 a = found.sums[w][h][e / 4], b = found.sums[w][h][e / 4 + 1];
            float one[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
            all += found.totals[w][h] * keep;
#pragma unroll
            for (int j = 0; j < 8; j++) value.at[j] += one[j] * keep;
        }
        if (splits == 1) {
#pragma unroll
            for (int j = 0; j < 8; j++) value.at[j] = rounded(value.at[j]) / all;
            store(mixed + (u64)(first + h) * HEAD + e, value);
        } else {
            float* out = parts + (u64)((first + h) * splits + blockIdx.z) * (HEAD + 2);
#pragma unroll
            for (int j = 0; j < 8; j++) out[e + j] = value.at[j];
            if (e == 0) {
                out[HEAD] = peak;
                out[HEAD + 1] = all;
            }
        }
    }
}

// Puts the parts of each row's heads together: [rows, HEADS, HEAD]. Blocks: [rows, HEADS].
extern "C" __global__ void join(const float* parts, const unsigned* slots, const Row* states, number* mixed,
                                int splits) {
    if (states[slots[blockIdx.x]].done) return;
    u64 head = (u64)blockIdx.x * HEADS + blockIdx.y;
    const float* from = parts + head * splits * (HEAD + 2);
    float peak = NOTHING;
    for (int s = 0; s < splits; s++) peak = fmaxf(peak, from[s * (HEAD + 2) + HEAD]);
    for (int e = threadIdx.x; e < HEAD; e += blockDim.x) {
        float all = 0, value = 0;
        for (int s = 0; s < splits; s++) {
            const float* one = from + s * (HEAD + 2);
            float keep = exp2f(one[HEAD] - peak); // the newest token is always there: the peak is a number
            all += one[HEAD + 1] * keep;
            value += one[e] * keep;
        }
        mixed[head * HEAD + e] = narrow(rounded(value) / all);
    }
}
