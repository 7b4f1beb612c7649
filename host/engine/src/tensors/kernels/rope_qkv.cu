// Queries, keys and values of each row's newest token: biases, norms of heads where the model has them,
// rotations. The query goes on to attention; key and value go into the row's own cache, [slots, KV_HEADS,
// room, HEAD].
//
// One warp a head, all of [HEADS, KV_HEADS, KV_HEADS]. A lane has pairs of a head's first and second half.
#define HALF (HEAD / 2)
#define PAIRS ((HALF + WARP - 1) / WARP)

extern "C" __global__ void rope_qkv(const number* qkv, const float* bias, const float* q_norm,
                                const float* k_norm, const float* frequencies, const unsigned* slots,
                                const Row* states, number* queries, number* keys, number* values,
                                int room, float epsilon) {
    unsigned slot = slots[blockIdx.x];
    Row state = states[slot];
    int lane = threadIdx.x % WARP, head = blockIdx.y * (blockDim.x / WARP) + threadIdx.x / WARP;
    if (state.done || head >= HEADS + 2 * KV_HEADS) return;
    int own = state.before + state.count - 1; // the token's place in the row's own cache
    bool query = head < HEADS, value = head >= HEADS + KV_HEADS;

    const number* from = qkv + ((u64)blockIdx.x * (HEADS + 2 * KV_HEADS) + head) * HEAD;
    float a[PAIRS], b[PAIRS], squares = 0;
#pragma unroll
    for (int p = 0; p < PAIRS; p++) {
        int i = p * WARP + lane;
        bool there = i < HALF;
        a[p] = there ? wide(from[i]) : 0;
        b[p] = there ? wide(from[HALF + i]) : 0;
        if (there && bias) {
            a[p] += bias[head * HEAD + i];
            b[p] += bias[head * HEAD + HALF + i];
        }
        squares += a[p] * a[p] + b[p] * b[p];
    }

    const float* weight = query ? q_norm : k_norm;
    if (!value && weight) {
        float scale = sqrtf(warp_sum(squares) / (float)HEAD + epsilon);
#pragma unroll
        for (int p = 0; p < PAIRS; p++) {
            int i = p * WARP + lane;
            if (i >= HALF) continue;
            a[p] = a[p] / scale * weight[i];
            b[p] = b[p] / scale * weight[HALF + i];
        }
    }

    number* to;
    if (query) {
        to = queries + ((u64)blockIdx.x * HEADS + head) * HEAD;
    } else {
        int kv = head - HEADS - (value ? KV_HEADS : 0);
        to = (value ? values : keys) + (((u64)slot * KV_HEADS + kv) * room + own) * HEAD;
    }
#pragma unroll
    for (int p = 0; p < PAIRS; p++) {
        int i = p * WARP + lane;
        if (i >= HALF) continue;
        float angle = (float)(state.prompt + own) * frequencies[i];
        float c = value ? 1 : cosf(angle), s = value ? 0 : sinf(angle);
        to[i] = narrow(a[p] * c - b[p] * s);
        to[HALF + i] = narrow(b[p] * c + a[p] * s);
    }
}
