// The interpreter's primitives on Relacy: every order in which threads may run and every value that a load may
// return by the memory model, for a few threadblocks of a few threads.
//
// Relacy follows the counts and the lines as C++ atomics. On top of its clocks this header checks three more
// rules: weak accesses that no order separates are a data race, as are accesses whose scopes do not hold both
// threads; and a line is overwritten only after its reader has surely read it (Relacy executes no load after a
// later store, a GPU does). Orders and scopes are those of the PTX in interpreter.cu: `accesses` is made from it.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <vector>

#include <relacy/relacy.hpp>
#undef new
#undef delete
#undef malloc
#undef calloc
#undef realloc
#undef free
#undef assert
#undef errno

#define DEVICE inline
#define APART inline
#define KERNEL static void
// Each failed poll looks at the clock, so that a schedule stays short.
#define POLLS 1

struct alignas(16) Bits {
    unsigned word[4];
};

// The number of the mutant that runs; 0 is the real protocol.
static int mutant = 0;

enum Order { WEAK, RELAXED, ACQUIRE, RELEASE };
enum Scope { BLOCK, DEVICE_WIDE, SYSTEM };
struct Access {
    Order order;
    Scope scope;
};

// ---- who runs: `block` and `thread` within it; each rank has a GPU of its own

struct Place {
    int block, thread, device;
};
struct Barrier {
    virtual void meet() = 0;
};
static struct World {
    int blocks, threads;
    int device_of_block[8];
    Barrier* barrier_of_block[8];
    char* shared_of_block[8];
    // The clock that collects what a thread's last relaxed load could acquire.
    rl::timestamp_t* (*pending)(rl::thread_info_base*);
    int thread_count;
    // The block whose time runs out at some poll; -1: none.
    int impatient;
} world;

inline rl::thread_info_base& self() { return *rl::ctx().threadx_; }
inline Place place_of(int number) {
    const int block = number / world.threads;
    return {block, number % world.threads, block < world.blocks ? world.device_of_block[block] : -1};
}
inline Place here() { return place_of(static_cast<int>(self().index_)); }

#define SHARED(type, name) type& name = *reinterpret_cast<type*>(world.shared_of_block[here().block])
inline int block_number() { return here().block; }
inline int thread_number() { return here().thread; }
inline int threads() { return world.threads; }
inline i64 blocks() { return world.blocks; }
inline void meet() { world.barrier_of_block[here().block]->meet(); }
inline void rest() { rl::ctx().yield(1, $); }
// Times are long after 0, as a GPU's are.
constexpr u64 LIMIT_NS = 1000, NOON_NS = 1000000;
inline u64 now_ns() {
    return NOON_NS + (here().block == world.impatient && rl::ctx().rand(6, rl::sched_type_user) == 0 ? LIMIT_NS : 0);
}

// ---- what is known of each place in memory

static const char* reason = "-";
inline void broken(const char* why) {
    reason = why;
    rl::ctx().fail_test(why, rl::test_result_user_assert_failed, $);
}

struct Event {
    bool was;
    Access access;
    rl::timestamp_t time;
    u64 value;
};
inline bool within(const Place& one, const Place& other, Scope scope) {
    return scope == SYSTEM || (one.device == other.device && (scope == DEVICE_WIDE || one.block == other.block));
}
// Whether two accesses are strong and each one's scope holds both threads.
inline bool morally_strong(const Event& one, int by_one, Access other, int by_other) {
    if (one.access.order == WEAK || other.order == WEAK) return false;
    const Place a = place_of(by_one), b = place_of(by_other);
    return within(a, b, one.access.scope) && within(a, b, other.scope);
}
inline bool happened_before(const Event& event, int by) {
    return !event.was || self().acq_rel_order_[by] >= event.time;
}

struct Known {
    static constexpr int MOST = 8;
    int writer;
    Event write, reads[MOST], taken[MOST];

    void note_read(Access access) {
        const int own = static_cast<int>(self().index_);
        if (writer != own && !happened_before(write, writer) && !morally_strong(write, writer, access, own))
            broken("data race: a load beside a store");
        reads[own] = {true, access, ++self().own_acq_rel_order_, 0};
    }
    void note_write(Access access, u64 value) {
        const int own = static_cast<int>(self().index_);
        if (writer != own && !happened_before(write, writer) && !morally_strong(write, writer, access, own))
            broken("data race: two stores");
        for (int other = 0; other < world.thread_count; ++other) {
            if (other == own) continue;
            if (!happened_before(reads[other], other) && !morally_strong(reads[other], other, access, own))
                broken("data race: a store beside a load");
            if (!happened_before(taken[other], other)) broken("overwritten before it was surely read");
        }
        writer = own;
        write = {true, access, ++self().own_acq_rel_order_, value};
    }
    void take() {
        const int own = static_cast<int>(self().index_);
        taken[own] = {true, {}, ++self().own_acq_rel_order_, 0};
    }
};

// A count, or half of a line.
struct Cell {
    rl::atomic<u64> value;
    Known known;
    // Recent stores, to tell which one a load returned.
    static constexpr int RECENT = 6;
    Event recent[RECENT];
    int recent_by[RECENT], stores;

    explicit Cell(u64 first) : stores(0) {
        std::memset(&known, 0, sizeof known);
        std::memset(recent, 0, sizeof recent);
        value.store(first, rl::mo_relaxed, $);
    }
    u64 load(Access access) {
        rl::thread_info_base& thread = self();
        rl::timestamp_t* pending = world.pending(&thread);
        const int count = world.thread_count;
        for (int other = 0; other < count; ++other) pending[other] = 0;
        const u64 seen = value.load(rl::mo_relaxed, $);
        const int own = static_cast<int>(thread.index_);
        if (access.order == ACQUIRE) {
            bool strong = true;
            for (int at = 0; at < RECENT; ++at)
                if (recent[at].was && recent[at].value == seen && recent_by[at] != own &&
                    !morally_strong(recent[at], recent_by[at], access, own))
                    strong = false;
            for (int other = 0; strong && other < count; ++other)
                if (pending[other] > thread.acq_rel_order_[other]) thread.acq_rel_order_[other] = pending[other];
        }
        known.note_read(access);
        return seen;
    }
    void store(Access access, u64 next) {
        value.store(next, access.order == RELEASE ? rl::mo_release : rl::mo_relaxed, $);
        known.note_write(access, next);
        recent[stores % RECENT] = known.write;
        recent_by[stores++ % RECENT] = static_cast<int>(self().index_);
    }
};

// The memory of the model: counts and lines are cells, all else is bytes whose 4-byte words are followed.
static struct Memory {
    static constexpr int COUNTS = 64, LINES = 1024, BYTES = 16384;
    alignas(128) u64 counts[COUNTS], lines[LINES];
    alignas(128) char bytes[BYTES];
    alignas(128) i64 records[8 * RECORD_COLUMNS];
    Cell *count_cells, *line_cells;
    int count_of_counts, count_of_lines, count_of_bytes, record_cells;
    Known known[BYTES / 4];

    Cell* cell(const void* at) {
        const char* byte = static_cast<const char*>(at);
        i64 found = (byte - reinterpret_cast<char*>(counts)) / 8;
        if (byte >= reinterpret_cast<char*>(counts) && found < count_of_counts) return count_cells + found;
        found = (byte - reinterpret_cast<char*>(lines)) / 8;
        if (byte >= reinterpret_cast<char*>(lines) && found < count_of_lines) return line_cells + found;
        const i64 record = (byte - reinterpret_cast<char*>(records)) / 8;
        if (byte >= reinterpret_cast<char*>(records) && record < 8 * RECORD_COLUMNS)
            return count_cells + record_cells + record / RECORD_COLUMNS;
        broken("no count or line is at this address");
        return nullptr;
    }
    Known* word(const void* at, int size) {
        const i64 first = static_cast<const char*>(at) - bytes;
        if (first < 0 || first + size > count_of_bytes) broken("no data is at this address");
        return known + first / 4;
    }
    void read(void* to, const void* at, int size, Access access) {
        Known* found = word(at, size);
        for (int each = 0; each < size / 4; ++each) found[each].note_read(access);
        std::memcpy(to, at, size);
    }
    void write(void* at, const void* from, int size, Access access) {
        Known* found = word(at, size);
        for (int each = 0; each < size / 4; ++each) found[each].note_write(access, 0);
        std::memcpy(at, from, size);
    }
} memory;

// ---- the primitives

enum Primitive {
    ACQUIRE_SYSTEM,
    RELEASE_SYSTEM,
    ACQUIRE_DEVICE,
    RELEASE_DEVICE,
    LOAD_BITS,
    STORE_BITS,
    LOAD_WORD,
    STORE_WORD,
    STORE_LINE,
    LOAD_PART,
    STORE_PART,
    LOAD_ONE,
    STORE_ONE
};
Access access_of(Primitive primitive);

inline u64 acquire_system(const u64* at) { return memory.cell(at)->load(access_of(ACQUIRE_SYSTEM)); }
inline u64 acquire_device(const u64* at) { return memory.cell(at)->load(access_of(ACQUIRE_DEVICE)); }
inline void release_system(u64* at, u64 value) { memory.cell(at)->store(access_of(RELEASE_SYSTEM), value); }
inline void release_device(u64* at, u64 value) { memory.cell(at)->store(access_of(RELEASE_DEVICE), value); }
// Only mutants call these two.
inline u64 relaxed_system(const u64* at) { return memory.cell(at)->load({RELAXED, SYSTEM}); }
inline void relaxed_system(u64* at, u64 value) { memory.cell(at)->store({RELAXED, SYSTEM}, value); }
inline Bits load_bits(const void* at) {
    Bits bits;
    memory.read(&bits, at, sizeof bits, access_of(LOAD_BITS));
    return bits;
}
inline void store_bits(void* at, const Bits& bits) { memory.write(at, &bits, sizeof bits, access_of(STORE_BITS)); }
inline u64 load_word(const void* at) {
    u64 word;
    memory.read(&word, at, sizeof word, access_of(LOAD_WORD));
    return word;
}
inline void store_word(void* at, u64 word) { memory.write(at, &word, sizeof word, access_of(STORE_WORD)); }
inline void store_line(void* at, u64 data, unsigned flag) {
    Cell* half = memory.cell(at);
    const u64 above = static_cast<u64>(flag) << 32;
    // The order of the two halves is not defined.
    const unsigned first = rl::ctx().rand(2, rl::sched_type_user);
    for (unsigned each = 0; each < 2; ++each) {
        const unsigned number = each ^ first;
        half[number].store(access_of(STORE_LINE), above | (number ? data >> 32 : data & 0xffffffffu));
    }
}
inline bool load_line(const void* at, unsigned flag, u64& data) {
    Cell* half = memory.cell(at);
    const u64 low = half[0].load(access_of(LOAD_BITS)), high = half[1].load(access_of(LOAD_BITS));
    data = (high & 0xffffffffu) << 32 | (low & 0xffffffffu);
    const bool whole = low >> 32 == flag && high >> 32 == flag;
    if (whole) half[0].known.take(), half[1].known.take();
    return whole;
}
// A line of LL128 is one cell, as it arrives whole: its flag stands for the data that was stored with it.
#define LANES 1
#define WORDS 15
static struct Contents {
    u64 flag, data[WORDS];
} contents[Memory::LINES / 16][4];
inline bool has_flag() { return false; }
inline bool all_of_line(bool here) { return here; }
inline Contents& contents_of(const char* line, u64 flag) {
    return contents[(line - reinterpret_cast<char*>(memory.lines)) / 128 % (Memory::LINES / 16)][flag % 4];
}
inline void store_part(char* line, const u64 (&data)[WORDS], u64 flag) {
    Contents& kept = contents_of(line, flag);
    kept.flag = flag;
    std::memcpy(kept.data, data, sizeof data);
    memory.cell(line + 120)->store(access_of(STORE_PART), flag);
}
inline bool load_part(const char* line, u64 flag, u64 (&data)[WORDS]) {
    Cell* cell = memory.cell(line + 120);
    const u64 seen = cell->load(access_of(LOAD_PART));
    const Contents& kept = contents_of(line, seen);
    std::memset(data, 0x5a, sizeof data);
    if (kept.flag == seen) std::memcpy(data, kept.data, sizeof data);
    if (seen != flag) return false;
    cell->known.take();
    return true;
}
// A word of a line as the message of this number has left it; 0: no message has used the line.
inline u64 left_over(i64 message, i64) {
#ifdef LL128
    return static_cast<u64>(message);
#else
    return message ? static_cast<u64>(message) << 32 | 0x5a5a5a5au : 0;
#endif
}
template <class T>
inline T load_one(const T* at) {
    T value;
    memory.read(&value, at, sizeof value, access_of(LOAD_ONE));
    return value;
}
template <class T>
inline void store_one(T* at, const T& value) {
    memory.write(at, &value, sizeof value, access_of(STORE_ONE));
}
inline float float_of_bits(unsigned) { return 0; }
inline unsigned bits_of_float(float) { return 0; }
inline float half_to_float(unsigned short) { return 0; }
inline unsigned short float_to_half(float) { return 0; }
