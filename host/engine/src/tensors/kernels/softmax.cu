// Weights of attention from scores, [B * heads * tokens, tokens], in place, and back. A row's token looks at
// itself and at what is before it; what is ahead is never read, and gets a weight of zero. `tokens` is a
// multiple of 8. One warp a row.
//
// A row's weights are measured from a power of two that none is above, and do not add up to 1: what the values
// come to is divided by their sum, after the product. So it is in `attend`, which meets its keys one after the
// other and can't know their sum before; and so the two round the same numbers.

// scores = 2^(scores * SCALE - a whole number); sums of the weights, [B * heads * tokens].
extern "C" __global__ void softmax(number* scores, float* sums, int rows, int tokens) {
    int row = blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP;
    if (row >= rows) return;
    int seen = row % tokens + 1, first = threadIdx.x % WARP * 8;
    number* at = scores + (u64)row * tokens;
    float top = NOTHING, sum = 0;
    for (int i = first; i < seen; i += WARP * 8) {
        Eight score = load(at + i);
#pragma unroll
        for (int j = 0; j < 8; j++)
            if (i + j < seen) top = fmaxf(top, score.at[j]);
    }
    float base = ceilf(warp_max(top) * SCALE);
    for (int i = first; i < tokens; i += WARP * 8) {
        Eight weight = {};
        if (i < seen) {
            weight = load(at + i);
#pragma unroll
            for (int j = 0; j < 8; j++) {
                weight.at[j] = i + j < seen ? rounded(exp2f(weight.at[j] * SCALE - base)) : 0;
                sum += weight.at[j];
            }
        }
        store(at + i, weight);
    }
    sum = warp_sum(sum);
    if (threadIdx.x % WARP == 0) sums[row] = sum;
}

// From the gradients of what the values come to by these weights, already divided by their sums, to those of
// scores, before they are divided by sqrt(HEAD) as `attend` does:
// slopes = weights * (slopes - sum of weights * slopes / sum of weights) / sqrt(HEAD).
extern "C" __global__ void softmax_back(const number* weights, const float* sums, number* slopes, int rows,
                                        int tokens) {
    int row = blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP;
    if (row >= rows) return;
    int seen = row % tokens + 1, first = threadIdx.x % WARP * 8;
    const number* weight_at = weights + (u64)row * tokens;
    number* slope_at = slopes + (u64)row * tokens;
    float sum = 0;
    for (int i = first; i < seen; i += WARP * 8) {
        Eight weight = load(weight_at + i), slope = load(slope_at + i);
#pragma unroll
        for (int j = 0; j < 8; j++) sum += i + j < seen ? weight.at[j] * slope.at[j] : 0;
    }
    sum = warp_sum(sum) / sums[row];
    for (int i = first; i < tokens; i += WARP * 8) {
        Eight slope = {};
        if (i < seen) {
            Eight weight = load(weight_at + i);
            slope = load(slope_at + i);
#pragma unroll
            for (int j = 0; j < 8; j++)
                slope.at[j] = i + j < seen ? weight.at[j] * (slope.at[j] - sum) / sqrtf((float)HEAD) : 0;
        }
        store(slope_at + i, slope);
    }
}
