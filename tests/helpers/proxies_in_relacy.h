// Proxies between hosts in Relacy: exec/cuda/kernel/proxies.py, statement by statement, and the messages of MPI.
//
// A proxy is a thread of a host. It reads and writes counts in order, as x86 does, and data without one. MPI
// promises no more than this: the memory of a message is read between its Isend and the end of its Test, and
// written between its Irecv and the end of its Test; the receiver sees what the sender did before Isend.

struct Message {
    static constexpr int MOST_BYTES = 256;
    bool is_eager, was_read;
    char content[MOST_BYTES];
    rl::timestamp_t known[Known::MOST];
};

// All messages of a FIFO, and how many sends and receives are posted. Relacy's threads cannot free memory.
struct Wire {
    static constexpr int MOST = 64;
    Message messages[MOST];
    i64 sent, posted;
};

struct End {
    Wire* wire;
    bool outgoing;
    u64* counts[2];
    char* places;
    i64 place_bytes, room_places, slices, begun, through, before;
    const i64* spans;
    i64 span_count;

    char* view(i64 number, i64& bytes) const {
        const i64 span = number % span_count;
        char* place = places + number / slices % room_places * place_bytes;
        bytes = spans[2 * span + 1];
        return place + spans[2 * span];
    }
    void read(i64 number) {
        i64 bytes;
        const char* from = view(number, bytes);
        Message& message = wire->messages[number - before];
        if (bytes > Message::MOST_BYTES) std::abort();
        if (bytes) memory.read(message.content, from, static_cast<int>(bytes), {WEAK, SYSTEM});
        message.was_read = true;
    }
    void start(i64 number) {
        if (!outgoing) {
            ++wire->posted;
            return;
        }
        if (wire->sent == Wire::MOST) std::abort();
        Message& message = wire->messages[wire->sent++];
        message.is_eager = rl::ctx().rand(2, rl::sched_type_user) == 0, message.was_read = false;
        rl::thread_info_base& thread = self();
        ++thread.own_acq_rel_order_;
        for (int other = 0; other < world.thread_count; ++other) message.known[other] = thread.acq_rel_order_[other];
        if (message.is_eager) read(number);
    }
    bool test(i64 number) {
        const i64 at = number - before;
        if (outgoing) {
            if (wire->messages[at].was_read) return true;
            if (wire->posted <= at) return false;
            read(number);
            return true;
        }
        if (at >= wire->sent || !wire->messages[at].was_read) return false;
        Message& message = wire->messages[at];
        rl::thread_info_base& thread = self();
        for (int other = 0; other < world.thread_count; ++other)
            if (message.known[other] > thread.acq_rel_order_[other]) thread.acq_rel_order_[other] = message.known[other];
        i64 bytes;
        char* to = view(number, bytes);
        if (bytes) memory.write(to, message.content, static_cast<int>(bytes), {WEAK, SYSTEM});
        return true;
    }
    // As Proxy._move.
    bool move(i64 goal) {
        const i64 moved = begun + through;
        i64 last;
        if (outgoing) {
            last = static_cast<i64>(acquire_host(counts[0]));
        } else {
            last = static_cast<i64>(acquire_host(counts[1])) + room_places * slices;
            if (last > goal * span_count) last = goal * span_count;
        }
        while (begun < last) {
            start(begun);
            ++begun;
        }
        i64 complete = through;
        while (complete < begun && test(complete)) ++complete;
        if (complete > through) {
            through = complete;
            release_host(counts[outgoing ? 1 : 0], static_cast<u64>(through));
        }
        return begun + through > moved;
    }

    static u64 acquire_host(const u64* at) { return memory.cell(at)->load({ACQUIRE, SYSTEM}); }
    static void release_host(u64* at, u64 value) { memory.cell(at)->store({RELEASE, SYSTEM}, value); }
};
