"""Changes to what a schedule says: well-formed files that may be wrong, and others that must stay right."""

from __future__ import annotations

import copy
import random
from typing import Any

__all__ = ["changed_schedule", "changed_selection", "equal_schedule"]

COLUMNS = ("chunk", "link", "op")
KINDS = (
    "all_gather", "reduce_scatter", "all_reduce", "broadcast", "reduce", "scatter", "gather", "all_to_all",
    "all_to_next", "custom", "several",
)  # fmt: skip
# Every chunk of these has the same sources and targets, so that chunks may be numbered in any order.
_ALIKE = ("all_reduce", "broadcast", "reduce")


def changed_schedule(
    rng: random.Random, document: dict[str, Any], donor: dict[str, Any] | None = None
) -> dict[str, Any]:
    """A schedule with one to three changes to its sends, its collective or its network."""
    changed = copy.deepcopy(document)
    body = changed["body"]
    for _ in range(rng.choice((1, 1, 1, 1, 2, 3))):
        pick = rng.random()
        if pick < 0.6:
            _sends(rng, body)
        elif pick < 0.8:
            _collective(rng, body["collective"], donor)
        elif pick < 0.95:
            _network(rng, body["network"])
        else:
            body["chunk_bytes"] = rng.choice((1, 3, 1 << 20, 1 << 40, 1 << 62, 0, -1))
    return changed


def changed_selection(
    rng: random.Random, document: dict[str, Any], donor: dict[str, Any] | None = None
) -> dict[str, Any]:
    """The same of a selection: of one of its algorithms, its ranges or its network."""
    changed = copy.deepcopy(document)
    body = changed["body"]
    algorithm = rng.choice(body["algorithms"])
    pick = rng.random()
    if pick < 0.4:
        _sends(rng, algorithm)
    elif pick < 0.65:
        _collective(rng, algorithm["collective"], donor)
    elif pick < 0.75:
        _network(rng, body["network"])
    elif pick < 0.85:
        one = rng.choice(body["ranges"])
        one["algorithm"] = rng.randrange(-1, len(body["algorithms"]) + 1)
    elif pick < 0.95:
        one = rng.choice(body["ranges"])
        name = rng.choice(("from_bytes", "to_bytes"))
        one[name] = rng.choice((0, -1, 1, one[name] - 1, one[name] + 1, one[name] * 2, 1 << 62))
    else:
        rng.shuffle(body[rng.choice(("ranges", "algorithms", "points"))])
    return changed


def _rows(body: dict[str, Any]) -> list[list[int]]:
    return [list(row) for row in zip(*(body[name] for name in COLUMNS), strict=False)]


def _put(body: dict[str, Any], rows: list[list[int]]) -> None:
    for at, name in enumerate(COLUMNS):
        body[name] = [row[at] for row in rows]


def _sends(rng: random.Random, body: dict[str, Any]) -> None:
    rows = _rows(body)
    if not rows:
        return
    at, other = rng.randrange(len(rows)), rng.randrange(len(rows))
    # An earlier mutation may have made a value negative.
    chunks, links = (max(0, *(row[column] for row in rows)) + 1 for column in range(2))
    pick = rng.randrange(12)
    if pick == 0:
        del rows[at]
    elif pick == 1:
        rows.insert(other, list(rows[at]))
    elif pick == 2:
        rows[at], rows[other] = rows[other], rows[at]
    elif pick == 3:
        rows.insert(other, rows.pop(at))
    elif pick == 4:
        rows[at][2] = 1 - rows[at][2]
    elif pick == 5:
        rows[at][0] = (rows[at][0] + rng.choice((-1, 1))) % chunks
    elif pick == 6:
        rows[at][1] = rng.randrange(links)
    elif pick == 7:
        rows[at][0] = rng.choice((chunks, -1, rng.randrange(chunks), 1 << 31, 1 << 40))
    elif pick == 8:
        rows.reverse()
    elif pick == 9:
        rows = rows[:at]
    elif pick == 10:
        rows.append([rng.randrange(chunks), rng.randrange(links), rng.randrange(2)])
    else:
        part = rows[min(at, other) : max(at, other) + 1]
        rng.shuffle(part)
        rows[min(at, other) : max(at, other) + 1] = part
    _put(body, rows)


def _collective(rng: random.Random, collective: dict[str, Any], donor: dict[str, Any] | None) -> None:
    # A donor that is wrong itself may have 0 ranks or fewer.
    ranks = max(1, collective["ranks"])
    pick = rng.randrange(8)
    if pick == 0:
        collective["kind"] = rng.choice(KINDS)
    elif pick == 1:
        collective["root"] = rng.choice((*range(ranks), -1, ranks, 1 << 31))
    elif pick == 2:
        members = rng.sample(range(ranks), rng.randrange(ranks + 1))
        collective["members"] = rng.choice(
            (sorted(members), members, list(range(ranks)), [0, 0], [-1], [ranks])
        )
    elif pick == 3:
        collective["chunks"] = rng.choice(
            (0, -1, 1, collective["chunks"] + 1, collective["chunks"] * 2, collective["chunks"] - 1)
        )
    elif pick == 4:
        collective["ranks"] = rng.choice((0, -1, ranks + 1, ranks - 1))
    elif pick == 5:
        chunks = rng.choice((collective["chunks"], 0, 1))
        groups = rng.choice(
            (
                [[0]],
                [list(range(ranks))],
                [[rank] for rank in range(ranks)] or [[]],
                [list(range(ranks)), [0]],
            )
        )
        starts = [0]
        for group in groups:
            starts.append(starts[-1] + len(group))
        collective["custom"] = {
            "source": [rng.randrange(len(groups)) for _ in range(chunks)],
            "target": [rng.randrange(len(groups)) for _ in range(chunks)],
            "reduced": [rng.randrange(2) for _ in range(chunks)],
            "group_start": starts,
            "group_rank": [rank for group in groups for rank in group],
        }
        if rng.random() < 0.3:
            collective["kind"] = "custom"
    elif pick == 6:
        part = {key: value for key, value in collective.items() if key not in ("parts", "custom")}
        other = (
            copy.deepcopy(donor["body"].get("collective", part))
            if donor and "collective" in donor["body"]
            else dict(part)
        )
        collective["parts"] = rng.choice(([dict(part)], [dict(part), other], [], [dict(part), dict(part)]))
        if rng.random() < 0.3:
            collective["kind"] = "several"
    else:
        for name in ("members", "parts", "custom", "root"):
            if rng.random() < 0.5:
                collective.pop(name, None)


def _network(rng: random.Random, network: dict[str, Any]) -> None:
    links = len(network["src"])
    if not links:
        return
    at, other = rng.randrange(links), rng.randrange(links)
    name = rng.choice(
        ("src", "dst", "alpha_s", "beta_s_per_byte", "link_port", "ports", "hosts", "link_port_start", "link")
    )
    if name == "link":
        for column in ("src", "dst", "alpha_s", "beta_s_per_byte"):
            del network[column][at]
        network["link_port_start"] = network["link_port_start"][:-1]
    elif name in ("src", "dst"):
        ranks = len(network["hosts"])
        network[name][at] = rng.choice(
            (network["dst" if name == "src" else "src"][at], rng.randrange(ranks), -1, ranks)
        )
    elif name in ("alpha_s", "beta_s_per_byte"):
        network[name][at] = rng.choice(
            (0.0, -0.0, -1e-9, 1e308, 5e-324, 1e-300, network[name][other], network[name][at] * 2)
        )
    elif network[name]:
        entry = rng.randrange(len(network[name]))
        network[name][entry] = network[name][rng.randrange(len(network[name]))]
        if rng.random() < 0.3:
            del network[name][entry]


def equal_schedule(rng: random.Random, document: dict[str, Any]) -> dict[str, Any]:
    """The same schedule told otherwise: links in another order, other names, chunks numbered anew."""
    changed = copy.deepcopy(document)
    body = changed["body"]
    for change in rng.sample(_EQUAL, rng.choice((1, 1, 2, 3))):
        change(rng, body)
    return changed


def _other_names(rng: random.Random, body: dict[str, Any]) -> None:
    body["network"]["name"] = rng.choice(("", "x", "é" * 30, "a b", "../x", "ring:4"))
    body["method"] = rng.choice(("", "by hand", "é"))
    body["seed"] = rng.choice((0, -1, 1 << 40))
    body["network"]["ports"] = [f"p{number}é" for number in range(len(body["network"]["ports"]))]


def _links_reordered(rng: random.Random, body: dict[str, Any]) -> None:
    network = body["network"]
    order = list(range(len(network["src"])))
    rng.shuffle(order)
    start, port = network["link_port_start"], network["link_port"]
    ports = [port[start[link] : start[link + 1]] for link in range(len(order))]
    for name in ("src", "dst", "alpha_s", "beta_s_per_byte"):
        network[name] = [network[name][link] for link in order]
    network["link_port"] = [entry for link in order for entry in ports[link]]
    network["link_port_start"] = [0]
    for link in order:
        network["link_port_start"].append(network["link_port_start"][-1] + len(ports[link]))
    place = {link: row for row, link in enumerate(order)}
    body["link"] = [place[link] for link in body["link"]]


def _ports_reordered(rng: random.Random, body: dict[str, Any]) -> None:
    network = body["network"]
    order = list(range(len(network["ports"])))
    rng.shuffle(order)
    place = {port: row for row, port in enumerate(order)}
    network["ports"] = [network["ports"][port] for port in order]
    network["link_port"] = [place[port] for port in network["link_port"]]


def _chunks_renumbered(rng: random.Random, body: dict[str, Any]) -> None:
    if body["collective"]["kind"] in _ALIKE:
        order = list(range(body["collective"]["chunks"]))
        rng.shuffle(order)
        body["chunk"] = [order[chunk] for chunk in body["chunk"]]


def _neighbours_swapped(rng: random.Random, body: dict[str, Any]) -> None:
    """Swap neighbouring sends that have nothing in common: no chunk, no link and no port."""
    network, rows = body["network"], _rows(body)
    start, port = network["link_port_start"], network["link_port"]

    def ports(link: int) -> set[int]:
        return set(port[start[link] : start[link + 1]])

    for at in rng.sample(range(max(0, len(rows) - 1)), min(5, max(0, len(rows) - 1))):
        (chunk_a, link_a, _), (chunk_b, link_b, _) = rows[at], rows[at + 1]
        if chunk_a != chunk_b and link_a != link_b and not ports(link_a) & ports(link_b):
            rows[at], rows[at + 1] = rows[at + 1], rows[at]
    _put(body, rows)


def _without_outcome(rng: random.Random, body: dict[str, Any]) -> None:
    body["outcome"] = None


_EQUAL = (
    _other_names,
    _links_reordered,
    _ports_reordered,
    _chunks_renumbered,
    _neighbours_swapped,
    _without_outcome,
)
