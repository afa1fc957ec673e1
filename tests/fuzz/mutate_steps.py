"""Changes to what a program says: well-formed files that may be wrong, and others that must stay right."""

from __future__ import annotations

import copy
import random
from typing import Any

from mutate_sends import KINDS

__all__ = ["changed_program", "equal_program"]

STEP = ("op", "src_buffer", "src_slot", "dst_buffer", "dst_slot", "count", "wait_tb", "wait_step")
BLOCK = ("tb_rank", "tb_send", "tb_recv", "tb_channel")


def changed_program(rng: random.Random, document: dict[str, Any]) -> dict[str, Any]:
    """A program with one to three of its steps, threadblocks or claims changed; columns stay equally long."""
    changed = copy.deepcopy(document)
    body = changed["body"]
    for _ in range(rng.choice((1, 1, 1, 1, 2, 3))):
        pick = rng.random()
        if pick < 0.7:
            _step(rng, body)
        elif pick < 0.85:
            _block(rng, body)
        else:
            _claim(rng, body)
    return changed


def _step(rng: random.Random, body: dict[str, Any]) -> None:
    steps = len(body["op"])
    if not steps:
        return
    at = rng.randrange(steps)
    pick = rng.randrange(12)
    if pick == 0:
        _delete(body, at)
    elif pick == 1:
        _insert(body, at, [body[name][rng.randrange(steps)] for name in STEP])
    elif pick == 2:
        other = min(steps - 1, at + 1) if rng.random() < 0.6 else rng.randrange(steps)
        for name in STEP:
            body[name][at], body[name][other] = body[name][other], body[name][at]
    elif pick == 3:
        body["op"][at] = rng.randrange(9)
    elif pick in (4, 5):
        name = rng.choice(("src_slot", "dst_slot"))
        body[name][at] += rng.choice((-1, 1, 1, 2))
    elif pick == 6:
        name = rng.choice(("src_buffer", "dst_buffer"))
        body[name][at] = rng.randrange(3)
    elif pick == 7:
        body["count"][at] = rng.choice((1, 2, 3, body["count"][at] + 1, 0, 1 << 30))
    elif pick == 8:
        body["wait_tb"][at] = body["wait_step"][at] = -1
    elif pick == 9:
        waiting = [row for row in range(steps) if body["wait_tb"][row] >= 0]
        if waiting:
            row = rng.choice(waiting)
            if rng.random() < 0.6:
                body["wait_tb"][row] = body["wait_step"][row] = -1
            else:
                body["wait_step"][row] += rng.choice((-1, 1))
    elif pick == 10:
        body["wait_tb"][at] = rng.randrange(len(body["tb_rank"]))
        body["wait_step"][at] = rng.randrange(4)
    else:
        # A copy within the rank, whose ends may overlap.
        copies = [row for row in range(steps) if body["op"][row] in (3, 4, 5)]
        row = rng.choice(copies) if copies else at
        body["op"][row] = rng.choice((3, 4, 5))
        body["src_buffer"][row] = body["dst_buffer"][row] = rng.randrange(3)
        body["src_slot"][row] = rng.randrange(3)
        body["dst_slot"][row] = body["src_slot"][row] + rng.choice((-1, 0, 1))
        body["count"][row] = rng.choice((1, 2, 3))


def _delete(body: dict[str, Any], at: int) -> None:
    for name in (*STEP, "line", "turn"):
        if len(body.get(name) or []) > at:
            del body[name][at]
    body["tb_start"] = [start - (start > at) for start in body["tb_start"]]


def _insert(body: dict[str, Any], at: int, values: list[int]) -> None:
    for name, value in zip(STEP, values, strict=True):
        body[name].insert(at, value)
    for name in ("line", "turn"):
        if body.get(name):
            body[name].insert(at, 0)
    body["tb_start"] = [start + (start > at) for start in body["tb_start"]]


def _block(rng: random.Random, body: dict[str, Any]) -> None:
    blocks, ranks = len(body["tb_rank"]), body["collective"]["ranks"]
    if not blocks:
        return
    at = rng.randrange(blocks)
    name = rng.choice(("tb_send", "tb_recv", "tb_channel", "tb_start", "tb_rank"))
    if name in ("tb_send", "tb_recv"):
        body[name][at] = rng.randrange(-1, ranks)
    elif name == "tb_start":
        body[name][rng.randrange(blocks + 1)] += rng.choice((-1, 1))
    else:
        body[name][at] = rng.choice((0, 1, 2, body[name][at] + 1))


def _claim(rng: random.Random, body: dict[str, Any]) -> None:
    collective = body["collective"]
    pick = rng.randrange(8)
    if pick == 0:
        body["in_place"] = not body.get("in_place", True)
    elif pick == 1:
        body["out_of_place"] = not body.get("out_of_place", True)
    elif pick == 2:
        rank = rng.randrange(len(body["scratch_chunks"]))
        body["scratch_chunks"][rank] = rng.choice(
            (0, 1, body["scratch_chunks"][rank] + 1, 1 << 20, 1 << 22, 1 << 30)
        )
    elif pick == 3:
        collective["kind"] = rng.choice(KINDS)
    elif pick == 4:
        collective["root"] = rng.randrange(-1, collective["ranks"] + 1)
    elif pick == 5:
        collective["chunks"] = rng.choice((1, collective["chunks"] + 1, collective["chunks"] * 2))
    elif pick == 6:
        ranks = collective["ranks"]
        collective["custom"] = {
            "source": [], "target": [], "reduced": [], "group_start": [0, ranks],
            "group_rank": list(range(ranks)),
        }  # fmt: skip
    else:
        ranks = collective["ranks"]
        body["input_chunks"] = [rng.randrange(4) for _ in range(ranks)]
        body["output_chunks"] = [rng.randrange(4) for _ in range(ranks)]


def equal_program(rng: random.Random, document: dict[str, Any]) -> dict[str, Any]:
    """The same program told otherwise: other names, another order of threadblocks, steps that do nothing."""
    changed = copy.deepcopy(document)
    body = changed["body"]
    for change in rng.sample(_EQUAL, rng.choice((1, 1, 2))):
        change(rng, body)
    return changed


def _renamed(rng: random.Random, body: dict[str, Any]) -> None:
    body["name"] = rng.choice(("", "x", "é", "a" * 300, "<&>"))
    body["source"] = rng.choice(("", "x.py", "é"))
    body["min_bytes"] = 0
    body["max_bytes"] = rng.choice((0, 1 << 40))


def _blocks_reordered(rng: random.Random, body: dict[str, Any]) -> None:
    blocks = len(body["tb_rank"])
    order = list(range(blocks))
    rng.shuffle(order)
    order.sort(key=lambda tb: body["tb_rank"][tb])
    place = {tb: row for row, tb in enumerate(order)}
    start = body["tb_start"]
    rows = [row for tb in order for row in range(start[tb], start[tb + 1])]
    lengths = [start[tb + 1] - start[tb] for tb in order]
    for name in BLOCK:
        body[name] = [body[name][tb] for tb in order]
    for name in (*STEP, "line", "turn"):
        if body.get(name):
            body[name] = [body[name][row] for row in rows]
    body["wait_tb"] = [place[tb] if tb >= 0 else tb for tb in body["wait_tb"]]
    body["tb_start"] = [0]
    for length in lengths:
        body["tb_start"].append(body["tb_start"][-1] + length)


def _idle_step(rng: random.Random, body: dict[str, Any]) -> None:
    tb = rng.randrange(len(body["tb_rank"]))
    at = body["tb_start"][tb + 1]
    for name, value in zip(STEP, (0, 0, -1, 0, -1, 1, -1, -1), strict=True):
        body[name].insert(at, value)
    for name in ("line", "turn"):
        if body.get(name):
            body[name].insert(at, 0)
    body["tb_start"] = [start + (row > tb) for row, start in enumerate(body["tb_start"])]


_EQUAL = (_renamed, _blocks_reordered, _idle_step)
