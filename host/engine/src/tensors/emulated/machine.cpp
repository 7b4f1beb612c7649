// A machine for kernels without a GPU. It includes the kernels' own source and runs it on the CPU, one
// thread at a time. It reads the commands of `emulated.rs` from standard input and answers on standard
// output.
//
// The threads of a block are coroutines. Each runs until it waits for its warp or its block. Two errors of
// kernels end the process: a deadlock of its threads, and an access past the end of a buffer, where an
// unreadable page is.
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

using std::max;
using std::min;

// --- CUDA's environment of a kernel ---

#define __global__
#define __device__
#define __shared__ static
#define __launch_bounds__(...)
#define SHARED(type, name) type* name = (type*)shared_memory

struct Triple {
    unsigned x, y, z;
};
struct uint4 {
    unsigned x, y, z, w;
};
struct float2 {
    float x, y;
};
struct float4 {
    float x, y, z, w;
};
static uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
static float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

static Triple threadIdx, blockIdx, blockDim, gridDim;
alignas(16) static unsigned char shared_memory[1 << 18];

template <class To, class From>
static To same_bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}
static float __uint_as_float(unsigned x) { return same_bits<float>(x); }
static float __int_as_float(unsigned x) { return same_bits<float>(x); }
static unsigned __float_as_uint(float x) { return same_bits<unsigned>(x); }
static int __ffs(unsigned x) { return __builtin_ffs((int)x); }
static int __clz(unsigned x) { return x ? __builtin_clz(x) : 32; }
// Returns four of the eight bytes of two words, selected by the four lowest digits of `which`.
static unsigned __byte_perm(unsigned a, unsigned b, unsigned which) {
    uint64_t both = (uint64_t)b << 32 | a;
    unsigned picked = 0;
    for (int i = 0; i < 4; i++) picked |= (unsigned)(both >> (which >> 4 * i & 7) * 8 & 0xff) << 8 * i;
    return picked;
}
static void atomicAdd(unsigned long long* to, unsigned long long x) { *to += x; }

// --- Threads as coroutines ---

static void fail(const char* why) {
    fprintf(stderr, "%s\n", why);
    exit(3);
}

enum { WARP_SIZE = 32, MOST = 1024, STACK = 1 << 16 };

struct Thread {
    ucontext_t first;
    jmp_buf at;
    bool made, over;
    const unsigned* waits_for; // the thread continues once `*waits_for != turn`
    unsigned turn;
};

static Thread threads[MOST];
static jmp_buf back;
static int now, count, living;
static unsigned warp_turn[MOST / WARP_SIZE], block_turn, never;
static int warp_there[MOST / WARP_SIZE], block_there;
static uint64_t offered[2][MOST];
static void (*body)(const uint64_t*);
static const uint64_t* arguments;

// Yields to other threads until `*waits_for` has changed.
static void rest(const unsigned* waits_for) {
    threads[now].waits_for = waits_for;
    threads[now].turn = *waits_for;
    if (_setjmp(threads[now].at) == 0) _longjmp(back, 1);
}

// Waits for all lanes of a warp, none of which may have returned.
static void meet_warp() {
    int warp = now / WARP_SIZE;
    if (++warp_there[warp] < WARP_SIZE) return rest(&warp_turn[warp]);
    warp_there[warp] = 0;
    warp_turn[warp]++;
}

static void open_block() {
    block_there = 0;
    block_turn++;
}

static void __syncthreads() {
    if (++block_there < living) return rest(&block_turn);
    open_block();
}

// Returns another lane's value. Two boards alternate, so that none is written while it is still read.
template <class T>
static T exchange(unsigned mask, T x, int other) {
    if (mask != 0xffffffffu) fail("a shuffle of a part of a warp");
    uint64_t packed = 0;
    memcpy(&packed, &x, sizeof x);
    int base = now / WARP_SIZE * WARP_SIZE;
    unsigned board = warp_turn[now / WARP_SIZE] & 1;
    offered[board][now] = packed;
    meet_warp();
    if (other < 0 || other >= WARP_SIZE) other = now - base;
    memcpy(&x, &offered[board][base + other], sizeof x);
    return x;
}
template <class T>
static T __shfl_xor_sync(unsigned mask, T x, int offset) {
    return exchange(mask, x, (now % WARP_SIZE) ^ offset);
}
template <class T>
static T __shfl_up_sync(unsigned mask, T x, int offset) {
    return exchange(mask, x, now % WARP_SIZE - offset);
}
template <class T>
static T __shfl_sync(unsigned mask, T x, int lane) {
    return exchange(mask, x, lane);
}
static unsigned __ballot_sync(unsigned mask, bool x) {
    int base = now / WARP_SIZE * WARP_SIZE;
    unsigned board = warp_turn[now / WARP_SIZE] & 1, all = 0;
    exchange(mask, (int)x, now - base);
    for (int lane = 0; lane < WARP_SIZE; lane++) all |= (unsigned)(offered[board][base + lane] != 0) << lane;
    return all;
}

// Tensor cores: sum += a · b in bfloat16, [16, 8] from [16, 16] and [16, 8], spread over a warp as in PTX.
// Boards alternate, as in `exchange`.
static void mma(float (&sum)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1) {
    static unsigned boards[2][MOST][6];
    int warp = now / WARP_SIZE, lane = now % WARP_SIZE;
    unsigned(*board)[6] = boards[warp_turn[warp] & 1] + warp * WARP_SIZE;
    unsigned mine[6] = {a0, a1, a2, a3, b0, b1};
    memcpy(board[lane], mine, sizeof mine);
    meet_warp();
    auto half = [](unsigned pair, int k) { return __uint_as_float(k % 2 ? pair & 0xffff0000u : pair << 16); };
    for (int i = 0; i < 4; i++) {
        int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
        for (int k = 0; k < 16; k++) {
            unsigned a = board[row % 8 * 4 + k % 8 / 2][row / 8 + k / 8 * 2];
            unsigned b = board[column * 4 + k % 8 / 2][4 + k / 8];
            sum[i] += half(a, k) * half(b, k);
        }
    }
}

// Four 8 x 8 matrices from shared memory, whose rows the lanes name: `ldmatrix` of PTX, and its `trans`. Boards
// alternate, as in `exchange`.
template <class Pick>
static void spread_matrices(unsigned (&to)[4], const uint16_t* row, Pick pick) {
    static const uint16_t* boards[2][MOST];
    int warp = now / WARP_SIZE, lane = now % WARP_SIZE;
    const uint16_t** board = boards[warp_turn[warp] & 1] + warp * WARP_SIZE;
    board[lane] = row;
    meet_warp();
    for (int m = 0; m < 4; m++) to[m] = pick(board + m * 8, lane / 4, lane % 4 * 2);
}
static void matrices(unsigned (&to)[4], const uint16_t* row) {
    spread_matrices(to, row, [](const uint16_t** rows, int r, int c) {
        return rows[r][c] | (unsigned)rows[r][c + 1] << 16;
    });
}
static void matrices_across(unsigned (&to)[4], const uint16_t* row) {
    spread_matrices(to, row, [](const uint16_t** rows, int r, int c) {
        return rows[c][r] | (unsigned)rows[c + 1][r] << 16;
    });
}
// Copies come late here, when they are waited for, so that a kernel that reads too early is noticed.
struct Copy {
    void* to;
    const void* from;
    int group;
};
static std::vector<Copy> copies[MOST];
static int groups[MOST];
static void ask(void* shared, const void* from) { copies[now].push_back({shared, from, groups[now]}); }
static void asked() { groups[now]++; }
template <int LATER>
static void arrived() {
    auto& mine = copies[now];
    auto late = [&](const Copy& copy) { return copy.group >= groups[now] - LATER; };
    for (const Copy& copy : mine)
        if (!late(copy)) memcpy(copy.to, copy.from, 16);
    mine.erase(std::stable_partition(mine.begin(), mine.end(), late), mine.end());
}

// Runs one thread of each block, block after block.
static void enter() {
    while (true) {
        body(arguments);
        threads[now].over = true;
        living--;
        // Threads that wait for the block no longer wait for this one.
        if (block_there > 0 && block_there == living) open_block();
        rest(&never);
    }
}

static void run_block() {
    living = count;
    block_there = 0;
    memset(warp_there, 0, sizeof warp_there);
    for (int i = 0; i < count; i++) {
        threads[i].over = false;
        threads[i].waits_for = nullptr;
    }
    while (living > 0) {
        bool moved = false;
        for (now = 0; now < count; now++) {
            Thread& t = threads[now];
            if (t.over || (t.waits_for && *t.waits_for == t.turn)) continue;
            moved = true;
            threadIdx = {(unsigned)now, 0, 0};
            if (_setjmp(back) != 0) continue;
            if (t.made) _longjmp(t.at, 1);
            t.made = true;
            getcontext(&t.first);
            t.first.uc_stack.ss_sp = malloc(STACK);
            t.first.uc_stack.ss_size = STACK;
            t.first.uc_link = nullptr;
            makecontext(&t.first, enter, 0);
            setcontext(&t.first);
        }
        if (!moved) fail("threads of a kernel wait for one another for ever");
    }
}

// --- The kernels ---

#include "kernels.cu"

// Converts arguments of 8 bytes each to a kernel's own types.
template <class T>
static T argument(uint64_t raw) {
    T x;
    memcpy(&x, &raw, sizeof x);
    return x;
}
template <class... A, size_t... I>
static void call(void (*kernel)(A...), const uint64_t* raw, std::index_sequence<I...>) {
    kernel(argument<A>(raw[I])...);
}
#define KERNEL(name) \
    {#name, [](const uint64_t* raw) { call(name, raw, counted(name)); }}
template <class... A>
static std::index_sequence_for<A...> counted(void (*)(A...)) {
    return {};
}
static std::map<std::string, void (*)(const uint64_t*)> kernels = {
    KERNEL(embed),       KERNEL(rope_qkv),     KERNEL(attend),  KERNEL(join),        KERNEL(draw),
    KERNEL(rms_norm),    KERNEL(swiglu),       KERNEL(norm_back), KERNEL(swiglu_back), KERNEL(columns),
    KERNEL(totals),      KERNEL(spread),       KERNEL(gather),  KERNEL(softmax),     KERNEL(softmax_back),
    KERNEL(logprob_entropy), KERNEL(dlogits),  KERNEL(adamw),   KERNEL(squares),     KERNEL(embed_back),
    KERNEL(flash),       KERNEL(flash_slopes), KERNEL(flash_keys), KERNEL(flash_queries),
    KERNEL(add),
};

// --- Commands ---

template <class T>
static T take() {
    T x;
    if (fread(&x, sizeof x, 1, stdin) != 1) exit(0);
    return x;
}
template <class T>
static void give(T x) {
    fwrite(&x, sizeof x, 1, stdout);
}

static std::map<uint64_t, std::pair<void*, size_t>> rooms;

// Allocates memory that ends at an unreadable page, filled with NaN.
static uint64_t room(size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), used = (bytes + 15) / 16 * 16;
    size_t whole = (used + page - 1) / page * page + page;
    char* all = (char*)mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED || mprotect(all + whole - page, page, PROT_NONE) != 0) fail("no room");
    char* at = all + whole - page - used;
    memset(at, 0xff, used);
    rooms[(uint64_t)at] = {all, whole};
    return (uint64_t)at;
}

static void launch() {
    std::string name(take<uint32_t>(), ' ');
    for (char& c : name) c = take<char>();
    if (!kernels.count(name)) fail("no kernel of that name");
    gridDim = {take<uint32_t>(), 0, 0};
    gridDim.y = take<uint32_t>();
    gridDim.z = take<uint32_t>();
    count = (int)take<uint32_t>();
    blockDim = {(unsigned)count, 1, 1};
    size_t shared = take<uint32_t>();
    if (shared > sizeof shared_memory || count > MOST || count % WARP_SIZE) fail("a launch that can't be");
    std::vector<uint64_t> raw(take<uint32_t>());
    for (uint64_t& x : raw) x = take<uint64_t>();
    body = kernels[name];
    arguments = raw.data();
    for (unsigned z = 0; z < gridDim.z; z++)
        for (unsigned y = 0; y < gridDim.y; y++)
            for (unsigned x = 0; x < gridDim.x; x++) {
                blockIdx = {x, y, z};
                memset(shared_memory, 0xff, shared);
                run_block();
            }
}

// Computes y = x · wᵀ: [rows, outer] from [rows, inner] and [outer, inner].
static void product() {
    const number* w = (const number*)take<uint64_t>();
    const number* x = (const number*)take<uint64_t>();
    number* y = (number*)take<uint64_t>();
    int rows = take<uint32_t>(), inner = take<uint32_t>(), outer = take<uint32_t>();
    for (int r = 0; r < rows; r++)
        for (int o = 0; o < outer; o++) {
            float sum = 0;
            for (int i = 0; i < inner; i++)
                sum += wide(x[(size_t)r * inner + i]) * wide(w[(size_t)o * inner + i]);
            y[(size_t)r * outer + o] = narrow(sum);
        }
}

int main() {
    while (true) switch (take<char>()) {
        case 'r':
            give(room(take<uint64_t>()));
            fflush(stdout);
            break;
        case 'f': {
            auto room = rooms.find(take<uint64_t>());
            if (room == rooms.end()) fail("no such room");
            munmap(room->second.first, room->second.second);
            rooms.erase(room);
            break;
        }
        case 'w': {
            char* to = (char*)take<uint64_t>();
            uint64_t bytes = take<uint64_t>();
            if (bytes && fread(to, bytes, 1, stdin) != 1) exit(0);
            break;
        }
        case 'g': {
            const char* from = (const char*)take<uint64_t>();
            fwrite(from, take<uint64_t>(), 1, stdout);
            fflush(stdout);
            break;
        }
        case 'l':
            launch();
            break;
        case 'p':
            product();
            break;
        default:
            fail("no such command");
    }
}
