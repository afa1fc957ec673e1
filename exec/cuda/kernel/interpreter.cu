// GC3's interpreter (GC3 Sec. 4.4): one persistent kernel, a block for each threadblock of the program.
//
// The text that exec/cuda/kernel/source.py puts before this one names the columns of the tables (STEP_*, BLOCK_*,
// LINK_*, RECORD_*), what a step does (RECEIVES ...), ELEMENT, OPERATOR, THREADS, and LL for that protocol. Built
// for the host, CCCTL_HOST names a header that gives the same primitives on threads.
//
// A FIFO lies in the receiver's memory with the count of what was put in; the count of what was taken out
// lies in the sender's. Each count has one writer, so plain stores with release order are enough, over
// PCIe too, which has no atomics between peers.
//
// By LL (GC3 Sec. 4.3) messages need no count: each 8 bytes travel in a line of 16, as twice 4 bytes of data and
// 4 of flag, the number of the message. Each half is stored and loaded atomically, so a thread that sees the flag
// has its data, without a release and without waiting for the whole slice, at half of the bandwidth.

typedef long long i64;
typedef unsigned long long u64;

// Narrow types are bits here: so no header of CUDA's is needed to compile this.
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
// Two blocks on a multiprocessor; for Volta the compiler needs more registers than that leaves.
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
// What another processor wrote must not come from this one's first cache, so these loads go past it.
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
#endif

// ---- elements: narrow ones are combined as wider ones and rounded once, as NumPy and NCCL do

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
        // To the nearest, ties to even; a NaN stays one whatever the rounding would do to it.
        unsigned rounded = value == value ? bits + 0x7fffu + (bits >> 16 & 1u) : bits | 0x400000u;
        return Bfloat{static_cast<unsigned short>(rounded >> 16)};
    }
};

// Integers wrap around, which only unsigned ones may in C++.
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
// A NaN on either side is the result, as in NumPy.
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

template <class T>
struct Operands {
    const T *first, *second;  // second may be absent
    const i64* more;          // further sources: buffer and first element
    i64 more_count;
    const i64* buffers;  // where the buffers of this rank are
    i64 offset;          // of this slice in the buffers
    T *into, *also;      // either may be absent

    DEVICE i64 sources() const { return (second ? 2 : 1) + more_count; }
    DEVICE const T* source(i64 number) const {
        if (number < 2) return number ? second : first;
        const i64* found = more + 2 * (number - 2);
        return reinterpret_cast<const T*>(buffers[found[0]]) + found[1] + offset;
    }
    DEVICE bool aligned() const {
        u64 all = reinterpret_cast<u64>(into) | reinterpret_cast<u64>(also);
        for (i64 number = 0; number < sources(); ++number) all |= reinterpret_cast<u64>(source(number));
        return all % 16 == 0;
    }
};

template <class T, class Op, int PACKS>
DEVICE void move_packs(const Operands<T>& operands, i64 at, i64 stride) {
    constexpr int ELEMENTS = 16 / sizeof(T);
    Pack<T> total[PACKS];
#pragma unroll
    for (int u = 0; u < PACKS; ++u) total[u].bits = load_bits(operands.first + (at + u * stride) * ELEMENTS);
    const i64 sources = operands.sources();
    for (i64 number = 1; number < sources; ++number) {
        const T* source = operands.source(number);
        Pack<T> other[PACKS];
#pragma unroll
        for (int u = 0; u < PACKS; ++u) other[u].bits = load_bits(source + (at + u * stride) * ELEMENTS);
#pragma unroll
        for (int u = 0; u < PACKS; ++u)
#pragma unroll
            for (int e = 0; e < ELEMENTS; ++e)
                total[u].element[e] = combined<T, Op>(total[u].element[e], other[u].element[e]);
    }
#pragma unroll
    for (int u = 0; u < PACKS; ++u) {
        if (operands.into) store_bits(operands.into + (at + u * stride) * ELEMENTS, total[u].bits);
        if (operands.also) store_bits(operands.also + (at + u * stride) * ELEMENTS, total[u].bits);
    }
}

// Packs in flight in each thread, to hide the memory's latency.
constexpr int WIDTH = 4;

// All `workers` call it, each with its number.
template <class T, class Op>
DEVICE void move(const Operands<T>& operands, i64 length, i64 worker, i64 workers) {
    constexpr int ELEMENTS = 16 / sizeof(T);
    // A copy onto itself, as in place there are: what another threadblock writes there meanwhile stays.
    if (operands.sources() == 1 && operands.into == operands.first && !operands.also) return;
    const i64 packs = operands.aligned() ? length / ELEMENTS : 0;
    i64 at = worker;
    for (; at + (WIDTH - 1) * workers < packs; at += WIDTH * workers) move_packs<T, Op, WIDTH>(operands, at, workers);
    for (; at < packs; at += workers) move_packs<T, Op, 1>(operands, at, workers);
    for (i64 one = packs * ELEMENTS + worker; one < length; one += workers) {
        T total = load_one(operands.first + one);
        for (i64 number = 1; number < operands.sources(); ++number)
            total = combined<T, Op>(total, load_one(operands.source(number) + one));
        if (operands.into) operands.into[one] = total;
        if (operands.also) operands.also[one] = total;
    }
}

template <class T>
union Word {
    u64 bits;
    T element[8 / sizeof(T)];
};

// ---- waiting: bounded, and who waits for whom is written where the host reads it

enum { FOR_MESSAGE = 1, FOR_ROOM, FOR_STEP };
enum { RAN_OUT = 1, WAS_STOPPED };

struct Waiter {
    const i64* block;
    i64* record;
    u64* stop;
    i64 limit_ns;
    i64 origin, tile, slice;

    DEVICE bool until(const u64* count, i64 goal, int reason, i64 peer) const {
        if (goal <= 0) return true;
        u64 begun = 0;
        for (unsigned tries = 0;; ++tries) {
            const u64 seen = reason == FOR_STEP ? acquire_device(count) : acquire_system(count);
            if (seen >= static_cast<u64>(goal)) return true;
            if (tries % 256 != 255) continue;
            const int state = ended(begun);
            if (!state) continue;
            write(state, reason, peer, seen, goal);
            release_system(stop, 1);
            return false;
        }
    }

    // Wait for a line's flag and take its data. Each thread of a block may give up; only the first writes a record.
    DEVICE bool line(const void* at, i64 number, i64 peer, u64& data) const {
        u64 begun = 0;
        for (unsigned tries = 0;; ++tries) {
            if (load_line(at, static_cast<unsigned>(number), data)) return true;
            if (tries % 256 != 255) continue;
            const int state = ended(begun);
            if (!state) continue;
            if (thread_number() == 0) write(state, FOR_MESSAGE, peer, static_cast<u64>(number - 1), number);
            release_system(stop, 1);
            return false;
        }
    }

    // Rest, then say why a wait since `begun` (0: it begins) is over: RAN_OUT, WAS_STOPPED; 0 while it goes on.
    DEVICE int ended(u64& begun) const {
        rest();
        const u64 now = now_ns();
        if (!begun) begun = now;
        if (acquire_system(stop) != 0) return WAS_STOPPED;
        return now - begun < static_cast<u64>(limit_ns) ? 0 : RAN_OUT;
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

// ---- moving by LL: `in` and `out` are the lines of the message received and of that sent (either may be absent)

template <class T, class Op>
APART bool move_lines(const Operands<T>& operands, const char* in, char* out, i64 length, const Waiter& waiter,
                       i64 received, i64 sent, i64 peer) {
    constexpr i64 ELEMENTS = 8 / sizeof(T);
    const i64 lines = (length + ELEMENTS - 1) / ELEMENTS;
    for (i64 at = thread_number(); at < lines; at += threads()) {
        const i64 first = at * ELEMENTS;
        const i64 count = smaller(ELEMENTS, length - first);
        Word<T> total;
        total.bits = 0;
        if (in && !waiter.line(in + 16 * at, received, peer, total.bits)) return false;
#pragma unroll
        for (i64 e = 0; e < ELEMENTS; ++e) {
            if (e >= count) break;
            T value = in ? total.element[e] : load_one(operands.first + first + e);
            for (i64 number = 1; number < operands.sources(); ++number)
                value = combined<T, Op>(value, load_one(operands.source(number) + first + e));
            if (operands.into) operands.into[first + e] = value;
            total.element[e] = value;
        }
        if (out) store_line(out + 16 * at, total.bits, static_cast<unsigned>(sent));
    }
    return true;
}

// ---- the interpreter

// Of a block: whether it goes on; by LL whether all threads got their lines, for this message and the next in turn.
struct BlockState {
    int alive, whole[2];
};

struct Machine {
    const i64 *blocks, *steps, *more, *buffers, *links;
    u64* flags;    // for each threadblock how many steps it has finished, of those that somebody waits for
    i64* records;  // for each threadblock whom it waited for when the time was up
    u64* stop;
    i64 launch, tile, tiles, slices, limit_ns;
};

template <class T, class Op>
DEVICE void interpret(const Machine& machine) {
    SHARED(BlockState, block_state);
    unsigned turn = 0;
    constexpr i64 PACK = 16 / sizeof(T);
    const i64* block = machine.blocks + block_number() * BLOCK_COLUMNS;
    const i64* link = machine.links + block_number() * LINK_COLUMNS;
    const i64* buffers = machine.buffers + block[BLOCK_BUFFERS] * 3;
    u64* flag = machine.flags + block_number();
    const bool leads = thread_number() == 0;
    const i64 slices = machine.slices;
    Waiter waiter{block, machine.records + block_number() * RECORD_COLUMNS, machine.stop, machine.limit_ns, 0, 0, 0};

    for (i64 tile = 0; tile < machine.tiles; ++tile) {
        const i64 round = machine.launch * machine.tiles + tile;
        i64 sent = round * block[BLOCK_SENDS], received = round * block[BLOCK_RECEIVES];
        for (i64 number = 0; number < block[BLOCK_STEPS]; ++number) {
            const i64* step = machine.steps + (block[BLOCK_FIRST] + number) * STEP_COLUMNS;
            const i64 does = step[STEP_DOES];
            const i64 skipped = tile * machine.tile;
            i64 length = smaller(step[STEP_LENGTH] - skipped, machine.tile);
            if (length < 0) length = 0;
            const i64 parts = does & (RECEIVES | SENDS) ? slices : 1;
            const i64 each = (length + parts * PACK - 1) / (parts * PACK) * PACK;
            waiter.origin = step[STEP_ORIGIN];
            waiter.tile = tile;
            for (i64 slice = 0; slice < parts; ++slice) {
                if (leads) {
                    waiter.slice = slice;
                    bool ready = true;
                    const i64 other = step[STEP_WAIT_BLOCK];
                    if (slice == 0 && other >= 0) {
                        const i64 goal = round * machine.blocks[other * BLOCK_COLUMNS + BLOCK_STEPS] + step[STEP_WAIT_STEP] + 1;
                        const i64 local = machine.blocks[other * BLOCK_COLUMNS + BLOCK_NUMBER];
                        ready = waiter.until(machine.flags + other, goal, FOR_STEP, local);
                    }
#ifndef LL
                    if (ready && does & RECEIVES)
                        ready = waiter.until(reinterpret_cast<const u64*>(link[LINK_IN_HEAD]),
                                             received * slices + slice + 1, FOR_MESSAGE, block[BLOCK_FROM]);
#endif
                    if (ready && does & SENDS)
                        ready = waiter.until(reinterpret_cast<const u64*>(link[LINK_OUT_CREDIT]),
                                             (sent - block[BLOCK_ROOM_OUT]) * slices + slice + 1, FOR_ROOM,
                                             block[BLOCK_TO]);
                    block_state.alive = ready;
                    block_state.whole[turn % 2] = 1;
                }
                meet();
                if (!block_state.alive) return;
                const i64 first = slice * each;
                const i64 count = smaller(length - first, each);
                if (does && count > 0) {
                    const i64 offset = skipped + first;
#ifdef LL
                    // A slot has twice the bytes of a message, in whole lines; a message is one slice.
                    const i64 place = (machine.tile * sizeof(T) + 7) / 8 * 16;
                    char* in = nullptr;
                    if (does & RECEIVES)
                        in = reinterpret_cast<char*>(link[LINK_IN_SLOTS]) + received % block[BLOCK_ROOM_IN] * place;
                    char* out = nullptr;
                    if (does & SENDS)
                        out = reinterpret_cast<char*>(link[LINK_OUT_SLOTS]) + sent % block[BLOCK_ROOM_OUT] * place;
#else
                    T* in = nullptr;
                    if (does & RECEIVES)
                        in = reinterpret_cast<T*>(link[LINK_IN_SLOTS]) + received % block[BLOCK_ROOM_IN] * machine.tile + first;
                    T* out = nullptr;
                    if (does & SENDS)
                        out = reinterpret_cast<T*>(link[LINK_OUT_SLOTS]) + sent % block[BLOCK_ROOM_OUT] * machine.tile + first;
#endif
                    T* own = nullptr;
                    if (does & READS)
                        own = reinterpret_cast<T*>(buffers[step[STEP_SRC_BUFFER]]) + step[STEP_SRC_START] + offset;
                    T* into = nullptr;
                    if (does & WRITES)
                        into = reinterpret_cast<T*>(buffers[step[STEP_DST_BUFFER]]) + step[STEP_DST_START] + offset;
                    T* second = does & (RECEIVES | ACCUMULATES) ? own : nullptr;
                    const i64* more = machine.more + 2 * step[STEP_MORE];
#ifdef LL
                    const T* start = does & RECEIVES ? nullptr : does & ACCUMULATES ? into : own;
                    const Operands<T> operands{start, second, more, step[STEP_MORE_COUNT], buffers, offset, into, nullptr};
                    if (!(in || out))
                        move<T, Op>(operands, count, thread_number(), threads());
                    else if (!move_lines<T, Op>(operands, in, out, count, waiter, received + 1, sent + 1, block[BLOCK_FROM]))
                        block_state.whole[turn % 2] = 0;
#else
                    const T* start = does & RECEIVES ? in : does & ACCUMULATES ? into : own;
                    const Operands<T> operands{start, second, more, step[STEP_MORE_COUNT], buffers, offset, into, out};
                    move<T, Op>(operands, count, thread_number(), threads());
#endif
                }
                meet();
#ifdef LL
                if (!block_state.whole[turn % 2]) return;
                ++turn;
#else
                if (leads && does & SENDS)
                    release_system(reinterpret_cast<u64*>(link[LINK_OUT_HEAD]), sent * slices + slice + 1);
#endif
                if (leads && does & RECEIVES)
                    release_system(reinterpret_cast<u64*>(link[LINK_IN_CREDIT]), received * slices + slice + 1);
            }
            if (leads && step[STEP_SIGNALS]) release_device(flag, round * block[BLOCK_STEPS] + number + 1);
            sent += (does & SENDS) != 0;
            received += (does & RECEIVES) != 0;
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
    const Operands<ELEMENT> operands{first, second, nullptr, 0, nullptr, 0, into, also};
    move<ELEMENT, OPERATOR>(operands, length, static_cast<i64>(block_number()) * threads() + thread_number(),
                            blocks() * threads());
}

// An average is a sum divided by how many were added up; integers round towards zero, as in NCCL.
KERNEL ccctl_divide(ELEMENT* values, i64 length, int by) {
    const i64 step = blocks() * threads();
    for (i64 at = static_cast<i64>(block_number()) * threads() + thread_number(); at < length; at += step)
        values[at] = Narrowed<ELEMENT>::of(widened(values[at]) / by);
}
#endif
