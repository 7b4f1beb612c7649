// Backward passes of the residual stream's kernels, and sums over the rows of a matrix, by which weights that
// all rows share get their gradients. Every sum is made in one order: parts of the rows first, each by a
// block, then the parts.

// Of `rms_norm`, from the gradient of what it gave: that of what it was given, with what went `past` the norm added
// to it, unless there is none; and a part of the weights', from `each` rows, [blocks, width]. First a warp a
// row, for what a row's numbers have in common, which is in shared memory, two floats a row; then a thread for eight
// columns of all rows.
extern "C" __global__ void norm_back(const number* x, const float* weight, const number* dout, const number* past,
                                     number* dx, float* parts, int rows, int width, int each, float epsilon) {
    SHARED(float, scales);
    float* pulls = scales + each;
    int first = blockIdx.x * each, count = min(rows - first, each), lane = threadIdx.x % WARP;
    for (int row = threadIdx.x / WARP; row < count; row += blockDim.x / WARP) {
        u64 at = (u64)(first + row) * width;
        float squares = 0, dots = 0;
#pragma unroll 2
        for (int i = lane * 8; i < width; i += WARP * 8) {
            Eight value = load(x + at + i), slope = load(dout + at + i);
#pragma unroll
            for (int j = 0; j < 8; j++) {
                squares += value.at[j] * value.at[j];
                dots += value.at[j] * slope.at[j] * weight[i + j];
            }
        }
        float mean = warp_sum(squares) / (float)width + epsilon;
        float pull = warp_sum(dots) / (float)width / mean;
        if (lane == 0) {
            scales[row] = 1 / sqrtf(mean);
            pulls[row] = pull;
        }
    }
    __syncthreads();
    for (int i = threadIdx.x * 8; i < width; i += blockDim.x * 8) {
        float sums[8] = {}, by[8];
#pragma unroll
        for (int j = 0; j < 8; j++) by[j] = weight[i + j];
#pragma unroll 2
        for (int row = 0; row < count; row++) {
            u64 at = (u64)(first + row) * width + i;
            Eight value = load(x + at), slope = load(dout + at), more = {};
            if (past) more = load(past + at);
            float scale = scales[row], pull = pulls[row];
#pragma unroll
            for (int j = 0; j < 8; j++) {
                sums[j] += slope.at[j] * value.at[j] * scale;
                value.at[j] = (slope.at[j] * by[j] - value.at[j] * pull) * scale + more.at[j];
            }
            store(dx + at, value);
        }
#pragma unroll
        for (int j = 0; j < 8; j++) parts[(u64)blockIdx.x * width + i + j] = sums[j];
    }
}

// Of `swiglu`, [rows, width] each. Blocks as there.
extern "C" __global__ void swiglu_back(const number* gate, const number* up, const number* dout,
                                       number* dgate, number* dup, int width) {
    int column = (blockIdx.y * blockDim.x + threadIdx.x) * 8;
    if (column >= width) return;
    u64 i = (u64)blockIdx.x * width + column;
    Eight g = load(gate + i), u = load(up + i), d = load(dout + i);
#pragma unroll
    for (int j = 0; j < 8; j++) {
        float sigmoid = 1.0f / (1.0f + expf(-g.at[j])), slope = d.at[j] * sigmoid;
        d.at[j] = slope * g.at[j];
        g.at[j] = slope * u.at[j] * (1.0f + g.at[j] * (1.0f - sigmoid));
    }
    store(dgate + i, g);
    store(dup + i, d);
}

// Sums of 32 columns over `each` rows, by eight warps, each of which takes every eighth row.
#define TALL 8

template <class T>
__device__ inline void column_sums(const T* x, float* sums, int rows, int width, int each) {
    __shared__ float room[TALL][WARP];
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, column = blockIdx.x * WARP + lane;
    int first = blockIdx.y * each, last = min(rows, first + each);
    float sum = 0;
    if (column < width)
        for (int row = first + warp; row < last; row += TALL) sum += wide(x[(u64)row * width + column]);
    room[warp][lane] = sum;
    __syncthreads();
    if (warp > 0 || column >= width) return;
    for (int w = 1; w < TALL; w++) sum += room[w][lane];
    sums[(u64)blockIdx.y * width + column] = sum;
}

// Parts of the sums of a matrix's columns, [parts, width] from [rows, width], `each` rows a part.
extern "C" __global__ void columns(const number* x, float* parts, int rows, int width, int each) {
    column_sums(x, parts, rows, width, each);
}

// What parts come to: [width] from [parts, width].
extern "C" __global__ void totals(const float* parts, float* sums, int count, int width) {
    column_sums(parts, sums, count, width, count);
}

// The gradient of the embedding: `sums`, [vocabulary, width], take up the gradients of the rows that each
// token was embedded in. A token's rows are places[firsts[n]..firsts[n + 1]]. One block a token.
extern "C" __global__ void embed_back(const number* slopes, const unsigned* tokens, const unsigned* firsts,
                                      const unsigned* places, float* sums, int width) {
    unsigned first = firsts[blockIdx.x], last = firsts[blockIdx.x + 1];
    float* to = sums + (u64)tokens[blockIdx.x] * width;
    for (int i = threadIdx.x * 8; i < width; i += blockDim.x * 8) {
        Eight sum = {};
        for (unsigned n = first; n < last; n++) {
            Eight slope = load(slopes + (u64)places[n] * width + i);
#pragma unroll
            for (int j = 0; j < 8; j++) sum.at[j] += slope.at[j];
        }
#pragma unroll
        for (int j = 0; j < 8; j++) to[i + j] += sum.at[j];
    }
}
