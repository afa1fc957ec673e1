"""The graph of events: orders agree with a search of all paths."""

import numpy as np
from hypothesis import given, strategies as st

from synth.mscclpp.event_graph import EventGraph, weakly


@st.composite
def graphs(draw):
    """A graph of up to 200 events, each of which follows up to three earlier ones, some weakly."""
    graph, rows = EventGraph(), draw(st.lists(st.lists(st.integers(0, 999), max_size=3), max_size=200))
    for event, row in enumerate(rows):
        chosen = {one % event: one % 2 for one in row} if event else {}
        graph.add([weakly(one) if weak else one for one, weak in chosen.items()])
    return graph


def every_order(graph, *, data):
    """Return the set of all events before each event."""
    before = []
    for follows in graph.follows:
        strong = [one if one >= 0 else ~one for one in follows if one >= 0 or not data]
        before.append(set(strong).union(*(before[one] for one in strong)))
    return before


@given(graphs())
def test_all_pairs_are_ordered_as_paths_say(graph):
    events = np.arange(len(graph.follows))
    earlier, later = (one.ravel() for one in np.meshgrid(events, events))
    for data in (False, True):
        before = every_order(graph, data=data)
        wanted = [one in before[two] for one, two in zip(earlier.tolist(), later.tolist(), strict=True)]
        assert graph.orders(earlier, later, data=data).tolist() == wanted
        if not data:
            assert [
                graph.precedes(*pair) for pair in zip(earlier.tolist(), later.tolist(), strict=True)
            ] == wanted


def test_places_order_events_without_a_path():
    graph = EventGraph()
    block, later_turn, elsewhere = graph.new_place(0, 1), graph.new_place(0, 2), graph.new_place(1, 2)
    first = graph.add((), block, thread=0)
    apart = graph.add((), block, thread=1)
    same_thread = graph.add((), block, thread=0)
    after_nop = graph.add((), block, base=same_thread)
    of_rank, of_other = graph.add((), later_turn), graph.add((), elsewhere)
    pairs = {
        (first, apart): False,
        (first, same_thread): True,
        (apart, after_nop): True,
        (apart, of_rank): True,
        (first, of_other): False,
    }
    earlier, later = np.array(list(pairs)).T
    assert graph.orders(earlier, later, data=True).tolist() == list(pairs.values())
    assert [graph.surely(*pair) for pair in pairs] == list(pairs.values())
