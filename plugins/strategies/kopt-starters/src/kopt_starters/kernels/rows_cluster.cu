// Rows that are read once: the SIZE blocks of a cluster hold a row in shared memory until it is known.
$header
#include <cuda_pipeline.h>
$pieces

// A barrier of this block's shared memory: each of its phases is over when it has been armed once
// with a number of bytes, and as many have come.
__device__ __forceinline__ void begin_phases(unsigned long long *barrier) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;"
                 ::"r"((unsigned)__cvta_generic_to_shared(barrier)) : "memory");
}

__device__ __forceinline__ void arm(unsigned long long *barrier, int bytes) {
    asm volatile("{ .reg .b64 state; mbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1; }"
                 ::"r"((unsigned)__cvta_generic_to_shared(barrier)), "r"(bytes) : "memory");
}

__device__ __forceinline__ void await(unsigned long long *barrier, int parity) {
    asm volatile(
        "{ .reg .pred over; AGAIN: mbarrier.try_wait.parity.shared::cta.b64 over, [%0], %1;"
        " @!over bra AGAIN; }"
        ::"r"((unsigned)__cvta_generic_to_shared(barrier)), "r"(parity) : "memory");
}

// Write to where a block of the cluster has what this one has at `to`, and count it at its barrier.
__device__ __forceinline__ void send(float *to, float value, int block, unsigned long long *barrier) {
    asm volatile(
        "{ .reg .u32 there, told; mapa.shared::cluster.u32 there, %0, %2;"
        " mapa.shared::cluster.u32 told, %3, %2;"
        " st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [there], %1, [told]; }"
        ::"r"((unsigned)__cvta_generic_to_shared(to)), "r"(__float_as_int(value)), "r"(block),
        "r"((unsigned)__cvta_generic_to_shared(barrier)) : "memory");
}

// Tell the cluster that this thread is there, and wait until all others are.
__device__ __forceinline__ void arrive() {
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
}

__device__ __forceinline__ void wait_for_cluster() {
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

$statistics

$functions

$levels

constexpr int LENGTH = $length;                            // elements of a row
constexpr int MOST = (LENGTH + PIECE - 2) / PIECE + 1;     // pieces that a row may lie in
constexpr int SHARE = (MOST + SIZE - 1) / SIZE;            // those of a block
constexpr int EACH = (SHARE + THREADS - 1) / THREADS;      // those of a thread
constexpr int WARPS = THREADS / 32;
constexpr int STATE = $state;               // bytes of the largest of what is measured at once
constexpr int EXCHANGED = 16 + 64 * STATE;  // before the pieces: what warps and blocks tell one another
constexpr int FIT = $capacity / (EXCHANGED + SHARE * 16 + 1024);
constexpr int BLOCKS = FIT * THREADS > 1024 ? 1024 / THREADS : FIT ? FIT : 1;
constexpr int BATCHES = 4;  // copies are waited for in so many parts

// Where a row lies, and which of its pieces this block holds. It may begin within a piece.
struct Share {
    long long first;     // this block's first piece
    int lead;            // the row's element that this one begins with; negative where it is not of the row
    int pieces, copied;  // those of them that end where the tensor does, or before
    __device__ Share(long long row, long long rows, int rank) {
        const long long begin = row * LENGTH, whole = begin / PIECE;
        const int before = int(begin - whole * PIECE);
        first = whole + rank * SHARE;
        lead = rank * SHARE * PIECE - before;
        pieces = max(0, min(SHARE, (before + LENGTH + PIECE - 1) / PIECE - rank * SHARE));
        const long long left = LENGTH % PIECE ? rows * LENGTH / PIECE - first : pieces;
        copied = int(max(0ll, min((long long)pieces, left)));
    }
};

// Whether all of a piece is the row's, which its element `from` begins.
__device__ __forceinline__ bool whole(int from) {
    return LENGTH % PIECE == 0 || (from >= 0 && from <= LENGTH - PIECE);
}

// For a thread's pieces of a batch, by their place in the block's share.
template <class Do> __device__ __forceinline__ void each(int batch, int pieces, Do &&act) {
#pragma unroll UNROLL
    for (int i = batch * EACH / BATCHES; i < (batch + 1) * EACH / BATCHES; ++i) {
        const int at = i * THREADS + threadIdx.x;
        if (at < pieces) act(at);
    }
}

// For the elements of the row in those of a thread's pieces that are not whole: the first, or the last.
template <class Do> __device__ __forceinline__ void edges(const Share &share, Do &&act) {
    if (LENGTH % PIECE == 0) return;
    const int last = share.pieces - 1;
#pragma unroll 1
    for (int at = 0; at <= last; at = at < last ? last : last + 1) {
        const int from = share.lead + at * PIECE;
        if (at % THREADS != threadIdx.x || whole(from)) continue;
#pragma unroll 1
        for (int j = max(0, -from); j < min(PIECE, LENGTH - from); ++j) act(at, j);
    }
}

// Elements of a piece in which the tensor ends are read one by one.
__device__ __forceinline__ void fetch_rest(uint4 *held, const Memory *x, const Share &share) {
    if (share.copied == share.pieces) return;
    edges(share, [&](int at, int j) {
        if (at < share.copied) return;
        const Element *from = reinterpret_cast<const Element *>(x + share.first + at);
        reinterpret_cast<Element *>(held + at)[j] = from[j];
    });
}

template <class State> __device__ __forceinline__ State of_lane(const State &state, int lane) {
    State other;
#pragma unroll
    for (int i = 0; i < sizeof(State) / 4; ++i)
        reinterpret_cast<float *>(&other)[i] =
            __shfl_sync(0xffffffffu, reinterpret_cast<const float *>(&state)[i], lane);
    return other;
}

// What the blocks of a cluster tell one another. Two places take turns, as a block may already be told
// of what comes next while another one still reads. There is no fence: results of the row before
// are still on their way to memory.
struct Exchange {
    unsigned long long *barriers;
    char *states;
    int rank, uses = 0;
    __device__ Exchange(uint4 *memory, int rank)
        : barriers(reinterpret_cast<unsigned long long *>(memory)),
          states(reinterpret_cast<char *>(memory + 1)), rank(rank) {
        if (threadIdx.x == 0) begin_phases(barriers), begin_phases(barriers + 1);
    }

    // What all threads of the cluster have seen together, the same to the last bit in all of them.
    template <class State> __device__ __forceinline__ State joined(State seen) {
        static_assert(sizeof(State) <= STATE && sizeof(State) % 4 == 0 && WARPS + 2 * SIZE <= 64, "");
        const int turn = uses % 2, parity = uses / 2 % 2, lane = threadIdx.x % 32;
        State *parts = reinterpret_cast<State *>(states);
        State *told = reinterpret_cast<State *>(states + (WARPS + turn * SIZE) * STATE);
        ++uses;
#pragma unroll
        for (int step = 16; step; step /= 2) seen.join(of_lane(seen, lane ^ step));
        if (lane == 0) parts[threadIdx.x / 32] = seen;
        __syncthreads();
        if (threadIdx.x < 32) {
            State all = lane < WARPS ? parts[lane] : State();
#pragma unroll
            for (int step = 16; step; step /= 2) all.join(of_lane(all, lane ^ step));
            all = of_lane(all, 0);
            if (lane == 0) arm(barriers + turn, SIZE * sizeof(State));
            if (lane < SIZE) {
                float *to = reinterpret_cast<float *>(told + rank), *from = reinterpret_cast<float *>(&all);
#pragma unroll
                for (int i = 0; i < sizeof(State) / 4; ++i) send(to + i, from[i], lane, barriers + turn);
            }
        }
        await(barriers + turn, parity);
        State all = told[0];
#pragma unroll
        for (int i = 1; i < SIZE; ++i) all.join(told[i]);
        return all;
    }
};

template <class Level>
__device__ __forceinline__ Level measured(const uint4 *held, const Share &share, const Row &row) {
    Level seen;
#pragma unroll
    for (int batch = 0; batch < BATCHES; ++batch) {
        __pipeline_wait_prior(BATCHES - 1 - batch);
        __syncwarp();  // for the compiler: nothing is read before
        each(batch, share.pieces, [&](int at) {
            const Memory piece = held[at];
            if (whole(share.lead + at * PIECE)) seen.include(widened(piece), row);
        });
    }
    edges(share, [&](int at, int j) {
        seen.add(wide(reinterpret_cast<const Element *>(held + at)[j]), row);
    });
    return seen;
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
reduction(const Memory *__restrict__ x, $parameters Memory *__restrict__ out, long long rows) {
    extern __shared__ uint4 memory[];
    uint4 *const held = memory + EXCHANGED / 16;
    const int rank = blockIdx.x % SIZE;
    const long long begin = (long long)(blockIdx.x / SIZE) * ROWS, end = min(rows, begin + ROWS);
    Exchange exchange(memory, rank);
    arrive();
    Share share(begin, rows, rank);
#pragma unroll
    for (int batch = 0; batch < BATCHES; ++batch) {
        each(batch, share.copied, [&](int at) {
            __pipeline_memcpy_async(held + at, x + share.first + at, 16);
        });
        __pipeline_commit();
    }
    fetch_rest(held, x, share);
    wait_for_cluster();  // nobody's memory is written to before its barriers are there
    for (long long k = begin; k < end; ++k) {
        Row row;
        $read
        $measure
        const Share next(k + 1, rows, rank);
        const int coming = k + 1 < end ? next.copied : 0;
        edges(share, [&](int at, int j) {
            const float value = wide(reinterpret_cast<const Element *>(held + at)[j]);
            reinterpret_cast<Element *>(out + share.first + at)[j] = Element(result(value, row));
        });
        // A piece's place is taken by one of the next row as soon as its own results are on their way.
#pragma unroll
        for (int batch = 0; batch < BATCHES; ++batch) {
            each(batch, SHARE, [&](int at) {
                if (at < share.pieces && whole(share.lead + at * PIECE)) {
                    const Memory piece = held[at];
                    const Values values = mapped(widened(piece), [&](lanes x) { return result(x, row); });
                    __stcs(out + share.first + at, narrowed(values));
                }
                if (at < coming) __pipeline_memcpy_async(held + at, x + next.first + at, 16);
            });
            __pipeline_commit();
        }
        if (k + 1 < end) fetch_rest(held, x, next);
        share = next;
    }
}
