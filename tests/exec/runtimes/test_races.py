"""Vector clocks against the transitive closure of what threads hand on."""

from hypothesis import given, strategies as st

from exec.runtimes.races import SharedCells, VectorClocks

EVENTS = st.lists(
    st.tuples(st.sampled_from(("read", "write", "send", "receive")), st.integers(0, 2), st.integers(0, 1)),
    max_size=30,
)


@given(EVENTS)
def test_races_are_the_unordered_conflicts(events):
    clocks = VectorClocks(3)
    cells = SharedCells(clocks)
    sent, before, expected = [], [set() for _ in range(3)], set()
    handed, accesses = [], []
    for number, (what, thread, cell) in enumerate(events):
        if what == "send":
            sent.append(clocks.release(thread))
            handed.append(set(before[thread]))
        elif what == "receive":
            if sent:
                clocks.acquire(thread, sent[-1])
                before[thread] |= handed[-1]
        else:
            for other, (does, where, at) in accesses:
                if at == cell and "write" in (does, what) and where != thread and other not in before[thread]:
                    expected.add((cell, other, number))
            accesses.append((number, (what, thread, cell)))
            before[thread].add(number)
            (cells.read if what == "read" else cells.write)([cell], thread, number)
    found = {(cell, one, two) for cell, one, _, two, _ in cells.racing}
    # An access that races with several is told with the last write and the reads after it only.
    assert found <= expected
    assert bool(found) == bool(expected)


def test_without_order_two_places_of_one_thread_race_until_it_releases():
    clocks = VectorClocks(1)
    cells = SharedCells(clocks, in_order=False)
    cells.write([0], 0, "copy")
    cells.read([0], 0, "put")
    assert [(one, two) for _, one, _, two, _ in cells.racing] == [("copy", "put")]
    clocks.release(0)
    cells.write([0], 0, "next")
    assert len(cells.racing) == 1
