// The log-probability of a token that came and the entropy of its distribution, in one passing over its row of logits, and back. One block a
// row; `Logits` and `eight` are those of `draw`.

// A sum of e^logit, measured from the largest, and what the entropy needs.
struct Mass {
    float top;
    float total; // sum of e^(logit - top)
    float mean;  // sum of e^(logit - top) (logit - top)
};

// Two of them as one. One that holds nothing adds nothing.
__device__ inline Mass join_masses(const Mass& a, const Mass& b) {
    if (b.top == NOTHING) return a;
    if (a.top == NOTHING) return b;
    Mass sum;
    sum.top = fmaxf(a.top, b.top);
    float low_a = a.top - sum.top, low_b = b.top - sum.top, keep_a = expf(low_a), keep_b = expf(low_b);
    sum.total = a.total * keep_a + b.total * keep_b;
    // What weighs nothing has no part, however far below it is.
    sum.mean = (keep_a > 0 ? (a.mean + a.total * low_a) * keep_a : 0) +
               (keep_b > 0 ? (b.mean + b.total * low_b) * keep_b : 0);
    return sum;
}

// For each row [log-probability of its target, entropy, logarithm of the sum of e^logit].
extern "C" __global__ void logprob_entropy(const number* logits, const unsigned* targets, float* statistics, int count,
                                 float scale) {
    __shared__ Mass room[WARP];
    Logits row = {logits + (u64)blockIdx.x * count, count, scale};
    Mass mass = {NOTHING, 0, 0};
    for (int i = threadIdx.x * 8; i < count; i += blockDim.x * 8) {
        Eight logit = eight(row, i);
        Mass more = {NOTHING, 0, 0};
#pragma unroll
        for (int j = 0; j < 8; j++) more.top = fmaxf(more.top, logit.at[j]);
        if (more.top == NOTHING) continue;
#pragma unroll
        for (int j = 0; j < 8; j++) {
            float low = logit.at[j] - more.top, weight = expf(low);
            more.total += weight;
            more.mean += weight > 0 ? weight * low : 0;
        }
        mass = join_masses(mass, more);
    }
#pragma unroll
    for (int offset = WARP / 2; offset > 0; offset /= 2) {
        Mass other;
        other.top = __shfl_xor_sync(ALL, mass.top, offset);
        other.total = __shfl_xor_sync(ALL, mass.total, offset);
        other.mean = __shfl_xor_sync(ALL, mass.mean, offset);
        mass = join_masses(mass, other);
    }
    if (threadIdx.x % WARP == 0) room[threadIdx.x / WARP] = mass;
    __syncthreads();
    if (threadIdx.x > 0) return;
    for (int warp = 1; warp < (int)blockDim.x / WARP; warp++) mass = join_masses(mass, room[warp]);
    float sum = mass.top + logf(mass.total);
    float target = wide(row.at[targets[blockIdx.x]]) * scale;
    // Measured from the largest: the logarithm of a sum may be large beside what is left of it.
    statistics[blockIdx.x * 3] = target - mass.top - logf(mass.total);
    statistics[blockIdx.x * 3 + 1] = logf(mass.total) - mass.mean / mass.total;
    statistics[blockIdx.x * 3 + 2] = sum;
}

// From the gradient of each row's log-probability, and of its entropy where that is given, to those of its logits, in
// their place.
extern "C" __global__ void dlogits(number* logits, const unsigned* targets, const float* statistics,
                                  const float* dlog_probs, const float* dentropies, int count, float scale) {
    number* row = logits + (u64)blockIdx.x * count;
    float sum = statistics[blockIdx.x * 3 + 2], slope = dlog_probs[blockIdx.x] * scale;
    float entropy = statistics[blockIdx.x * 3 + 1], bonus = dentropies ? dentropies[blockIdx.x] * scale : 0.0f;
    int target = targets[blockIdx.x];
    bool even = count % 8 == 0;
    for (int i = (blockIdx.y * blockDim.x + threadIdx.x) * 8; i < count; i += gridDim.y * blockDim.x * 8) {
        Eight logit = {};
        int there = min(8, count - i);
        if (even) logit = load(row + i);
#pragma unroll
        for (int j = 0; j < 8; j++) {
            if (!even && j < there) logit.at[j] = wide(row[i + j]);
            float log_prob = logit.at[j] * scale - sum, probability = expf(log_prob);
            logit.at[j] = ((i + j == target ? 1.0f : 0.0f) - probability) * slope;
            if (dentropies) logit.at[j] -= probability * bonus * (log_prob + entropy);
            if (!even && j < there) row[i + j] = narrow(logit.at[j]);
        }
        if (even) store(row + i, logit);
    }
}
