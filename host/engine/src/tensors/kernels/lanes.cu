// Keys looked at number by number, in float32, and in bfloat16 with heads that no tile is made of. LANES lanes
// share a key, eight numbers each; a warp looks at KEYS keys side by side, and DEEP of those before it weighs
// them.
#if !TILED
#define LANES (HEAD <= 8 ? 1 : HEAD <= 16 ? 2 : HEAD <= 32 ? 4 : HEAD <= 64 ? 8 : HEAD <= 128 ? 16 : 32)
#define KEYS (WARP / LANES)
#define DEEP (SHARE > 4 ? 2 : 4)

__device__ inline void look(const number* queries, const Past& past, int from, int to, Found& found) {
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, group = lane / LANES, part = lane % LANES * 8;
    bool mine = part < HEAD;
    float query[SHARE][8], sum[SHARE][8], top[SHARE], total[SHARE];
#pragma unroll
    for (int h = 0; h < SHARE; h++) {
        Eight q = {};
        if (mine) q = load(queries + h * HEAD + part);
#pragma unroll
        for (int j = 0; j < 8; j++) {
            query[h][j] = q.at[j];
            sum[h][j] = 0;
        }
        top[h] = NOTHING;
        total[h] = 0;
    }

    for (int first = from + warp * KEYS * DEEP; first < to; first += WARPS * KEYS * DEEP) {
        Eight k[DEEP] = {}, v[DEEP] = {};
#pragma unroll
        for (int d = 0; d < DEEP; d++) {
            int i = first + d * KEYS + group;
            if (i >= to || !mine) continue;
            k[d] = load(past.key(i, lane % LANES));
            v[d] = load(past.value(i, lane % LANES));
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

    // The warp's groups become one.
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
            found.tops[warp][h] = peak;
            found.totals[warp][h] = total[h];
            float* s = sum[h];
            found.sums[warp][h][part / 4] = make_float4(s[0], s[1], s[2], s[3]);
            found.sums[warp][h][part / 4 + 1] = make_float4(s[4], s[5], s[6], s[7]);
        }
    }
}
#endif
