// Draws each row's next token from its logits, by the rule of `sampler.rs`: tokens share the unit interval in
// the order of the vocabulary; those that top-k and top-p leave out have no share; ties go to the token that
// comes first. One random number, made on the host, decides. One block a row.
//
// The vocabulary is cut into tiles of 256 tokens, eight a lane. One reading of the logits gives each tile's
// largest logit and its sums; the tiles' sums, in float64, tell in which tile the drawn token lies, and only
// that tile is read again. Weights are float32, so that a draw may differ from the host's where it falls
// within about 1e-7 of the border between two tokens. Without top-k and top-p nothing is added by more than
// one thread at a time; with them only whole numbers are, whose sums have no order.
#define TILE 256

struct Tile {
    float top;   // the largest logit
    float total; // sum of e^(logit - top)
    float mean;  // sum of e^(logit - top) (logit - top)
    int ties;    // tokens at the edge, in all tiles before this one
};

// What top-k and top-p leave: tokens above an edge, and the first few at it.
struct Cut {
    bool is;
    unsigned key;
    unsigned ties;
};

// A row's logits, divided by the temperature.
struct Logits {
    const number* at;
    int count;
    float scale;
};

// Eight of them; minus infinity past the vocabulary.
__device__ inline Eight eight(const Logits& logits, int first) {
    Eight eight;
    if (logits.count % 8 == 0 && first < logits.count) {
        eight = load(logits.at + first);
    } else {
#pragma unroll
        for (int j = 0; j < 8; j++)
            eight.at[j] = first + j < logits.count ? wide(logits.at[first + j]) : NOTHING;
    }
#pragma unroll
    for (int j = 0; j < 8; j++) eight.at[j] *= logits.scale;
    return eight;
}

// Larger logits have larger keys.
__device__ inline unsigned key_of(float logit) {
    unsigned bits = __float_as_uint(logit);
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

__device__ inline float logit_of(unsigned key) {
    return __uint_as_float(key >> 31 ? key & 0x7fffffffu : ~key);
}

// A weight in whole numbers: 2^-40 of the largest is the least.
__device__ inline u64 whole(float logit, float top) {
    return (u64)((double)expf(logit - top) * 1099511627776.0);
}

// Takes out what the cut leaves out. All lanes of a warp, each with its eight of one tile.
__device__ inline void apply(const Cut& cut, Eight& eight, int ties_before) {
    if (!cut.is) return;
    int ties = 0;
#pragma unroll
    for (int j = 0; j < 8; j++) ties += key_of(eight.at[j]) == cut.key;
    int sum = ties;
#pragma unroll
    for (int offset = 1; offset < WARP; offset *= 2) {
        int lower = __shfl_up_sync(ALL, sum, offset);
        if ((int)threadIdx.x % WARP >= offset) sum += lower;
    }
    unsigned rank = ties_before + sum - ties;
#pragma unroll
    for (int j = 0; j < 8; j++) {
        unsigned key = key_of(eight.at[j]);
        bool kept = key > cut.key || (key == cut.key && rank < cut.ties);
        rank += key == cut.key;
        if (!kept) eight.at[j] = NOTHING;
    }
}

// Largest logit and sums of each tile, of what is left.
__device__ void measure(const Logits& logits, const Cut& cut, Tile* tiles, int count) {
    int lane = threadIdx.x % WARP;
    for (int tile = threadIdx.x / WARP; tile < count; tile += blockDim.x / WARP) {
        Eight l = eight(logits, tile * TILE + lane * 8);
        apply(cut, l, tiles[tile].ties);
        float top = NOTHING, total = 0, mean = 0;
#pragma unroll
        for (int j = 0; j < 8; j++) top = fmaxf(top, l.at[j]);
        top = warp_max(top);
        if (top != NOTHING) {
#pragma unroll
            for (int j = 0; j < 8; j++) {
                float low = l.at[j] - top, weight = expf(low);
                total += weight;
                mean += weight > 0 ? weight * low : 0;
            }
        }
        total = warp_sum(total);
        mean = warp_sum(mean);
        if (lane == 0) {
            tiles[tile].top = top;
            tiles[tile].total = total;
            tiles[tile].mean = mean;
        }
    }
    __syncthreads();
}

// What a tile has of the whole, where the largest logit weighs 1.
__device__ inline double weight_of(const Tile& tile, float top) {
    return tile.top == NOTHING ? 0 : (double)expf(tile.top - top) * tile.total;
}

// The largest logit of all tiles, in all threads.
__device__ inline float largest(const Tile* tiles, int count) {
    float top = NOTHING;
    for (int tile = threadIdx.x % WARP; tile < count; tile += WARP) top = fmaxf(top, tiles[tile].top);
    return warp_max(top);
}

// Shares of the lanes of a warp, one after the other: where a lane's begins, and what all come to.
__device__ inline void line_up(double own, double& begin, double& sum) {
    int lane = threadIdx.x % WARP;
    double end = own;
#pragma unroll
    for (int offset = 1; offset < WARP; offset *= 2) {
        double lower = __shfl_up_sync(ALL, end, offset);
        if (lane >= offset) end += lower;
    }
    double before = __shfl_up_sync(ALL, end, 1);
    begin = lane == 0 ? 0 : before;
    sum = __shfl_sync(ALL, end, WARP - 1);
}

// The lane whose share holds the point. Past the end it is the last one that has a share; 0 where none has.
__device__ inline int holder(double own, double begin, double point) {
    unsigned holds = __ballot_sync(ALL, own > 0 && point < begin + own), any = __ballot_sync(ALL, own > 0);
    return holds ? __ffs(holds) - 1 : any ? 31 - __clz(any) : 0;
}

// The edge that is reached from the likeliest token down, of so many tokens or of so much weight; with it
// what lies above. Four readings of the logits, 8 bits of the keys each.
struct Edge {
    unsigned key;
    u64 above;
};

__device__ Edge reach(const Logits& logits, bool weights, float top, u64 target, u64* bins) {
    __shared__ Edge edge;
    unsigned found = 0, mask = 0;
    u64 above = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        for (int i = threadIdx.x; i < 256; i += blockDim.x) bins[i] = 0;
        __syncthreads();
        for (int i = threadIdx.x; i < logits.count; i += blockDim.x) {
            float logit = wide(logits.at[i]) * logits.scale;
            unsigned key = key_of(logit);
            if ((key & mask) != found) continue;
            atomicAdd(&bins[key >> shift & 255], weights ? whole(logit, top) : 1ull);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            int bin = 255;
            while (bin > 0 && above + bins[bin] < target) above += bins[bin--];
            edge = {found | (unsigned)bin << shift, above};
        }
        __syncthreads();
        found = edge.key;
        above = edge.above;
        mask |= 255u << shift;
        __syncthreads();
    }
    return {found, above};
}

// What top-k and top-p leave of the tokens, and how many ties lie before each tile.
__device__ Cut cut_of(const Logits& logits, const Row& state, float top, Tile* tiles, int count, u64* bins) {
    __shared__ u64 weight;
    Cut cut = {false, 0, 0};
    if (state.top_k > 0 && state.top_k < (unsigned)logits.count) {
        Edge edge = reach(logits, false, top, state.top_k, bins);
        cut = {true, edge.key, state.top_k - (unsigned)edge.above};
    }
    if (state.top_p < 1) {
        if (threadIdx.x == 0) weight = 0;
        __syncthreads();
        u64 own = 0;
        for (int i = threadIdx.x; i < logits.count; i += blockDim.x) {
            float logit = wide(logits.at[i]) * logits.scale;
            if (!cut.is || key_of(logit) > cut.key) own += whole(logit, top);
        }
        atomicAdd(&weight, own);
        __syncthreads();
        u64 all = weight + (cut.is ? cut.ties * whole(logit_of(cut.key), top) : 0);
        u64 target = (u64)ceil((double)state.top_p * (double)all);
        if (target < 1) target = 1;
        if (target > all) target = all;
        Edge edge = reach(logits, true, top, target, bins);
        u64 each = whole(logit_of(edge.key), top);
        u64 ties = each ? (target - edge.above + each - 1) / each : 1;
        cut = {true, edge.key, (unsigned)ties};
    }
    if (!cut.is) return cut;

    int lane = threadIdx.x % WARP;
    for (int tile = threadIdx.x / WARP; tile < count; tile += blockDim.x / WARP) {
        Eight l = eight(logits, tile * TILE + lane * 8);
        int ties = 0;
#pragma unroll
        for (int j = 0; j < 8; j++) ties += key_of(l.at[j]) == cut.key;
#pragma unroll
        for (int offset = WARP / 2; offset > 0; offset /= 2) ties += __shfl_xor_sync(ALL, ties, offset);
        if (lane == 0) tiles[tile].ties = ties;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        int before = 0;
        for (int tile = 0; tile < count; tile++) {
            int ties = tiles[tile].ties;
            tiles[tile].ties = before;
            before += ties;
        }
    }
    __syncthreads();
    return cut;
}

// `sources` holds the address of each row's logits; `units` a random number in [0, 1) for each slot and
// token since the look, [slots, ring], and `drawn` as many places for what is drawn. `shared` is a tile for
// every 256 tokens of the vocabulary.
extern "C" __global__ void __launch_bounds__(1024)
    draw(const u64* sources, const unsigned* slots, Row* states, const double* units, Drawn* drawn,
         const unsigned* stops, int stop_count, int vocabulary, int ring) {
    SHARED(Tile, tiles);
    __shared__ u64 bins[256];
    unsigned slot = slots[blockIdx.x];
    Row state = states[slot];
    if (state.done) return;
    int lane = threadIdx.x % WARP, count = (vocabulary + TILE - 1) / TILE;
    Logits logits = {(const number*)sources[blockIdx.x], vocabulary, 1};
    if (state.temperature > 0 && state.temperature != 1) logits.scale = 1 / state.temperature;

    // What is said of a token is said of the whole vocabulary.
    measure(logits, {false, 0, 0}, tiles, count);
    float top = largest(tiles, count);
    double total = 0, mean = 0;
    for (int tile = lane; tile < count; tile += WARP) {
        if (tiles[tile].top == NOTHING) continue;
        float low = tiles[tile].top - top;
        double weight = expf(low);
        total += weight_of(tiles[tile], top);
        mean += weight * (tiles[tile].mean + (double)low * tiles[tile].total);
    }
#pragma unroll
    for (int offset = WARP / 2; offset > 0; offset /= 2) {
        total += __shfl_xor_sync(ALL, total, offset);
        mean += __shfl_xor_sync(ALL, mean, offset);
    }

    bool greedy = state.temperature == 0;
    Cut cut = {false, 0, 0};
    if (!greedy && (state.top_k > 0 || state.top_p < 1)) {
        cut = cut_of(logits, state, top, tiles, count, bins);
        measure(logits, cut, tiles, count);
    }
    if (threadIdx.x >= WARP) return;

    // The tile that the token lies in.
    int tile = 0;
    double point = 0;
    if (greedy) {
        unsigned least = count - 1;
        for (int t = lane; t < count; t += WARP) {
            if (tiles[t].top == top) least = min(least, (unsigned)t);
        }
#pragma unroll
        for (int offset = WARP / 2; offset > 0; offset /= 2)
            least = min(least, __shfl_xor_sync(ALL, least, offset));
        tile = least;
    } else {
        // Each lane has a run of tiles.
        int each = (count + WARP - 1) / WARP, end = min(count, (lane + 1) * each);
        double own = 0, begin, sum;
        for (int t = lane * each; t < end; t++) own += weight_of(tiles[t], top);
        line_up(own, begin, sum);
        point = units[(u64)slot * ring + state.count] * sum;
        int found = holder(own, begin, point);
        if (lane == found) {
            double rest = point - begin;
            for (int t = lane * each; t < end; t++) {
                double weight = weight_of(tiles[t], top);
                if (weight <= 0) continue;
                tile = t;
                point = rest;
                if (rest < weight) break;
                rest -= weight;
            }
        }
        tile = __shfl_sync(ALL, tile, found);
        point = __shfl_sync(ALL, point, found);
    }

    // The token in it.
    Eight all = eight(logits, tile * TILE + lane * 8), left = all;
    apply(cut, left, tiles[tile].ties);
    int token = -1;
    if (greedy) {
#pragma unroll
        for (int j = 7; j >= 0; j--) {
            if (all.at[j] == top) token = tile * TILE + lane * 8 + j;
        }
        unsigned has = __ballot_sync(ALL, token >= 0);
        token = __shfl_sync(ALL, token, has ? __ffs(has) - 1 : 0);
    } else {
        float high = tiles[tile].top;
        double weights[8], own = 0, begin, sum;
#pragma unroll
        for (int j = 0; j < 8; j++) {
            weights[j] = high == NOTHING ? 0 : (double)expf(left.at[j] - high);
            own += weights[j];
        }
        line_up(own, begin, sum);
        point /= (double)expf(high - top);
        int found = holder(own, begin, point);
        if (lane == found) {
            double end = begin;
#pragma unroll
            for (int j = 0; j < 8; j++) {
                if (weights[j] > 0 && (token < 0 || point >= end)) token = tile * TILE + lane * 8 + j;
                end += weights[j];
            }
        }
        token = __shfl_sync(ALL, token, found);
    }
    // Logits that are no numbers give no token: the first is as good as any, and its log-probability is none.
    if (token < 0 || token >= vocabulary) token = 0;
    float logit = NOTHING;
#pragma unroll
    for (int j = 0; j < 8; j++) {
        if (tile * TILE + lane * 8 + j == token) logit = all.at[j];
    }
    logit = warp_max(logit);

    if (lane == 0) {
        double log_total = log(total);
        Drawn one = {(unsigned)token, (float)((double)(logit - top) - log_total),
                     (float)(log_total - mean / total), 0};
        drawn[(u64)slot * ring + state.count] = one;
        bool stopped = false;
        for (int i = 0; i < stop_count; i++) stopped = stopped || stops[i] == (unsigned)token;
        Row* now = &states[slot];
        now->newest = token;
        now->count = state.count + 1;
        now->done = stopped || state.count + 1 >= state.left;
    }
}
