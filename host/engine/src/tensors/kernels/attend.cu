// Attention of each row's newest token over its prompt, whose keys and values all answers to it share, and
// over its own cache. Softmax is made as keys go by; nothing of the scores is written down.
//
// A block serves SHARE query heads of one head of keys and values, so that keys and values are read once for
// them. What it gives is rounded where the products of `softmax.cu` round, when whole sequences are scored:
// the score of a key; its weight, which is measured from a power of two, so that it is the same whichever of
// those it is measured from; what the values come to, before it is divided by the sum of the weights. LANES
// lanes share a key, eight numbers each; a warp looks at KEYS keys side by side, and DEEP of those before it
// weighs them. Long rows are cut into `splits` parts, which `join` puts together.
#define WARPS 4
#define LANES (HEAD <= 8 ? 1 : HEAD <= 16 ? 2 : HEAD <= 32 ? 4 : HEAD <= 64 ? 8 : HEAD <= 128 ? 16 : 32)
#define KEYS (WARP / LANES)
#define DEEP (SHARE > 4 ? 2 : 4)
#define CHUNKS (HEADS / KV_HEADS / SHARE)

// Scores times this are the exponents of two of the weights: log2(e) / sqrt(HEAD).
#define SCALE (1.4426950408889634f / sqrtf((float)HEAD))

// Blocks: [rows, KV_HEADS * CHUNKS, splits]. `prompts` holds addresses of keys and values, [slots, layers,
// 2], which are [KV_HEADS, prompt, HEAD]. `parts` is [rows, HEADS, splits, HEAD + 2], used where splits > 1:
// what the values come to, then the largest score and the sum of the weights.
extern "C" __global__ void __launch_bounds__(WARPS* WARP)
    attend(const number* queries, const u64* prompts, const number* keys, const number* values,
           const unsigned* slots, const Row* states, number* mixed, float* parts, int layer, int layers,
           int room, int splits) {
    __shared__ float tops[WARPS][SHARE], totals[WARPS][SHARE], sums[WARPS][SHARE][HEAD];
    unsigned slot = slots[blockIdx.x];
    Row state = states[slot];
    if (state.done) return;
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, group = lane / LANES, part = lane % LANES * 8;
    int kv = blockIdx.y / CHUNKS, first_head = kv * (HEADS / KV_HEADS) + blockIdx.y % CHUNKS * SHARE;
    int prompt = state.prompt, length = prompt + (int)(state.before + state.count);
    bool mine = part < HEAD;

    const u64* shared = prompts + ((u64)slot * layers + layer) * 2;
    const number* prompt_keys = (const number*)shared[0] + (u64)kv * prompt * HEAD + part;
    const number* prompt_values = (const number*)shared[1] + (u64)kv * prompt * HEAD + part;
    u64 own = ((u64)slot * KV_HEADS + kv) * room * HEAD + part;

    float query[SHARE][8], sum[SHARE][8], top[SHARE], total[SHARE];
#pragma unroll
    for (int h = 0; h < SHARE; h++) {
        Eight q = {};
        if (mine) q = load(queries + ((u64)blockIdx.x * HEADS + first_head + h) * HEAD + part);
#pragma unroll
        for (int j = 0; j < 8; j++) {
            query[h][j] = q.at[j];
            sum[h][j] = 0;
        }
        top[h] = NOTHING;
        total[h] = 0;
    }

    int each = (length + splits - 1) / splits, from = blockIdx.z * each, to = min(length, from + each);
    for (int first = from + warp * KEYS * DEEP; first < to; first += WARPS * KEYS * DEEP) {
        Eight k[DEEP] = {}, v[DEEP] = {};
#pragma unroll
        for (int d = 0; d < DEEP; d++) {
            int i = first + d * KEYS + group;
            if (i >= to || !mine) continue;
            k[d] = load(i < prompt ? prompt_keys + (u64)i * HEAD : keys + own + (u64)(i - prompt) * HEAD);
            v[d] = load(i < prompt ? prompt_values + (u64)i * HEAD : values + own + (u64)(i - prompt) * HEAD);
        }
#pragma unroll
        for (int h = 0; h < SHARE; h++) {
            float score[DEEP], peak = top[h];
#pragma unroll
            for (int d = 0; d < DEEP; d++) {
                float dot = 0;
#pragma unroll
                for (int j = 0; j < 8; j++) dot += query[h][j] * k[d].at[j];
#pragma unroll
                for (int offset = LANES / 2; offset > 0; offset /= 2)
                    dot += __shfl_xor_sync(ALL, dot, offset);
                score[d] = first + d * KEYS + group < to ? rounded(dot) * SCALE : NOTHING;
                peak = fmaxf(peak, ceilf(score[d]));
            }
            // No key yet: any number will do to measure from.
            float base = peak == NOTHING ? 0 : peak, keep = exp2f(top[h] - base);
            total[h] *= keep;
#pragma unroll
            for (int j = 0; j < 8; j++) sum[h][j] *= keep;
#pragma unroll
            for (int d = 0; d < DEEP; d++) {
                float weight = rounded(exp2f(score[d] - base));
                total[h] += weight;
#pragma unroll
                for (int j = 0; j < 8; j++) sum[h][j] += weight * v[d].at[j];
            }
            top[h] = peak;
        }
    }

    // The warp's groups become one, then the block's warps.
#pragma unroll
    for (int h = 0; h < SHARE; h++) {
        float peak = top[h];
#pragma unroll
        for (int offset = LANES; offset < WARP; offset *= 2)
            peak = fmaxf(peak, __shfl_xor_sync(ALL, peak, offset));
        float keep = exp2f(top[h] - (peak == NOTHING ? 0 : peak));
        total[h] *= keep;
#pragma unroll
        for (int j = 0; j < 8; j++) sum[h][j] *= keep;
#pragma unroll
        for (int offset = LANES; offset < WARP; offset *= 2) {
            total[h] += __shfl_xor_sync(ALL, total[h], offset);
#pragma unroll
            for (int j = 0; j < 8; j++) sum[h][j] += __shfl_xor_sync(ALL, sum[h][j], offset);
        }
        if (group == 0 && mine) {
            tops[warp][h] = peak;
            totals[warp][h] = total[h];
#pragma unroll
            for (int j = 0; j < 8; j++) sums[warp][h][part + j] = sum[h][j];
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < SHARE * HEAD; i += blockDim.x) {
        int h = i / HEAD, e = i % HEAD;
        float peak = NOTHING, all = 0, value = 0;
        for (int w = 0; w < WARPS; w++) peak = fmaxf(peak, tops[w][h]);
        for (int w = 0; w < WARPS; w++) {
            float keep = exp2f(tops[w][h] - (peak == NOTHING ? 0 : peak));
            all += totals[w][h] * keep;
            value += sums[w][h][e] * keep;
        }
        u64 head = (u64)blockIdx.x * HEADS + first_head + h;
        if (splits == 1) {
            mixed[head * HEAD + e] = narrow(rounded(value) / all);
        } else {
            float* out = parts + (head * splits + blockIdx.z) * (HEAD + 2);
            out[e] = value;
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
