// Projections of whole sequences on their way to attention, and back: from heads that lie side by side,
// [B, T, heads, HEAD], to heads by themselves, [B, heads, T, HEAD], and the other way. Biases, norms of heads
// and rotations are done on the way, by the arithmetic of `turn`.
//
// One warp a head of a token; the warps of a block follow one another. A lane has pairs of a head's first and
// second half.

// Where a head of a token lies.
struct Head {
    u64 beside;   // among heads side by side
    u64 alone;    // among heads by themselves
    int rotation; // its token's rotations
    int head;
    bool is;
};

__device__ inline Head find(int rows, int tokens, int heads) {
    int which = blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP;
    int row = which / heads, head = which % heads, sequence = row / tokens, token = row % tokens;
    Head found;
    found.beside = (u64)which * HEAD;
    found.alone = (((u64)sequence * heads + head) * tokens + token) * HEAD;
    found.rotation = token * HALF;
    found.head = head;
    found.is = row < rows;
    return found;
}

// Blocks for rows * heads warps. A bias is [heads, HEAD], a norm's weight [HEAD], rotations are [tokens,
// HALF], the same for all sequences, what heads are divided by first [B, heads, tokens]; each may be absent.
extern "C" __global__ void spread(const number* x, const float* bias, const float* norm, const float* cosines,
                                  const float* sines, const float* by, number* out, int rows, int tokens,
                                  int heads, float epsilon) {
    Head at = find(rows, tokens, heads);
    if (!at.is) return;
    int lane = threadIdx.x % WARP;
    float by_what = by ? by[at.alone / HEAD] : 1;
    float a[PAIRS], b[PAIRS], squares = 0;
#pragma unroll
    for (int p = 0; p < PAIRS; p++) {
        int i = p * WARP + lane;
        bool there = i < HALF;
        a[p] = there ? wide(x[at.beside + i]) / by_what : 0;
        b[p] = there ? wide(x[at.beside + HALF + i]) / by_what : 0;
        if (there && bias) {
            a[p] += bias[at.head * HEAD + i];
            b[p] += bias[at.head * HEAD + HALF + i];
        }
        squares += a[p] * a[p] + b[p] * b[p];
    }
    if (norm) {
        float scale = sqrtf(warp_sum(squares) / (float)HEAD + epsilon);
#pragma unroll
        for (int p = 0; p < PAIRS; p++) {
            int i = p * WARP + lane;
            if (i >= HALF) continue;
            a[p] = a[p] / scale * norm[i];
            b[p] = b[p] / scale * norm[HALF + i];
        }
    }
#pragma unroll
    for (int p = 0; p < PAIRS; p++) {
        int i = p * WARP + lane;
        if (i >= HALF) continue;
        float c = cosines ? cosines[at.rotation + i] : 1, s = sines ? sines[at.rotation + i] : 0;
        out[at.alone + i] = narrow(a[p] * c - b[p] * s);
        out[at.alone + HALF + i] = narrow(b[p] * c + a[p] * s);
    }
}

// The way back, with rotations by the negative angle.
extern "C" __global__ void gather(const number* x, const float* cosines, const float* sines, const float* by,
                                  number* out, int rows, int tokens, int heads) {
    Head at = find(rows, tokens, heads);
    if (!at.is) return;
    float by_what = by ? by[at.alone / HEAD] : 1;
    for (int i = threadIdx.x % WARP; i < HALF; i += WARP) {
        float a = wide(x[at.alone + i]) / by_what, b = wide(x[at.alone + HALF + i]) / by_what;
        float c = cosines ? cosines[at.rotation + i] : 1, s = sines ? sines[at.rotation + i] : 0;
        out[at.beside + i] = narrow(a * c + b * s);
        out[at.beside + HALF + i] = narrow(b * c - a * s);
    }
}
