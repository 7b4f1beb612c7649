// The residual stream: it begins with a token's embedding, takes up what a part of a block made, and is
// normed for the next part. And the product inside the feed-forward part. Widths are multiples of 8.
//
// A row of the batch works for one slot of the caches: `slots` says for which.

// The embedding of each row's newest token, [rows, width]. One block a row.
extern "C" __global__ void embed(const number* table, const unsigned* slots, const Row* states,
                                 number* stream, int width) {
    const number* from = table + (u64)states[slots[blockIdx.x]].newest * width;
    number* to = stream + (u64)blockIdx.x * width;
    for (int i = threadIdx.x * 8; i < width; i += blockDim.x * 8) store(to + i, load(from + i));
}

// sum = a + b, `count` times eight numbers each, eight a thread.
extern "C" __global__ void add(const number* a, const number* b, number* sum, int count) {
    u64 i = ((u64)blockIdx.x * blockDim.x + threadIdx.x) * 8;
    if (i >= (u64)count * 8) return;
    Eight x = load(a + i), y = load(b + i);
#pragma unroll
    for (int j = 0; j < 8; j++) x.at[j] += y.at[j];
    store(sum + i, x);
}

// sum = stream + part, which may be the stream itself; normed = sum / root mean square of it * weight. Without a part
// the sum is the stream, and is not written. One block a row.
extern "C" __global__ void rms_norm(const number* stream, const number* part, number* sum, const float* weight,
                                    number* normed, int width, float epsilon) {
    __shared__ float room[WARP];
    u64 row = (u64)blockIdx.x * width;
    float squares = 0;
    for (int i = threadIdx.x * 8; i < width; i += blockDim.x * 8) {
        Eight x = load(stream + row + i);
        if (part) {
            Eight y = load(part + row + i);
#pragma unroll
            for (int j = 0; j < 8; j++) x.at[j] = wide(narrow(x.at[j] + y.at[j]));
            store(sum + row + i, x);
        }
#pragma unroll
        for (int j = 0; j < 8; j++) squares += x.at[j] * x.at[j];
    }
    float scale = sqrtf(block_sum(squares, room) / (float)width + epsilon);
    for (int i = threadIdx.x * 8; i < width; i += blockDim.x * 8) {
        Eight x = load((part ? sum : stream) + row + i);
#pragma unroll
        for (int j = 0; j < 8; j++) x.at[j] = x.at[j] / scale * weight[i + j];
        store(normed + row + i, x);
    }
}

// silu(gate) * up, [rows, width]; rows of gate and up begin so many numbers `apart`. A block for 8 numbers
// times its threads of a row.
extern "C" __global__ void swiglu(const number* gate, const number* up, number* out, int width, int apart) {
    int i = (blockIdx.y * blockDim.x + threadIdx.x) * 8;
    if (i >= width) return;
    u64 from = (u64)blockIdx.x * apart + i;
    Eight g = load(gate + from), u = load(up + from);
#pragma unroll
    for (int j = 0; j < 8; j++) g.at[j] = g.at[j] / (1.0f + expf(-g.at[j])) * u.at[j];
    store(out + (u64)blockIdx.x * width + i, g);
}
