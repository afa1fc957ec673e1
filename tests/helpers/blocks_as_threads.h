// The interpreter's primitives on threads of the host: a thread for each thread of each block.
// Headers of C alone: those of C++ would take half of the time of compiling a kernel.
#include <pthread.h>
#include <sched.h>
#include <time.h>

#include <cstdlib>
#include <cstring>

#ifndef CCCTL_RELEASE
#define CCCTL_RELEASE __ATOMIC_RELEASE
#endif
#define DEVICE inline
#define APART inline
#define KERNEL extern "C" void

struct alignas(16) Bits {
    unsigned word[4];
};

struct Block {
    pthread_barrier_t barrier;
    alignas(16) char shared[8192];
};
struct Here {
    Block* block;
    int number, thread, threads;
    i64 blocks;
};
static thread_local Here here;

#define SHARED(type, name) type& name = *reinterpret_cast<type*>(here.block->shared)

inline int block_number() { return here.number; }
inline int thread_number() { return here.thread; }
inline int threads() { return here.threads; }
inline i64 blocks() { return here.blocks; }
inline void meet() {
    if (here.threads > 1) pthread_barrier_wait(&here.block->barrier);
}
inline void rest() { sched_yield(); }
#define POLLS 256
inline u64 now_ns() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ull + now.tv_nsec;
}
inline u64 acquire_system(const u64* at) { return __atomic_load_n(at, __ATOMIC_ACQUIRE); }
inline u64 acquire_device(const u64* at) { return __atomic_load_n(at, __ATOMIC_ACQUIRE); }
inline void release_system(u64* at, u64 value) { __atomic_store_n(at, value, CCCTL_RELEASE); }
inline void release_device(u64* at, u64 value) { __atomic_store_n(at, value, CCCTL_RELEASE); }
inline Bits load_bits(const void* at) {
    Bits bits;
    std::memcpy(&bits, at, sizeof bits);
    return bits;
}
inline void store_bits(void* at, const Bits& bits) { std::memcpy(at, &bits, sizeof bits); }
inline u64 load_word(const void* at) {
    u64 word;
    std::memcpy(&word, at, sizeof word);
    return word;
}
inline void store_word(void* at, u64 word) { std::memcpy(at, &word, sizeof word); }
inline void store_line(void* at, u64 data, unsigned flag) {
    u64* half = static_cast<u64*>(at);
    const u64 above = static_cast<u64>(flag) << 32;
    __atomic_store_n(half, above | (data & 0xffffffffu), __ATOMIC_RELAXED);
    __atomic_store_n(half + 1, above | data >> 32, __ATOMIC_RELAXED);
}
inline bool load_line(const void* at, unsigned flag, u64& data) {
    const u64* half = static_cast<const u64*>(at);
    const u64 low = __atomic_load_n(half, __ATOMIC_RELAXED), high = __atomic_load_n(half + 1, __ATOMIC_RELAXED);
    data = (high & 0xffffffffu) << 32 | (low & 0xffffffffu);
    return low >> 32 == flag && high >> 32 == flag;
}
// No store of the host fills a line of LL128 at once: one thread has the whole line, and orders data and flag.
#define LANES 1
#define WORDS 15
inline bool has_flag() { return false; }
inline bool all_of_line(bool here) { return here; }
inline void store_part(char* line, const u64 (&data)[WORDS], u64 flag) {
    u64* words = reinterpret_cast<u64*>(line);
    for (int each = 0; each < WORDS; ++each) __atomic_store_n(words + each, data[each], __ATOMIC_RELAXED);
    __atomic_store_n(words + WORDS, flag, CCCTL_RELEASE);
}
inline bool load_part(const char* line, u64 flag, u64 (&data)[WORDS]) {
    const u64* words = reinterpret_cast<const u64*>(line);
    if (__atomic_load_n(words + WORDS, __ATOMIC_ACQUIRE) != flag) return false;
    for (int each = 0; each < WORDS; ++each) data[each] = __atomic_load_n(words + each, __ATOMIC_RELAXED);
    return true;
}
template <class T>
inline T load_one(const T* at) {
    return *at;
}
template <class T>
inline void store_one(T* at, const T& value) {
    *at = value;
}
inline float float_of_bits(unsigned bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}
inline unsigned bits_of_float(float value) {
    unsigned bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}
inline float half_to_float(unsigned short half) {
    unsigned sign = (half & 0x8000u) << 16, rest = half & 0x7fffu;
    if (rest >= 0x7c00u) return float_of_bits(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
    // Scaling by a power of two turns the short exponent, subnormal ones too, into the long one.
    float scaled = float_of_bits(rest << 13) * float_of_bits(0x77800000u);
    return float_of_bits(sign | bits_of_float(scaled));
}
inline unsigned short float_to_half(float value) {
    unsigned bits = bits_of_float(value), sign = bits >> 16 & 0x8000u;
    float size = float_of_bits(bits & 0x7fffffffu);
    if (size != size) return sign | 0x7e00u;
    if (size >= 65520.0f) return sign | 0x7c00u;
    if (size < 6.103515625e-05f) return sign | (bits_of_float(size + 0.5f) - bits_of_float(0.5f));
    unsigned whole = bits_of_float(size);
    whole += 0xfffu + (whole >> 13 & 1u);
    return sign | ((whole >> 13) - (112u << 10));
}

#ifdef MULTIMEM
// A switch: addresses from `first` on stand for the memory of all members of a group.
struct Reach {
    u64 first, bytes;
    i64 members;
    u64 memory[64];
};
static Reach reaches[64];
static i64 reach_count = 0;
extern "C" void reach(i64 count, const Reach* all) {
    reach_count = count;
    for (i64 each = 0; each < count; ++each) reaches[each] = all[each];
}
// Call `work` with the memory of each member.
template <class Work>
inline void at_members(const void* at, u64 bytes, Work work) {
    const u64 address = reinterpret_cast<u64>(at);
    if (address % bytes) abort();
    for (i64 each = 0; each < reach_count; ++each) {
        const Reach& one = reaches[each];
        if (address < one.first || address + bytes > one.first + one.bytes) continue;
        for (i64 member = 0; member < one.members; ++member)
            work(reinterpret_cast<char*>(one.memory[member] + (address - one.first)));
        return;
    }
    abort();
}
inline float summand(float value) { return value; }
inline unsigned summand(int value) { return static_cast<unsigned>(value); }
inline float summand(Half value) { return half_to_float(value.bits); }
inline float summand(Bfloat value) { return float_of_bits(static_cast<unsigned>(value.bits) << 16); }
inline void round_to(float& value, float sum) { value = sum; }
inline void round_to(int& value, unsigned sum) { value = static_cast<int>(sum); }
inline void round_to(Half& value, float sum) { value.bits = float_to_half(sum); }
inline void round_to(Bfloat& value, float sum) {
    const unsigned bits = bits_of_float(sum);
    value.bits = static_cast<unsigned short>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
inline void order_aliases() {}
// The sum has the precision of float, and is rounded once.
template <class T, class Unit>
inline Unit summed(const T* at) {
    constexpr int COUNT = sizeof(Unit) / sizeof(T);
    decltype(summand(T{})) sums[COUNT] = {};
    at_members(at, sizeof(Unit), [&](const char* memory) {
        T values[COUNT];
        std::memcpy(values, memory, sizeof values);
        for (int each = 0; each < COUNT; ++each) sums[each] += summand(values[each]);
    });
    T results[COUNT];
    for (int each = 0; each < COUNT; ++each) round_to(results[each], sums[each]);
    Unit unit;
    std::memcpy(&unit, results, sizeof unit);
    return unit;
}
template <class T>
inline Bits sum_of_group(const T* at) {
    return summed<T, Bits>(at);
}
template <class T>
inline unsigned word_sum_of_group(const T* at) {
    return summed<T, unsigned>(at);
}
inline void store_at_group(void* at, const Bits& bits) {
    at_members(at, sizeof bits, [&](char* memory) { std::memcpy(memory, &bits, sizeof bits); });
}
inline void store_word_at_group(void* at, unsigned word) {
    at_members(at, sizeof word, [&](char* memory) { std::memcpy(memory, &word, sizeof word); });
}
#endif

template <class Work>
struct Running {
    Here here;
    const Work* work;
    pthread_t thread;
};

template <class Work>
void* run(void* given) {
    auto* mine = static_cast<Running<Work>*>(given);
    here = mine->here;
    (*mine->work)();
    return nullptr;
}

// Runs `work` once on each thread of each block, all at the same time.
template <class Work>
inline void launch(i64 blocks, int threads, Work work) {
    auto* all = new Block[blocks]();
    auto* running = new Running<Work>[blocks * threads];
    for (i64 number = 0; number < blocks; ++number) {
        pthread_barrier_init(&all[number].barrier, nullptr, threads);
        for (int thread = 0; thread < threads; ++thread) {
            auto* each = running + number * threads + thread;
            each->here = Here{all + number, static_cast<int>(number), thread, threads, blocks};
            each->work = &work;
            if (pthread_create(&each->thread, nullptr, run<Work>, each)) std::abort();
        }
    }
    for (i64 each = 0; each < blocks * threads; ++each) pthread_join(running[each].thread, nullptr);
    delete[] running;
    delete[] all;
}
