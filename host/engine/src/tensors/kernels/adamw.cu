// AdamW with decoupled weight decay (Loshchilov and Hutter 2019), in one passing over a weight; and the
// squares of a gradient. The arithmetic of `adamw.rs`.

// Weight and moments in place; `rounded` or `same` are the copy that the model computes with, in its kind of
// number or as it is, where it has one. Without a gradient it is zero. `root` is 1 / sqrt(1 - beta2^steps),
// `rate` the learning rate / (1 - beta1^steps).
extern "C" __global__ void adamw(float* weight, float* mean, float* square, const float* gradient,
                                 number* rounded, float* same, int count, float cut, float beta1, float more1,
                                 float beta2, float more2, float root, float epsilon, float keep, float rate) {
    u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= (u64)count) return;
    float g = gradient ? gradient[i] * cut : 0;
    float m = mean[i] * beta1 + g * more1, s = square[i] * beta2 + g * g * more2;
    float w = weight[i] * keep - m / (sqrtf(s) * root + epsilon) * rate;
    mean[i] = m;
    square[i] = s;
    weight[i] = w;
    if (rounded) rounded[i] = narrow(w);
    if (same) same[i] = w;
}

// The sum of the squares of `each` numbers, a block's part. `each` is a multiple of 4, and x begins where four numbers
// are read at once.
extern "C" __global__ void squares(const float* x, float* parts, int count, int each) {
    __shared__ float room[WARP];
    u64 first = (u64)blockIdx.x * each, last = first + each < (u64)count ? first + each : (u64)count;
    float sum = 0;
    for (u64 i = first + threadIdx.x * 4; i < last; i += blockDim.x * 4) {
        if (i + 4 <= last) {
            float4 four = *(const float4*)(x + i);
            sum += four.x * four.x + four.y * four.y + four.z * four.z + four.w * four.w;
        } else {
            for (u64 j = i; j < last; j++) sum += x[j] * x[j];
        }
    }
    sum = block_sum(sum, room);
    if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}
