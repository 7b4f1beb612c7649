// Backward passes of the residual stream's kernels, and sums over the rows of a matrix, by which weights that
// all rows share get their gradients. Every sum is made in one order: parts of the rows first, each by a
// block, then the parts.

// Of `rms_norm`, from the gradient of what it gave: that of what it was given, with what went `past` the norm added
// to it, unless there is none; and a part of the weights', from `each` rows, [blocks, width]. The width's sums are in
// shared memory, a float a column.
extern "C" __global__ void norm_back(const number* x, const float* weight, const number* dout, const number* past,
                                     number* dx, float* parts, int rows, int width, int each, float epsilon) {
    __shared__ float room[WARP];
    SHARED(float, sums);
    for (int i = threadIdx.x * 8; i < width; i += blockDim.x * 8)
#pragma unroll
        for (int j = 0; j < 8; j++) sums[i + j] = 0;
    int first = blockIdx.x * each, last = min(rows, first + each);
    for (int row = first; row < last; row++) {
        u64 at = (u64)row * width;
        float squares = 0, dots = 0;
        for (int i = threadIdx.x * 8; i < width; i += blockDim.x * 8) {
            Eight value = load(x + at + i), slope = load(dout + at + i);
#pragma unroll
            for (int j = 0; j < 8; j++) {
                squares += value.at[j] * value.at[j];
                dots += value.at[j] * slope.at[j] * weight[i + j];
            }
        }
        squares = block_sum(squares, room);
        dots = block_sum(dots, room);
        float mean = squares / (float)width + epsilon, scale = sqrtf(mean);
        float pull = dots / (float)width / mean;
        for (int i = threadIdx.x * 8; i < width; i += blockDim.x * 8) {
            Eight value = load(x + at + i), slope = load(dout + at + i), more = {};
            if (past) more = load(past + at + i);
#pragma unroll
            for (int j = 0; j < 8; j++) {
                sums[i + j] += slope.at[j] * value.at[j] / scale;
                value.at[j] = (slope.at[j] * weight[i + j] - value.at[j] * pull) / scale + more.at[j];
            }
            store(dx + at + i, value);
        }
    }
    for (int i = threadIdx.x * 8; i < width; i += blockDim.x * 8)
#pragma unroll
        for (int j = 0; j < 8; j++) parts[(u64)blockIdx.x * width + i + j] = sums[i + j];
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
