// What every kernel here is made of: the model's kind of number, what a row knows of itself, sums over a warp
// and over a block. All arithmetic is float32, whatever the numbers are; every sum is made in one order.
//
// Sampling and scoring round at the same places, so that in bfloat16, too, they say the same of a token but
// for the order of sums: see `attend.cu` and `softmax.cu` for the one place where that takes some care.
//
// Set when this is compiled: BF16 (1 where numbers are bfloat16, else 0), HEAD (width of a head), HEADS
// (query heads), KV_HEADS (heads of keys and values), SHARE (query heads that one block of `attend` serves).

#ifndef SHARED
// Shared memory whose size is given with the launch.
#define SHARED(type, name)                                  \
    extern __shared__ __align__(16) unsigned char name##_[]; \
    type* name = (type*)name##_
#endif

typedef unsigned long long u64;

#define WARP 32
#define ALL 0xffffffffu
#define NOTHING __int_as_float(0xff800000) // minus infinity

// Eight numbers, as they are read and written: 16 or 32 bytes at a time.
struct Eight {
    float at[8];
};

#if BF16
typedef unsigned short number;

__device__ inline float wide(number x) { return __uint_as_float((unsigned)x << 16); }
__device__ inline float wide(float x) { return x; }

// To the nearest, ties to even; what is not a number stays none. Of two numbers the first is the lower half.
#ifdef __CUDACC__
__device__ inline unsigned narrow(float a, float b) {
    unsigned pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(b), "f"(a));
    return pair;
}
__device__ inline number narrow(float x) { return (number)narrow(x, 0); }
#else
__device__ inline number narrow(float x) {
    unsigned bits = __float_as_uint(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (number)(bits >> 16 | 0x40);
    return (number)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}
__device__ inline unsigned narrow(float a, float b) { return narrow(a) | (unsigned)narrow(b) << 16; }
#endif

// The same number, rounded as in memory.
__device__ inline float rounded(float x) { return __uint_as_float(narrow(0, x)); }

__device__ inline Eight load(const number* from) {
    uint4 packed = *(const uint4*)from;
    unsigned pairs[4] = {packed.x, packed.y, packed.z, packed.w};
    Eight eight;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        eight.at[2 * i] = __uint_as_float(pairs[i] << 16);
        eight.at[2 * i + 1] = __uint_as_float(pairs[i] & 0xffff0000u);
    }
    return eight;
}

__device__ inline void store(number* to, const Eight& eight) {
    unsigned pairs[4];
#pragma unroll
    for (int i = 0; i < 4; i++) pairs[i] = narrow(eight.at[2 * i], eight.at[2 * i + 1]);
    *(uint4*)to = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
}
#else
typedef float number;

__device__ inline float wide(number x) { return x; }

__device__ inline number narrow(float x) { return x; }

__device__ inline float rounded(float x) { return x; }

__device__ inline Eight load(const number* from) {
    float4 a = ((const float4*)from)[0], b = ((const float4*)from)[1];
    return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}

__device__ inline void store(number* to, const Eight& e) {
    ((float4*)to)[0] = make_float4(e.at[0], e.at[1], e.at[2], e.at[3]);
    ((float4*)to)[1] = make_float4(e.at[4], e.at[5], e.at[6], e.at[7]);
}
#endif

// What a slot of the caches knows of its answer. The host writes it at each look; in between the kernels keep
// `newest`, `count` and `done`. 40 bytes, laid out as in `fused.rs`.
struct Row {
    unsigned newest;   // the token that was drawn last
    unsigned count;    // tokens drawn since the look
    unsigned done;     // 1 where nothing is to be drawn, for nobody is there or the answer is at its end
    unsigned prompt;   // tokens of its prompt, whose keys and values lie elsewhere
    unsigned before;   // tokens of its answer at the look
    unsigned left;     // tokens that it may still have at the look
    float temperature; // 0 where the likeliest token is taken
    unsigned top_k;    // 0 for all
    float top_p;       // 1 for all
    unsigned unused;
};

// A token that was drawn: its log-probability, and the entropy of what it was drawn from.
struct Drawn {
    unsigned token;
    float log_prob;
    float entropy;
    unsigned unused;
};

__device__ inline float warp_sum(float x) {
#pragma unroll
    for (int offset = WARP / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(ALL, x, offset);
    return x;
}

__device__ inline float warp_max(float x) {
#pragma unroll
    for (int offset = WARP / 2; offset > 0; offset /= 2) x = fmaxf(x, __shfl_xor_sync(ALL, x, offset));
    return x;
}

// The sum over a block, in all of its threads. `room` is shared, a number for each warp.
__device__ inline float block_sum(float x, float* room) {
    x = warp_sum(x);
    __syncthreads(); // a sum before this one may still be read
    if (threadIdx.x % WARP == 0) room[threadIdx.x / WARP] = x;
    __syncthreads();
    float sum = 0;
    for (int warp = 0; warp < (int)blockDim.x / WARP; warp++) sum += room[warp];
    return sum;
}
