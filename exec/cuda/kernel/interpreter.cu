// GC3's interpreter (GC3 Sec. 4.4): one persistent kernel, a block for each threadblock of the program.
//
// exec/cuda/kernel/source.py puts definitions before this text: the columns of the tables (STEP_*, BLOCK_*, LINK_*,
// RECORD_*), the actions of a step (RECEIVES ...), ELEMENT, OPERATOR, THREADS, LL for the protocol LL, and both LL and
// LL128 for LL128, MULTIMEM for programs with glre and gstore. A build for the host defines CCCTL_HOST as a header with
// the same primitives on threads.
//
// A FIFO and the count of messages put in are in the receiver's memory. The count of messages taken out is in the
// sender's memory. Each count has one writer, so plain stores with release order are enough. PCIe has no atomics
// between peers. A FIFO of short messages has more slots than the program needs, so the count of messages taken out
// is published once for several of them: a release takes as long as half a message.
//
// LL messages (GC3 Sec. 4.3) need no count. Each 8 bytes of data travel in a line of 16 bytes: data, flag, data, flag,
// of 4 bytes each; the flag is the number of the message. Each half of a line is stored and loaded atomically, so a
// thread that sees the flag has its data, without a release and without waiting for the whole slice. LL has half of
// the bandwidth.
//
// A line of LL128 has 128 bytes: 15 words of data and the number of the message. Eight neighbouring threads store
// and load it at the same time, 16 bytes each. Within a GPU and over NVLink the line arrives whole (Demystifying
// NCCL, arXiv 2507.04786). PTX and PCIe do not promise this.
//
// With MULTIMEM, rows may SUM or SPREAD through a switch (NVLink SHARP), by Simple only. Each rank then has six
// addresses: of its buffers, and multicast addresses of the buffers of all ranks of its group.

typedef long long i64;
typedef unsigned long long u64;

// Narrow types are plain bits, so that no header of CUDA is needed.
struct Half {
    unsigned short bits;
};
struct Bfloat {
    unsigned short bits;
};

#ifdef CCCTL_HOST
#include CCCTL_HOST
#else

#define DEVICE __device__ __forceinline__
// Not inlined, so that its registers do not add to those of its caller.
#define APART __device__ __noinline__
// Two blocks run on a multiprocessor. On Volta it is one, because two would leave too few registers for each.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 750
#define RESIDENT 1
#else
#define RESIDENT 2
#endif
#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
#define SHARED(type, name) __shared__ type name

struct alignas(16) Bits {
    unsigned word[4];
};

DEVICE int block_number() { return blockIdx.x; }
DEVICE int thread_number() { return threadIdx.x; }
DEVICE int threads() { return blockDim.x; }
DEVICE i64 blocks() { return gridDim.x; }
DEVICE void meet() { __syncthreads(); }
DEVICE void rest() {
#if __CUDA_ARCH__ >= 700
    __nanosleep(20);
#endif
}

// Polls of a count or line before each look at the clock and the stop request, about 10 ms. The stop request is in the
// host's memory: if the tens of thousands of threads that wait for lines look more often, PCIe is too slow for them.
#define POLLS 16384
DEVICE u64 now_ns() {
    u64 time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
    return time;
}
DEVICE u64 acquire_system(const u64* at) {
    u64 value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
    return value;
}
DEVICE void release_system(u64* at, u64 value) {
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}
DEVICE u64 acquire_device(const u64* at) {
    u64 value;
    asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
    return value;
}
DEVICE void release_device(u64* at, u64 value) {
    asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}
// These loads bypass the L1 cache, which may hold old values of data that another processor wrote.
DEVICE Bits load_bits(const void* at) {
    Bits bits;
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(bits.word[0]), "=r"(bits.word[1]), "=r"(bits.word[2]), "=r"(bits.word[3])
                 : "l"(at)
                 : "memory");
    return bits;
}
DEVICE void store_bits(void* at, const Bits& bits) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(bits.word[0]), "r"(bits.word[1]),
                 "r"(bits.word[2]), "r"(bits.word[3])
                 : "memory");
}
DEVICE u64 load_word(const void* at) {
    u64 word;
    asm volatile("ld.volatile.global.u64 %0, [%1];" : "=l"(word) : "l"(at) : "memory");
    return word;
}
DEVICE void store_word(void* at, u64 word) {
    asm volatile("st.global.u64 [%0], %1;" ::"l"(at), "l"(word) : "memory");
}
// A line of LL: each half of 8 bytes is atomic.
DEVICE void store_line(void* at, u64 data, unsigned flag) {
    asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %2};" ::"l"(at), "r"(static_cast<unsigned>(data)),
                 "r"(flag), "r"(static_cast<unsigned>(data >> 32))
                 : "memory");
}
DEVICE bool load_line(const void* at, unsigned flag, u64& data) {
    const Bits line = load_bits(at);
    data = static_cast<u64>(line.word[2]) << 32 | line.word[0];
    return line.word[1] == flag && line.word[3] == flag;
}
// Eight threads share a line of LL128, two words each. The second word of the eighth thread is the flag.
#define LANES 8
#define WORDS 2
DEVICE bool has_flag() { return threadIdx.x % LANES == LANES - 1; }
DEVICE unsigned threads_of_line() { return 0xffu << (threadIdx.x & 24); }
DEVICE bool all_of_line(bool here) { return __all_sync(threads_of_line(), here); }
DEVICE void store_part(char* line, const u64 (&data)[WORDS], u64 flag) {
    __syncwarp(threads_of_line());
    asm volatile("st.volatile.global.v2.u64 [%0], {%1, %2};" ::"l"(line + threadIdx.x % LANES * 16), "l"(data[0]),
                 "l"(has_flag() ? flag : data[1])
                 : "memory");
}
DEVICE bool load_part(const char* line, u64 flag, u64 (&data)[WORDS]) {
    __syncwarp(threads_of_line());
    asm volatile("ld.volatile.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(data[0]), "=l"(data[1])
                 : "l"(line + threadIdx.x % LANES * 16)
                 : "memory");
    return !has_flag() || data[1] == flag;
}
template <class T>
DEVICE T load_one(const T* at) {
    return *const_cast<const volatile T*>(at);
}
template <>
DEVICE Half load_one(const Half* at) {
    return Half{load_one(&at->bits)};
}
template <>
DEVICE Bfloat load_one(const Bfloat* at) {
    return Bfloat{load_one(&at->bits)};
}
template <class T>
DEVICE void store_one(T* at, const T& value) {
    *at = value;
}
DEVICE float half_to_float(unsigned short bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}
DEVICE unsigned short float_to_half(float value) {
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}
DEVICE float float_of_bits(unsigned bits) { return __uint_as_float(bits); }
DEVICE unsigned bits_of_float(float value) { return __float_as_uint(value); }

#ifdef MULTIMEM
// Order accesses through multicast addresses and through others, which are aliases of the same memory.
DEVICE void order_aliases() { asm volatile("fence.proxy.alias;" ::: "memory"); }
#define GROUP_SUM(type, instruction)                                                                       \
    DEVICE Bits sum_of_group(const type* at) {                                                        \
        Bits sum;                                                                                     \
        asm volatile("multimem.ld_reduce.relaxed.sys.global.add." instruction " {%0, %1, %2, %3}, [%4];" \
                     : "=r"(sum.word[0]), "=r"(sum.word[1]), "=r"(sum.word[2]), "=r"(sum.word[3])     \
                     : "l"(at)                                                                        \
                     : "memory");                                                                     \
        return sum;                                                                                   \
    }
#define GROUP_WORD_SUM(type, instruction)                                                                  \
    DEVICE unsigned word_sum_of_group(const type* at) {                                               \
        unsigned sum;                                                                                 \
        asm volatile("multimem.ld_reduce.relaxed.sys.global.add." instruction " %0, [%1];"            \
                     : "=r"(sum)                                                                      \
                     : "l"(at)                                                                        \
                     : "memory");                                                                     \
        return sum;                                                                                   \
    }
GROUP_SUM(float, "v4.f32")
GROUP_SUM(Half, "acc::f32.v4.f16x2")
GROUP_SUM(Bfloat, "acc::f32.v4.bf16x2")
GROUP_WORD_SUM(float, "f32")
GROUP_WORD_SUM(Half, "acc::f32.f16x2")
GROUP_WORD_SUM(Bfloat, "acc::f32.bf16x2")
GROUP_WORD_SUM(int, "s32")
// There is no vector of integers.
DEVICE Bits sum_of_group(const int* at) {
    return Bits{{word_sum_of_group(at), word_sum_of_group(at + 1), word_sum_of_group(at + 2), word_sum_of_group(at + 3)}};
}
DEVICE void store_at_group(void* at, const Bits& bits) {
    asm volatile("multimem.st.relaxed.sys.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(bits.word[0]),
                 "r"(bits.word[1]), "r"(bits.word[2]), "r"(bits.word[3])
                 : "memory");
}
DEVICE void store_word_at_group(void* at, unsigned word) {
    asm volatile("multimem.st.relaxed.sys.global.u32 [%0], %1;" ::"l"(at), "r"(word) : "memory");
}
#endif
#endif

// ---- elements: narrow ones are widened, combined and rounded once, as in NumPy and NCCL

template <class T>
DEVICE T widened(T value) {
    return value;
}
DEVICE float widened(Half value) { return half_to_float(value.bits); }
DEVICE float widened(Bfloat value) { return float_of_bits(static_cast<unsigned>(value.bits) << 16); }

template <class T>
struct Narrowed {
    template <class W>
    DEVICE static T of(W value) {
        return static_cast<T>(value);
    }
};
template <>
struct Narrowed<Half> {
    DEVICE static Half of(float value) { return Half{float_to_half(value)}; }
};
template <>
struct Narrowed<Bfloat> {
    DEVICE static Bfloat of(float value) {
        unsigned bits = bits_of_float(value);
        // Round to the nearest, ties to even. NaN is kept, because rounding could turn it into infinity.
        unsigned rounded = value == value ? bits + 0x7fffu + (bits >> 16 & 1u) : bits | 0x400000u;
        return Bfloat{static_cast<unsigned short>(rounded >> 16)};
    }
};

// Integers wrap around. In C++ only unsigned ones may do so, hence the casts.
struct Sum {
    template <class W>
    DEVICE static W of(W a, W b) {
        return a + b;
    }
    DEVICE static int of(int a, int b) { return static_cast<int>(static_cast<unsigned>(a) + static_cast<unsigned>(b)); }
    DEVICE static i64 of(i64 a, i64 b) { return static_cast<i64>(static_cast<u64>(a) + static_cast<u64>(b)); }
};
struct Prod {
    template <class W>
    DEVICE static W of(W a, W b) {
        return a * b;
    }
    DEVICE static int of(int a, int b) { return static_cast<int>(static_cast<unsigned>(a) * static_cast<unsigned>(b)); }
    DEVICE static i64 of(i64 a, i64 b) { return static_cast<i64>(static_cast<u64>(a) * static_cast<u64>(b)); }
};
// The result is NaN if either side is, as in NumPy.
struct Min {
    template <class W>
    DEVICE static W of(W a, W b) {
        return a < b || a != a ? a : b;
    }
};
struct Max {
    template <class W>
    DEVICE static W of(W a, W b) {
        return a > b || a != a ? a : b;
    }
};

template <class T, class Op>
DEVICE T combined(T a, T b) {
    return Narrowed<T>::of(Op::of(widened(a), widened(b)));
}
template <class T>
union Pack {
    Bits bits;
    T element[16 / sizeof(T)];
};

// ---- moving: the sources are combined from left to right and the result goes to one place or two

DEVICE i64 smaller(i64 a, i64 b) { return a < b ? a : b; }
DEVICE i64 larger(i64 a, i64 b) { return a < b ? b : a; }

template <class T>
struct Operands {
    const T *first, *second;  // second may be absent
    const i64* more;          // further sources: buffer and first element
    i64 more_count;
    const i64* buffers;  // where the buffers of this rank are
    i64 offset;          // of this slice in the buffers
    T *into, *also;      // either may be absent
    const char* in;      // LL: the lines of the received and of the sent message (either may be absent)
    char* out;

    DEVICE i64 sources() const { return (second ? 2 : 1) + more_count; }
    DEVICE const T* source(i64 number) const {
        if (number < 2) return number ? second : first;
        const i64* found = more + 2 * (number - 2);
        return reinterpret_cast<const T*>(buffers[found[0]]) + found[1] + offset;
    }
    DEVICE bool aligned(u64 bytes) const {
        u64 all = reinterpret_cast<u64>(into) | reinterpret_cast<u64>(also);
        for (i64 number = 0; number < sources(); ++number) all |= reinterpret_cast<u64>(source(number));
        return all % bytes == 0;
    }
};

DEVICE void load(Bits& bits, const void* at) { bits = load_bits(at); }
DEVICE void load(u64& bits, const void* at) { bits = load_word(at); }

// Combine `total`, the elements of the first source, with the elements of all further sources.
template <class T, class Op, class Unit, int COUNT>
DEVICE void combine_others(Unit (&total)[COUNT], const Operands<T>& operands, i64 at, i64 stride) {
    constexpr int ELEMENTS = sizeof(Unit) / sizeof(T);
    const i64 sources = operands.sources();
    for (i64 number = 1; number < sources; ++number) {
        const T* source = operands.source(number);
        Unit other[COUNT];
#pragma unroll
        for (int u = 0; u < COUNT; ++u) load(other[u].bits, source + (at + u * stride) * ELEMENTS);
#pragma unroll
        for (int u = 0; u < COUNT; ++u)
#pragma unroll
            for (int e = 0; e < ELEMENTS; ++e)
                total[u].element[e] = combined<T, Op>(total[u].element[e], other[u].element[e]);
    }
}

template <class T, class Op, int PACKS>
DEVICE void move_packs(const Operands<T>& operands, i64 at, i64 stride) {
    constexpr int ELEMENTS = 16 / sizeof(T);
    Pack<T> total[PACKS];
#pragma unroll
    for (int u = 0; u < PACKS; ++u) total[u].bits = load_bits(operands.first + (at + u * stride) * ELEMENTS);
    combine_others<T, Op>(total, operands, at, stride);
#pragma unroll
    for (int u = 0; u < PACKS; ++u) {
        if (operands.into) store_bits(operands.into + (at + u * stride) * ELEMENTS, total[u].bits);
        if (operands.also) store_bits(operands.also + (at + u * stride) * ELEMENTS, total[u].bits);
    }
}

// Packs in flight in each thread, to hide the memory's latency.
constexpr int WIDTH = 4;

// Move `length` elements; all `workers` threads call this, each with its number.
template <class T, class Op>
DEVICE void move(const Operands<T>& operands, i64 length, i64 worker, i64 workers) {
    constexpr int ELEMENTS = 16 / sizeof(T);
    // In place, source and destination may be equal. A copy could overwrite what another threadblock writes there.
    if (operands.sources() == 1 && operands.into == operands.first && !operands.also) return;
    const i64 packs = operands.aligned(16) ? length / ELEMENTS : 0;
    i64 at = worker;
    for (; at + (WIDTH - 1) * workers < packs; at += WIDTH * workers) move_packs<T, Op, WIDTH>(operands, at, workers);
    for (; at < packs; at += workers) move_packs<T, Op, 1>(operands, at, workers);
    for (i64 one = packs * ELEMENTS + worker; one < length; one += workers) {
        T total = load_one(operands.first + one);
        for (i64 number = 1; number < operands.sources(); ++number)
            total = combined<T, Op>(total, load_one(operands.source(number) + one));
        if (operands.into) store_one(operands.into + one, total);
        if (operands.also) store_one(operands.also + one, total);
    }
}

#ifdef MULTIMEM
template <class T, int PACKS>
DEVICE void move_packs_by_switch(const T* from, T* into, bool sums, i64 at, i64 stride) {
    constexpr int ELEMENTS = 16 / sizeof(T);
    Bits bits[PACKS];
#pragma unroll
    for (int u = 0; u < PACKS; ++u) {
        const T* here = from + (at + u * stride) * ELEMENTS;
        bits[u] = sums ? sum_of_group(here) : load_bits(here);
    }
#pragma unroll
    for (int u = 0; u < PACKS; ++u) {
        T* here = into + (at + u * stride) * ELEMENTS;
        if (sums)
            store_bits(here, bits[u]);
        else
            store_at_group(here, bits[u]);
    }
}

// Read the sum of `length` elements at all ranks of the group, or write them there. Elements fill words of 4 bytes.
template <class T>
DEVICE void move_by_switch(const T* from, T* into, bool sums, i64 length, i64 worker, i64 workers) {
    constexpr int ELEMENTS = 16 / sizeof(T), OF_WORD = 4 / sizeof(T);
    const bool aligned = (reinterpret_cast<u64>(from) | reinterpret_cast<u64>(into)) % 16 == 0;
    const i64 packs = aligned ? length / ELEMENTS : 0;
    order_aliases();
    i64 at = worker;
    for (; at + (WIDTH - 1) * workers < packs; at += WIDTH * workers)
        move_packs_by_switch<T, WIDTH>(from, into, sums, at, workers);
    for (; at < packs; at += workers) move_packs_by_switch<T, 1>(from, into, sums, at, workers);
    for (i64 one = packs * ELEMENTS + worker * OF_WORD; one < length; one += workers * OF_WORD) {
        if (sums)
            store_one(reinterpret_cast<unsigned*>(into + one), word_sum_of_group(from + one));
        else
            store_word_at_group(into + one, load_one(reinterpret_cast<const unsigned*>(from + one)));
    }
    order_aliases();
}
#endif

template <class T>
union Word {
    u64 bits;
    T element[8 / sizeof(T)];
};

// ---- waiting: bounded; a threadblock that gives up records for the host what it waited for

enum { FOR_MESSAGE = 1, FOR_ROOM, FOR_STEP };
enum { RAN_OUT = 1, WAS_STOPPED };

// Addresses of each rank; see MULTIMEM.
#ifdef MULTIMEM
constexpr i64 BUFFERS = 6;
#else
constexpr i64 BUFFERS = 3;
#endif
// Rows of the table of steps that a block holds at a time.
constexpr i64 ROWS = 64;

// A block's tables and progress, in shared memory because each acquire empties the L1 cache: rows of steps would come
// from global memory again and again.
struct BlockState {
    i64 block[BLOCK_COLUMNS], link[LINK_COLUMNS], buffers[BUFFERS], rows[ROWS * STEP_COLUMNS];
    i64* record;
    u64* stop;
    i64 limit_ns, origin, tile, slice;
    // Messages sent and received over all launches, the slots of the next ones, and the counts as they were last read.
    i64 sent, received, place_out, place_in;
    // Messages received since the count of messages taken out was last published.
    i64 unpublished;
    u64 put_in, taken_out;
    // alive: the block goes on. ran_out (only LL): a thread of the block reached the time limit.
    int alive, ran_out;
    // Slices use the two entries in turn. whole (only LL): all threads got their lines. The others: counts to publish.
    int whole[2], publishes[2];
    u64 head[2], credit[2], finished[2];

    // Wait until a count reaches `goal`. `seen` is the value last read; often it already suffices.
    DEVICE bool until(const u64* count, i64 goal, int reason, i64 peer, u64& seen) const {
        if (goal <= static_cast<i64>(seen)) return true;
        u64 begun = 0;
        for (unsigned tries = 0;; ++tries) {
            seen = reason == FOR_STEP ? acquire_device(count) : acquire_system(count);
            if (seen >= static_cast<u64>(goal)) return true;
            if (tries % POLLS != POLLS - 1) continue;
            const int state = ended(begun);
            if (!state) continue;
            write(state, reason, peer, seen, goal);
            release_system(stop, 1);
            return false;
        }
    }

    // Wait for a line's flag and take its data. Return 0, or why the thread gave up: RAN_OUT, WAS_STOPPED.
    DEVICE int line(const void* at, i64 number, u64& data) const {
        u64 begun = 0;
        for (unsigned tries = 0;; ++tries) {
            if (load_line(at, static_cast<unsigned>(number), data)) return 0;
            if (tries % POLLS != POLLS - 1) continue;
            const int state = ended(begun);
            if (!state) continue;
            release_system(stop, 1);
            return state;
        }
    }

#ifdef LL128
    // Wait for a line of LL128 and take this thread's part. All threads of the line return 0, or none does.
    DEVICE int part(const char* at, i64 number, u64 (&data)[WORDS]) const {
        u64 begun = 0;
        for (unsigned tries = 0;; ++tries) {
            if (all_of_line(load_part(at, static_cast<u64>(number), data))) return 0;
            if (tries % POLLS != POLLS - 1) continue;
            const int state = ended(begun);
            if (all_of_line(!state)) continue;
            release_system(stop, 1);
            return state ? state : WAS_STOPPED;
        }
    }
#endif

    // Rest, then return why a wait since `begun` (0: since now) is over: RAN_OUT or WAS_STOPPED. Return 0 to go on.
    DEVICE int ended(u64& begun) const {
        rest();
        const u64 now = now_ns();
        if (!begun) begun = now;
        if (acquire_system(stop) != 0) return WAS_STOPPED;
        return now - begun < static_cast<u64>(limit_ns) ? 0 : RAN_OUT;
    }

    // Record that a thread gave up waiting for a line of this slice.
    APART void give_up(unsigned turn, int state) {
        if (state == RAN_OUT) ran_out = 1;
        whole[turn] = 0;
    }

    // Let the first thread record for the host that a message did not come, whichever thread gave up.
    APART void write_lost_message(unsigned turn) const {
        if (thread_number() != 0) return;
        const i64 number = static_cast<i64>(credit[turn]);
        const int state = ran_out ? RAN_OUT : WAS_STOPPED;
        write(state, FOR_MESSAGE, block[BLOCK_FROM], static_cast<u64>(number - 1), number);
    }

    DEVICE void write(int state, int reason, i64 peer, u64 seen, i64 wanted) const {
        record[RECORD_REASON] = reason;
        record[RECORD_RANK] = block[BLOCK_RANK];
        record[RECORD_NUMBER] = block[BLOCK_NUMBER];
        record[RECORD_ORIGIN] = origin;
        record[RECORD_PEER] = peer;
        record[RECORD_CHANNEL] = block[BLOCK_CHANNEL];
        record[RECORD_TILE] = tile;
        record[RECORD_SLICE] = slice;
        record[RECORD_SEEN] = static_cast<i64>(seen);
        record[RECORD_WANTED] = wanted;
        release_system(reinterpret_cast<u64*>(record + RECORD_STATE), state);
    }
};

// ---- moving by LL and LL128: `received` and `sent` are the numbers of the messages

#ifdef LL128
// Words of data in a line.
constexpr i64 LINE_WORDS = 15;
typedef u64 Flag;

// Combine the elements of a word that the message fills in part, or whose sources are not at multiples of 8 bytes.
template <class T, class Op>
DEVICE u64 combined_word(const Operands<T>& operands, i64 length, i64 at, u64 received) {
    constexpr int ELEMENTS = 8 / sizeof(T);
    Word<T> total;
    total.bits = received;
#pragma unroll
    for (int e = 0; e < ELEMENTS; ++e) {
        const i64 one = at * ELEMENTS + e;
        if (one >= length) break;
        T value = operands.in ? total.element[e] : load_one(operands.first + one);
        for (i64 number = 1; number < operands.sources(); ++number)
            value = combined<T, Op>(value, load_one(operands.source(number) + one));
        if (operands.into) store_one(operands.into + one, value);
        total.element[e] = value;
    }
    return total.bits;
}

template <class T, class Op>
APART int move_lines(const Operands<T>& operands, i64 length, const BlockState& near, i64 received, Flag sent) {
    constexpr int ELEMENTS = 8 / sizeof(T);
    const i64 words = (length + ELEMENTS - 1) / ELEMENTS, whole = operands.aligned(8) ? length / ELEMENTS : 0;
    const i64 lines = (words + LINE_WORDS - 1) / LINE_WORDS;
    // The thread with the flag has one word of data. It loads the word twice and stores it once.
    const i64 step = has_flag() ? 0 : 1;
    for (i64 line = thread_number() / LANES; line < lines; line += threads() / LANES) {
        const i64 at = line * LINE_WORDS + thread_number() % LANES * WORDS;
        u64 data[WORDS] = {};
        if (operands.in)
            if (const int state = near.part(operands.in + 128 * line, received, data)) return state;
        if ((line + 1) * LINE_WORDS <= whole) {
            Word<T> total[WORDS];
#pragma unroll
            for (int u = 0; u < WORDS; ++u)
                total[u].bits = operands.in ? data[u] : load_word(operands.first + (at + u * step) * ELEMENTS);
            combine_others<T, Op>(total, operands, at, step);
#pragma unroll
            for (int u = 0; u < WORDS; ++u) {
                data[u] = total[u].bits;
                if (operands.into && (u == 0 || step)) store_word(operands.into + (at + u) * ELEMENTS, data[u]);
            }
        } else {
            for (int u = 0; u < WORDS; ++u)
                if (u == 0 || step) data[u] = combined_word<T, Op>(operands, length, at + u, data[u]);
        }
        if (operands.out) store_part(operands.out + 128 * line, data, sent);
    }
    return 0;
}
#else
typedef unsigned Flag;

// Lines in flight in each thread, to hide the memory's latency.
constexpr int LINES = 4;

// Move the lines `at`, `at` + `stride` ..., which are full and whose elements are in aligned words of 8 bytes.
template <class T, class Op, int COUNT>
DEVICE int move_whole_lines(const Operands<T>& operands, i64 at, i64 stride, const BlockState& near, i64 received,
                             unsigned sent) {
    constexpr int ELEMENTS = 8 / sizeof(T);
    const char* in = operands.in;
    char* out = operands.out;
    Word<T> total[COUNT];
    if (in) {
        bool here[COUNT];
#pragma unroll
        for (int u = 0; u < COUNT; ++u)
            here[u] = load_line(in + 16 * (at + u * stride), static_cast<unsigned>(received), total[u].bits);
#pragma unroll
        for (int u = 0; u < COUNT; ++u)
            if (!here[u])
                if (const int state = near.line(in + 16 * (at + u * stride), received, total[u].bits)) return state;
    } else {
#pragma unroll
        for (int u = 0; u < COUNT; ++u) total[u].bits = load_word(operands.first + (at + u * stride) * ELEMENTS);
    }
    combine_others<T, Op>(total, operands, at, stride);
#pragma unroll
    for (int u = 0; u < COUNT; ++u) {
        if (out) store_line(out + 16 * (at + u * stride), total[u].bits, sent);
        if (operands.into) store_word(operands.into + (at + u * stride) * ELEMENTS, total[u].bits);
    }
    return 0;
}

template <class T, class Op>
APART int move_lines(const Operands<T>& operands, i64 length, const BlockState& near, i64 received, unsigned sent) {
    const char* in = operands.in;
    char* out = operands.out;
    constexpr i64 ELEMENTS = 8 / sizeof(T);
    const i64 lines = (length + ELEMENTS - 1) / ELEMENTS, stride = threads();
    const i64 whole = operands.aligned(8) ? length / ELEMENTS : 0;
    i64 at = thread_number();
    for (; at + (LINES - 1) * stride < whole; at += LINES * stride)
        if (const int state = move_whole_lines<T, Op, LINES>(operands, at, stride, near, received, sent)) return state;
    for (; at < whole; at += stride)
        if (const int state = move_whole_lines<T, Op, 1>(operands, at, stride, near, received, sent)) return state;
    for (; at < lines; at += stride) {
        const i64 first = at * ELEMENTS;
        const i64 count = smaller(ELEMENTS, length - first);
        Word<T> total;
        total.bits = 0;
        if (in)
            if (const int state = near.line(in + 16 * at, received, total.bits)) return state;
#pragma unroll
        for (i64 e = 0; e < ELEMENTS; ++e) {
            if (e >= count) break;
            T value = in ? total.element[e] : load_one(operands.first + first + e);
            for (i64 number = 1; number < operands.sources(); ++number)
                value = combined<T, Op>(value, load_one(operands.source(number) + first + e));
            if (operands.into) store_one(operands.into + first + e, value);
            total.element[e] = value;
        }
        if (out) store_line(out + 16 * at, total.bits, sent);
    }
    return 0;
}
#endif

// ---- the interpreter

DEVICE void copy_words(i64* to, const i64* from, i64 count) {
    for (i64 at = thread_number(); at < count; at += threads()) to[at] = from[at];
}

// The first thread of the n-th warp. Different counts are published by different warps, so that the fences overlap.
DEVICE int thread_of_warp(int number) { return number * 32 % threads(); }

struct Machine {
    const i64 *blocks, *steps, *more, *buffers, *links;
    u64* flags;    // for each threadblock, the number of its finished steps; written at steps that others await
    i64* records;  // for each threadblock, what it waited for when it gave up
    u64* stop;
    i64 launch, tile, tiles, slices, limit_ns;
};

template <class T>
struct Shared {
    BlockState near;
    Operands<T> operands;  // of the current slice
    i64 count;             // elements of the current slice
};

// Let the first thread set up `operands` of a slice and wait until it can be moved. Return false if it gave up.
template <class T>
APART bool ready(const Machine& machine, BlockState& near, Operands<T>& operands, i64& count, const i64* step, int number,
                  int parts, int slice, unsigned turn) {
    constexpr int PACK = 16 / sizeof(T);
    const int does = static_cast<int>(step[STEP_DOES]);
    const i64 round = machine.launch * machine.tiles + near.tile, skipped = near.tile * machine.tile;
    const int length = static_cast<int>(larger(smaller(step[STEP_LENGTH] - skipped, machine.tile), 0));
    const int each = parts == 1 ? length : (length + parts * PACK - 1) / (parts * PACK) * PACK;
    const i64 first = static_cast<i64>(slice) * each, offset = skipped + first;
    near.origin = step[STEP_ORIGIN];
    near.slice = slice;
    near.whole[turn] = 1;
    near.publishes[turn] = does & RECEIVES && near.unpublished + 1 == near.block[BLOCK_CREDIT_EVERY];
    near.head[turn] = near.sent * machine.slices + slice + 1;
    near.credit[turn] = near.received * machine.slices + slice + 1;
    near.finished[turn] = round * near.block[BLOCK_STEPS] + number + 1;
    count = does ? larger(smaller(length - first, each), 0) : 0;

    const i64 from = step[STEP_SRC_BUFFER] + (does & SUMS ? 3 : 0), to = step[STEP_DST_BUFFER] + (does & SPREADS ? 3 : 0);
    T* own = nullptr;
    if (does & READS) own = reinterpret_cast<T*>(near.buffers[from]) + step[STEP_SRC_START] + offset;
    T* into = nullptr;
    if (does & WRITES) into = reinterpret_cast<T*>(near.buffers[to]) + step[STEP_DST_START] + offset;
#ifdef LL
    // A slot has the lines of the longest message; a message is one slice.
#ifdef LL128
    const i64 place = ((machine.tile * sizeof(T) + 7) / 8 + LINE_WORDS - 1) / LINE_WORDS * 128;
#else
    const i64 place = (machine.tile * sizeof(T) + 7) / 8 * 16;
#endif
    operands.in = operands.out = nullptr;
    if (does & RECEIVES) operands.in = reinterpret_cast<char*>(near.link[LINK_IN_SLOTS]) + near.place_in * place;
    if (does & SENDS) operands.out = reinterpret_cast<char*>(near.link[LINK_OUT_SLOTS]) + near.place_out * place;
    T *in = nullptr, *out = nullptr;
#else
    T* in = nullptr;
    if (does & RECEIVES) in = reinterpret_cast<T*>(near.link[LINK_IN_SLOTS]) + near.place_in * machine.tile + first;
    T* out = nullptr;
    if (does & SENDS) out = reinterpret_cast<T*>(near.link[LINK_OUT_SLOTS]) + near.place_out * machine.tile + first;
#endif
    operands.first = does & RECEIVES ? in : does & ACCUMULATES ? into : own;
    operands.second = does & (RECEIVES | ACCUMULATES) ? own : nullptr;
    operands.more = machine.more + 2 * step[STEP_MORE];
    operands.more_count = step[STEP_MORE_COUNT];
    operands.buffers = near.buffers;
    operands.offset = offset;
    operands.into = into;
    operands.also = out;

    const i64 other = step[STEP_WAIT_BLOCK];
    if (slice == 0 && other >= 0) {
        const i64* theirs = machine.blocks + other * BLOCK_COLUMNS;
        const i64 goal = round * theirs[BLOCK_STEPS] + step[STEP_WAIT_STEP] + 1;
        u64 finished = 0;
        if (!near.until(machine.flags + other, goal, FOR_STEP, theirs[BLOCK_NUMBER], finished)) return false;
    }
#ifndef LL
    if (does & RECEIVES && !near.until(reinterpret_cast<const u64*>(near.link[LINK_IN_HEAD]),
                                       static_cast<i64>(near.credit[turn]), FOR_MESSAGE, near.block[BLOCK_FROM],
                                       near.put_in))
        return false;
#endif
    const i64 room = near.block[BLOCK_ROOM_OUT] * machine.slices;
    return !(does & SENDS) || near.until(reinterpret_cast<const u64*>(near.link[LINK_OUT_CREDIT]),
                                         static_cast<i64>(near.head[turn]) - room, FOR_ROOM, near.block[BLOCK_TO],
                                         near.taken_out);
}

template <class T, class Op>
DEVICE void interpret(const Machine& machine) {
    SHARED(Shared<T>, shared);
    BlockState& near = shared.near;
    Operands<T>& operands = shared.operands;
    i64& count = shared.count;
    copy_words(near.block, machine.blocks + block_number() * BLOCK_COLUMNS, BLOCK_COLUMNS);
    copy_words(near.link, machine.links + block_number() * LINK_COLUMNS, LINK_COLUMNS);
    meet();
    copy_words(near.buffers, machine.buffers + near.block[BLOCK_BUFFERS] * BUFFERS, BUFFERS);
    const bool leads = thread_number() == 0;
    if (leads) {
        const i64 room_out = near.block[BLOCK_ROOM_OUT], room_in = near.block[BLOCK_ROOM_IN];
        near.record = machine.records + block_number() * RECORD_COLUMNS;
        near.stop = machine.stop;
        near.limit_ns = machine.limit_ns;
        near.sent = machine.launch * machine.tiles * near.block[BLOCK_SENDS];
        near.received = machine.launch * machine.tiles * near.block[BLOCK_RECEIVES];
        near.place_out = room_out ? near.sent % room_out : 0;
        near.place_in = room_in ? near.received % room_in : 0;
        near.unpublished = near.received % near.block[BLOCK_CREDIT_EVERY];
        near.put_in = near.taken_out = 0;
        near.ran_out = 0;
    }
    const int steps = static_cast<int>(near.block[BLOCK_STEPS]);
    unsigned turn = 0;
    for (i64 tile = 0; tile < machine.tiles; ++tile) {
        if (leads) near.tile = tile;
        for (int number = 0; number < steps; ++number) {
            if (number % ROWS == 0 && (tile == 0 || steps > ROWS)) {
                const i64* rows = machine.steps + (near.block[BLOCK_FIRST] + number) * STEP_COLUMNS;
                copy_words(near.rows, rows, smaller(steps - number, ROWS) * STEP_COLUMNS);
                meet();
            }
            const i64* step = near.rows + number % ROWS * STEP_COLUMNS;
            const int does = static_cast<int>(step[STEP_DOES]);
            const bool signals = step[STEP_SIGNALS] != 0;
            const int parts = does & (RECEIVES | SENDS) ? static_cast<int>(machine.slices) : 1;
#pragma unroll 1
            for (int slice = 0; slice < parts; ++slice, turn ^= 1) {
                if (leads) near.alive = ready(machine, near, operands, count, step, number, parts, slice, turn);
                meet();
                if (!near.alive) return;
#ifdef MULTIMEM
                if (count > 0 && does & (SUMS | SPREADS))
                    move_by_switch(operands.first, operands.into, does & SUMS, count, thread_number(), threads());
                else
#endif
#ifdef LL
                if (count > 0 && (operands.in || operands.out)) {
                    const i64 received = static_cast<i64>(near.credit[turn]);
                    const Flag sent = static_cast<Flag>(near.head[turn]);
                    const int state = move_lines<T, Op>(operands, count, near, received, sent);
                    if (state) near.give_up(turn, state);
                } else if (count > 0)
#else
                if (count > 0)
#endif
                    move<T, Op>(operands, count, thread_number(), threads());
                meet();
#ifdef LL
                if (!near.whole[turn]) {
                    near.write_lost_message(turn);
                    return;
                }
#else
                if (does & SENDS && thread_number() == thread_of_warp(1))
                    release_system(reinterpret_cast<u64*>(near.link[LINK_OUT_HEAD]), near.head[turn]);
#endif
                if (near.publishes[turn] && thread_number() == thread_of_warp(2))
                    release_system(reinterpret_cast<u64*>(near.link[LINK_IN_CREDIT]), near.credit[turn]);
            }
            if (signals && thread_number() == thread_of_warp(3))
                release_device(machine.flags + block_number(), near.finished[turn ^ 1]);
            if (leads && does & SENDS) {
                ++near.sent;
                if (++near.place_out == near.block[BLOCK_ROOM_OUT]) near.place_out = 0;
            }
            if (leads && does & RECEIVES) {
                ++near.received;
                if (++near.place_in == near.block[BLOCK_ROOM_IN]) near.place_in = 0;
                if (++near.unpublished == near.block[BLOCK_CREDIT_EVERY]) near.unpublished = 0;
            }
        }
    }
}

#ifdef ELEMENT
KERNEL ccctl_interpret(const i64* blocks, const i64* steps, const i64* more, const i64* buffers, const i64* links,
                       u64* flags, i64* records, u64* stop, i64 launch, i64 tile, i64 tiles, i64 slices,
                       i64 limit_ns) {
    interpret<ELEMENT, OPERATOR>(
        Machine{blocks, steps, more, buffers, links, flags, records, stop, launch, tile, tiles, slices, limit_ns});
}

// A transmission context's kernel: one or two sources into one place or two (null: none).
KERNEL ccctl_combine(const ELEMENT* first, const ELEMENT* second, ELEMENT* into, ELEMENT* also, i64 length) {
    const Operands<ELEMENT> operands{first, second, nullptr, 0, nullptr, 0, into, also, nullptr, nullptr};
    move<ELEMENT, OPERATOR>(operands, length, static_cast<i64>(block_number()) * threads() + thread_number(),
                            blocks() * threads());
}

// Divide the sums of an average by the number of summands; integers round towards zero, as in NCCL.
KERNEL ccctl_divide(ELEMENT* values, i64 length, int by) {
    const i64 step = blocks() * threads();
    for (i64 at = static_cast<i64>(block_number()) * threads() + thread_number(); at < length; at += step)
        values[at] = Narrowed<ELEMENT>::of(widened(values[at]) / by);
}
#endif
