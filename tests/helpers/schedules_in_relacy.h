// Runs one scenario of the interpreter in Relacy. It follows the kernel's text; see weak_memory.py.
//
//     model SCENARIO MUTANT SEARCH ITERATIONS
//
// SCENARIO is a file of numbers, SEARCH is "random", "all" or the number of context switches of a bounded search.
// The last line of the output is "result SCHEDULES OUTCOME: REASON".

static struct Scenario {
    i64 ranks, blocks, threads, tile, tiles, slices, place_bytes, launches, first_launch, impatient, lost, apart;
    std::vector<i64> block_table, steps, more, fifos, room, sizes, shared, given, expected, record, spans;

    static void fill(std::FILE* file, std::vector<i64>& into) {
        i64 count = 0;
        if (std::fscanf(file, "%lld", &count) != 1) std::abort();
        into.resize(count);
        for (i64& each : into)
            if (std::fscanf(file, "%lld", &each) != 1) std::abort();
    }
    explicit Scenario() = default;
    void read(const char* name) {
        std::FILE* file = std::fopen(name, "r");
        if (!file) std::abort();
        std::vector<i64> numbers;
        fill(file, numbers);
        i64* to[] = {&ranks,   &blocks,       &threads,   &tile, &tiles, &slices, &place_bytes,
                     &launches, &first_launch, &impatient, &lost, &apart};
        for (std::size_t at = 0; at < sizeof to / sizeof *to; ++at) *to[at] = numbers.at(at);
        for (auto* table : {&block_table, &steps, &more, &fifos, &room, &sizes, &shared, &given, &expected, &record, &spans})
            fill(file, *table);
        std::fclose(file);
    }
    // Each FIFO has counts and places at both ends if each rank has a host of its own.
    int ends() const { return apart ? 2 : 1; }
    int counts_of_fifos() const { return 2 * ends() * static_cast<int>(room.size()); }
    i64 block(i64 number, int column) const { return block_table[number * BLOCK_COLUMNS + column]; }
} scenario;

template <int N>
struct Meeting : Barrier {
    rl::waitset<N> waiting;
    // Of this round and the next: who comes early to the next round must not add to this one.
    rl::sync_var<N> order[2];
    int members, arrived, round;

    void meet() override {
        rl::context& context = rl::ctx();
        context.sched();
        rl::sync_var<N>& own = order[round & 1];
        own.release(context.threadx_);
        if (++arrived == members) {
            arrived = 0;
            order[++round & 1].iteration_begin();
            waiting.unpark_all(context, $);
        } else {
            waiting.park_current(context, false, false, false, $);
        }
        own.acquire(context.threadx_);
    }
};

static Wire wires[8];
static struct Ends {
    End ends[8];
    int count;
} ends_of_rank[8];

template <int N>
struct Suite : rl::test_suite<Suite<N>, N> {
    Meeting<N> of_block[8], of_rank[8];
    alignas(16) char shared[8][8192];
    alignas(16) char cells[sizeof(Cell) * (Memory::COUNTS + Memory::LINES)];
    std::size_t made;
    i64 links[8 * LINK_COLUMNS], buffers[8 * 3];
    int rank_members[8];

    Cell* make(u64 first) {
        Cell* at = reinterpret_cast<Cell*>(cells) + made++;
        return ::new (static_cast<void*>(at)) Cell(first);
    }
    ~Suite() {
        for (std::size_t at = 0; at < made; ++at) reinterpret_cast<Cell*>(cells)[at].~Cell();
    }

    void before() {
        const Scenario& s = scenario;
        made = 0;
        world.blocks = static_cast<int>(s.blocks), world.threads = static_cast<int>(s.threads);
        world.thread_count = N;
        world.pending = [](rl::thread_info_base* thread) {
            return static_cast<rl::thread_info<N>*>(thread)->acquire_fence_order_;
        };
        world.impatient = s.impatient ? static_cast<int>(rl::ctx().rand(world.blocks, rl::sched_type_user)) : -1;
        if (s.lost) world.impatient = static_cast<int>(s.lost - 1);
        std::memset(rank_members, 0, sizeof rank_members);
        for (int block = 0; block < s.blocks; ++block) {
            const int rank = static_cast<int>(s.block(block, BLOCK_RANK));
            world.device_of_block[block] = rank;
            world.barrier_of_block[block] = &of_block[block];
            world.shared_of_block[block] = shared[block];
            of_block[block].members = static_cast<int>(s.threads);
            rank_members[rank] += static_cast<int>(s.threads);
        }
        for (int rank = 0; rank < s.ranks; ++rank) of_rank[rank].members = rank_members[rank];
        for (auto* each : {of_block, of_rank})
            for (int at = 0; at < 8; ++at) each[at].arrived = each[at].round = 0;
        std::memset(memory.records, 0, sizeof memory.records);
        lay_out();
        lay_out_proxies();
    }

    // Counts and lines are as the launches before the first one have left them.
    void lay_out() {
        const Scenario& s = scenario;
        const int fifos = static_cast<int>(s.room.size());
        memory.count_cells = reinterpret_cast<Cell*>(cells);
        i64 sent[8] = {};
        for (int block = 0; block < s.blocks; ++block)
            if (s.fifos[2 * block] >= 0)
                sent[s.fifos[2 * block]] = s.first_launch * s.tiles * s.block(block, BLOCK_SENDS);
        for (int each = 0; each < s.counts_of_fifos(); ++each)
            make(static_cast<u64>(sent[each / 2 / s.ends()] * s.slices));
        for (int block = 0; block < s.blocks; ++block)
            make(static_cast<u64>(s.first_launch * s.tiles * s.block(block, BLOCK_STEPS)));
        make(0);
        memory.record_cells = static_cast<int>(made);
        for (int block = 0; block < s.blocks; ++block) make(0);
        memory.count_of_counts = memory.record_cells;
        memory.line_cells = memory.count_cells + made;
        i64 slots[16], bytes = 0, lines = 0;
        for (int end = 0; end < s.ends() * fifos; ++end) {
            const int fifo = end / s.ends();
            const i64 size = s.room[fifo] * s.place_bytes;
#ifdef LL
            slots[end] = reinterpret_cast<i64>(memory.lines + lines);
            lines += size / 8;
            for (i64 place = 0; place < s.room[fifo]; ++place) {
                // The last message that used this place.
                i64 last = sent[fifo] - 1;
                while (last >= 0 && last % s.room[fifo] != place) --last;
                for (i64 half = 0; half < s.place_bytes / 8; ++half) make(left_over(last + 1, half));
            }
#else
            slots[end] = reinterpret_cast<i64>(memory.bytes + bytes);
            bytes += (size + 127) / 128 * 128;
#endif
        }
        for (int rank = 0; rank < s.ranks; ++rank) {
            for (int buffer = 0; buffer < 3; ++buffer) {
                buffers[3 * rank + buffer] = reinterpret_cast<i64>(memory.bytes + bytes);
                bytes += (s.sizes[3 * rank + buffer] * 4 + 127) / 128 * 128;
            }
            if (s.shared.empty()) continue;
            for (int buffer = 0; buffer < 2; ++buffer)
                buffers[3 * rank + buffer] = reinterpret_cast<i64>(memory.bytes + bytes + 4 * s.shared[3 * rank + buffer]);
            bytes += (s.shared[3 * rank + 2] * 4 + 127) / 128 * 128;
        }
        memory.count_of_lines = static_cast<int>(lines), memory.count_of_bytes = static_cast<int>(bytes);
        if (lines > Memory::LINES || bytes > Memory::BYTES || memory.record_cells + s.blocks > Memory::COUNTS) std::abort();
        std::memset(memory.known, 0, sizeof(Known) * bytes / 4);
        std::memset(memory.bytes, 0x6b, bytes);
        for (int block = 0; block < s.blocks; ++block) {
            i64* link = links + block * LINK_COLUMNS;
            const i64 sends = s.fifos[2 * block], receives = s.fifos[2 * block + 1];
            const i64 out = sends * s.ends(), in = receives * s.ends() + s.ends() - 1;
            if (sends >= 0) {
                link[LINK_OUT_SLOTS] = slots[out];
                link[LINK_OUT_HEAD] = reinterpret_cast<i64>(memory.counts + 2 * out);
                link[LINK_OUT_CREDIT] = reinterpret_cast<i64>(memory.counts + 2 * out + 1);
            }
            if (receives >= 0) {
                link[LINK_IN_SLOTS] = slots[in];
                link[LINK_IN_HEAD] = reinterpret_cast<i64>(memory.counts + 2 * in);
                link[LINK_IN_CREDIT] = reinterpret_cast<i64>(memory.counts + 2 * in + 1);
            }
        }
    }

    void lay_out_proxies() {
        const Scenario& s = scenario;
        if (!s.apart) return;
        for (Wire& wire : wires) wire.sent = wire.posted = 0;
        for (Ends& ends : ends_of_rank) ends.count = 0;
        const i64 *spans[8], *at = s.spans.data();
        for (std::size_t fifo = 0; fifo < s.room.size(); ++fifo) spans[fifo] = at, at += 1 + *at;
        for (int block = 0; block < s.blocks; ++block) {
            const i64* link = links + block * LINK_COLUMNS;
            for (const bool outgoing : {true, false}) {
                const i64 fifo = s.fifos[2 * block + !outgoing];
                if (fifo < 0) continue;
                const i64 count = *spans[fifo] / 2, before = s.first_launch * count;
                Ends& ends = ends_of_rank[world.device_of_block[block]];
                ends.ends[ends.count++] = {
                    &wires[fifo], outgoing,
                    {reinterpret_cast<u64*>(link[outgoing ? LINK_OUT_HEAD : LINK_IN_HEAD]),
                     reinterpret_cast<u64*>(link[outgoing ? LINK_OUT_CREDIT : LINK_IN_CREDIT])},
                    reinterpret_cast<char*>(link[outgoing ? LINK_OUT_SLOTS : LINK_IN_SLOTS]),
                    s.place_bytes, s.room[fifo], s.slices, before, before, before, spans[fifo] + 1, count};
            }
        }
    }

    // As Proxy._run, from each launch to the next.
    void carry(Ends& of) {
        const Scenario& s = scenario;
        for (i64 goal = s.first_launch + 1; goal <= s.first_launch + s.launches; ++goal) {
            bool through = false;
            while (!through) {
                bool moved = false;
                through = true;
                for (int at = 0; at < of.count; ++at) moved = of.ends[at].move(goal) || moved;
                for (int at = 0; at < of.count; ++at)
                    through = through && of.ends[at].through >= goal * of.ends[at].span_count;
                if (!moved) rest();
            }
        }
    }

    // Between launches the host gives a rank new inputs, and shared memory holds anything.
    void prepare(int rank, i64 launch) {
        const Scenario& s = scenario;
        i64 at = 0;
        for (int before = 0; before < rank; ++before) at += s.sizes[3 * before];
        int* input = reinterpret_cast<int*>(buffers[3 * rank]);
        for (i64 one = 0; one < s.sizes[3 * rank]; ++one)
            store_one(input + one, static_cast<int>(s.given[at + one] * (1 + 2 * launch)));
        for (int block = 0; block < s.blocks; ++block)
            if (world.device_of_block[block] == rank) std::memset(shared[block], (launch + (world.impatient >= 0)) % 2 ? 0x25 : 0, sizeof shared[block]);
    }
    void compare(int rank, i64 launch) {
        const Scenario& s = scenario;
        i64 at = 0;
        for (int before = 0; before < rank; ++before) at += s.sizes[3 * before + 1];
        const int* output = reinterpret_cast<const int*>(buffers[3 * rank + 1]);
        for (i64 one = 0; one < s.sizes[3 * rank + 1]; ++one)
            if (load_one(output + one) != s.expected[at + one] * (1 + 2 * launch)) broken("wrong result");
    }

    void thread(unsigned index) {
        const Scenario& s = scenario;
        if (index >= s.blocks * s.threads) {
            const i64 proxy = index - s.blocks * s.threads;
            if (s.apart && proxy < s.ranks) carry(ends_of_rank[proxy]);
            return;
        }
        const Place own = place_of(static_cast<int>(index));
        const int rank = own.device;
        bool first = own.thread == 0;
        for (int block = 0; block < own.block; ++block) first = first && world.device_of_block[block] != rank;
        const int flags = s.counts_of_fifos(), stop = flags + static_cast<int>(s.blocks);
        for (i64 launch = 0; launch < s.launches; ++launch) {
            if (first) prepare(rank, launch);
            of_rank[rank].meet();
            interpret<int, Sum>(Machine{s.block_table.data(), s.steps.data(), s.more.data(), buffers, links,
                                        memory.counts + flags, memory.records, memory.counts + stop,
                                        s.first_launch + launch, s.tile, s.tiles, s.slices,
                                        static_cast<i64>(LIMIT_NS)});
            // The end of a kernel orders all of it before what the host does next.
            of_rank[rank].meet();
            if (memory.count_cells[stop].value.debug_value()) return;
            if (first) compare(rank, launch);
        }
    }

    void after() {
        const Scenario& s = scenario;
        const int flags = s.counts_of_fifos(), stop = flags + static_cast<int>(s.blocks);
        const bool stopped = memory.count_cells[stop].value.debug_value() != 0;
        if (s.lost && !stopped) broken("nobody gave up");
        if (!stopped) return;
        for (int block = 0; block < s.blocks; ++block) {
            const bool ran_out = memory.count_cells[memory.record_cells + block].value.debug_value() == RAN_OUT;
            if (ran_out && block != world.impatient) broken("a record of a time that did not run out");
            if (!ran_out && block == world.impatient) broken("a stop without a record of whose time ran out");
        }
        if (world.impatient < 0) broken("a stop although nobody's time ran out");
        for (std::size_t at = 0; s.lost && at + 1 < s.record.size(); at += 2)
            if (memory.records[(s.lost - 1) * RECORD_COLUMNS + s.record[at]] != s.record[at + 1])
                broken("a wrong record of who waits");
    }
};

// Relacy's `simulate` compiles each of its three searches for each number of threads: only these two are made.
template <int N, template <rl::thread_id_t> class Search>
static void explore(rl::test_params& params, std::ostringstream& said) {
    rl::run_test<Suite<N>, Search<N>>(params, said, false);
}

int main(int count, char** words) {
    if (count != 5) return 2;
    scenario.read(words[1]);
    mutant = std::atoi(words[2]);
    std::ostringstream said;
    rl::test_params params;
    params.iteration_count = std::strtoull(words[4], nullptr, 10);
    params.execution_depth_limit = 20000;
    params.output_stream = params.progress_stream = &said;
    // Then Relacy neither keeps a history nor runs the last schedule again.
    params.output_history = true;
    params.context_bound = static_cast<unsigned>(std::atoi(words[3]));
    const bool random = std::string(words[3]) == "random";
    // Threads that a scenario does not need end at once.
    if (scenario.blocks * scenario.threads + (scenario.apart ? scenario.ranks : 0) > (random ? 8 : 2)) return 2;
    random ? explore<8, rl::random_scheduler>(params, said) : explore<2, rl::context_bound_scheduler>(params, said);
    std::printf("result %llu %s: %s\n", static_cast<unsigned long long>(params.stop_iteration),
                rl::test_result_str(params.test_result), reason);
    return params.test_result == rl::test_result_success ? 0 : 1;
}
