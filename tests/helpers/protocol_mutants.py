"""Mutants of the kernel's protocols, made from lists of sites and of what each may wrongly be.

An access mutant weakens the order or narrows the scope of a primitive's PTX. A text mutant changes one
place of interpreter.cu, of the proxies, or of the lines of LL in the model's header: a count off by one, a
condition that waits for less, a barrier or a publication left out, a flag or a slot used again too early.
"""

from dataclasses import dataclass

__all__ = ["ACCESSES", "EQUIVALENT", "Mutant", "mutants"]


@dataclass(frozen=True)
class Mutant:
    """``change`` to ``site``.

    ``kind`` is "expression" or "statement" where the change takes the site's place, "before" where it is a
    statement put before the site, "without" where the site's first statement is left out, and "access" where
    the site is a primitive and the change its order and scope.
    """

    number: int
    site: str
    change: str
    kind: str

    @property
    def name(self):
        """The change in one line."""
        old, new = (" ".join(text.split()) for text in (self.site, self.change))
        if self.kind in ("before", "without"):
            return f"{self.kind}: {new} {old}"
        return f"{old}  →  {new or 'nothing'}"


# The primitives; a test compares them with the PTX.
ACCESSES = {
    "acquire_system": ("ACQUIRE", "SYSTEM"),
    "release_system": ("RELEASE", "SYSTEM"),
    "acquire_device": ("ACQUIRE", "DEVICE_WIDE"),
    "release_device": ("RELEASE", "DEVICE_WIDE"),
    "load_bits": ("RELAXED", "SYSTEM"),
    "store_line": ("RELAXED", "SYSTEM"),
    "load_part": ("RELAXED", "SYSTEM"),
    "store_part": ("RELAXED", "SYSTEM"),
}
_WEAKER = {
    "ACQUIRE": ("RELAXED", "WEAK"),
    "RELEASE": ("RELAXED", "WEAK"),
    "RELAXED": ("WEAK",),
}
_NARROWER = {"SYSTEM": ("DEVICE_WIDE", "BLOCK"), "DEVICE_WIDE": ("BLOCK",), "BLOCK": ()}
_USED = {
    "Simple": ("acquire_system", "release_system", "acquire_device", "release_device"),
    "LL": ("acquire_system", "release_system", "acquire_device", "release_device", "load_bits", "store_line"),
    "LL128": (
        "acquire_system",
        "release_system",
        "acquire_device",
        "release_device",
        "load_part",
        "store_part",
    ),
}

# Expressions, each with what it may wrongly be.
_EXPRESSIONS = {
    # until
    "goal <= static_cast<i64>(seen)": (
        "goal <= static_cast<i64>(seen) + 1",
        "goal <= static_cast<i64>(seen) + 2",
        "true",
        "false",
    ),
    "seen >= static_cast<u64>(goal)": (
        "seen + 1 >= static_cast<u64>(goal)",
        "seen > static_cast<u64>(goal)",
        "seen == static_cast<u64>(goal)",
        "true",
        "seen != 0",
        "static_cast<unsigned>(seen) >= static_cast<unsigned>(goal)",
    ),
    "reason == FOR_STEP ? acquire_device(count) : acquire_system(count)": (
        "reason == FOR_STEP ? acquire_system(count) : acquire_device(count)",
        "acquire_device(count)",
        "acquire_system(count)",
        "reason == FOR_STEP ? relaxed_system(count) : acquire_system(count)",
        "reason == FOR_STEP ? acquire_device(count) : relaxed_system(count)",
    ),
    # giving up
    "acquire_system(stop) != 0": ("false", "acquire_system(stop) > 1"),
    "now - begun < static_cast<u64>(limit_ns)": ("true", "now < static_cast<u64>(limit_ns)"),
    # ready
    "round * near.block[BLOCK_STEPS] + number + 1": (
        "round * near.block[BLOCK_STEPS] + number",
        "round * near.block[BLOCK_STEPS] + number + 2",
        "near.tile * near.block[BLOCK_STEPS] + number + 1",
        "(round + 1) * near.block[BLOCK_STEPS] + number + 1",
        "number + 1",
        "round + number + 1",
    ),
    "round * theirs[BLOCK_STEPS] + step[STEP_WAIT_STEP] + 1": (
        "round * theirs[BLOCK_STEPS] + step[STEP_WAIT_STEP]",
        "(round - 1) * theirs[BLOCK_STEPS] + step[STEP_WAIT_STEP] + 1",
        "(round + 1) * theirs[BLOCK_STEPS] + step[STEP_WAIT_STEP] + 1",
        "round * theirs[BLOCK_STEPS]",
        "near.tile * theirs[BLOCK_STEPS] + step[STEP_WAIT_STEP] + 1",
        "step[STEP_WAIT_STEP] + 1",
    ),
    "slice == 0 && other >= 0": (
        "false",
        "slice == 1 && other >= 0",
        "slice == 0 && near.tile == 0 && other >= 0",
    ),
    "machine.flags + other": ("machine.flags + block_number()", "machine.flags"),
    "near.block[BLOCK_ROOM_OUT] * machine.slices": (
        "(near.block[BLOCK_ROOM_OUT] + 1) * machine.slices",
        "near.block[BLOCK_ROOM_OUT] * machine.slices + 1",
        "near.block[BLOCK_ROOM_OUT] * 2 * machine.slices",
        "near.block[BLOCK_ROOM_OUT] * machine.slices - 1",
    ),
    "!(does & SENDS)": ("true",),
    "static_cast<i64>(near.head[turn]) - room": (
        "static_cast<i64>(near.head[turn]) - room - 1",
        "static_cast<i64>(near.head[turn] - 1) - room * 2",
    ),
    "reinterpret_cast<const u64*>(near.link[LINK_OUT_CREDIT])": (
        "reinterpret_cast<const u64*>(near.link[LINK_OUT_HEAD])",
    ),
    # the start of a launch
    "machine.launch * machine.tiles * near.block[BLOCK_SENDS]": (
        "0",
        "machine.launch * near.block[BLOCK_SENDS]",
        "machine.launch * machine.tiles",
        "machine.launch * machine.tiles * near.block[BLOCK_SENDS] + 1",
        "machine.launch * machine.tiles * near.block[BLOCK_SENDS] - 1",
    ),
    "machine.launch * machine.tiles * near.block[BLOCK_RECEIVES]": (
        "0",
        "machine.launch * near.block[BLOCK_RECEIVES]",
        "machine.launch * machine.tiles",
        "machine.launch * machine.tiles * near.block[BLOCK_RECEIVES] + 1",
        "machine.launch * machine.tiles * near.block[BLOCK_RECEIVES] - 1",
    ),
    "near.sent % room_out": ("0", "(near.sent + 1) % room_out"),
    "near.received % room_in": ("0", "(near.received + 1) % room_in"),
    "near.unpublished + 1 == near.block[BLOCK_CREDIT_EVERY]": (
        "near.unpublished == near.block[BLOCK_CREDIT_EVERY]",
        "near.unpublished + 1 == near.block[BLOCK_ROOM_IN] + 1",
        "false",
    ),
    # the turn to the next slot
    "++near.place_out == near.block[BLOCK_ROOM_OUT]": (
        "++near.place_out == near.block[BLOCK_ROOM_OUT] - 1",
        "++near.place_out == near.block[BLOCK_ROOM_OUT] + 1",
        "true",
        "false",
    ),
    "++near.place_in == near.block[BLOCK_ROOM_IN]": (
        "++near.place_in == near.block[BLOCK_ROOM_IN] - 1",
        "++near.place_in == near.block[BLOCK_ROOM_IN] + 1",
        "true",
        "false",
    ),
    "++slice, turn ^= 1": ("++slice, turn ^= 0",),
}
_STATEMENTS = {
    "write(state, reason, peer, seen, goal);\n            release_system(stop, 1);\n      "
    "      return false;": (
        "write(state, reason, peer, seen, goal); return false;",
        "write(state, reason, peer, seen, goal); release_system(stop, 0); return false;",
        "write(state, reason, peer, seen, goal); release_system(stop, 1); return true;",
        "release_system(stop, 1); return false;",
    ),
    "if (!begun) begun = now;": ("",),
    "copy_words(near.link, machine.links + block_number() * LINK_COLUMNS, LINK_COLUMNS);\n    meet();": (
        "copy_words(near.link, machine.links + block_number() * LINK_COLUMNS, LINK_COLUMNS);",
    ),
    "copy_words(near.rows, rows, smaller(steps - number, ROWS) * STEP_COLUMNS);\n                meet();": (
        "copy_words(near.rows, rows, smaller(steps - number, ROWS) * STEP_COLUMNS);",
    ),
    "if (leads) near.tile = tile;": ("",),
    "if (leads) near.alive = ready(machine, near, operands, count, step, number, parts, slice, turn);\n"
    "                meet();\n": (
        "if (leads) near.alive = ready(machine, near, operands, count, step, number, parts, slice, turn);",
        "meet(); if (leads) near.alive = ready(machine, near, operands, count, step, number, "
        "parts, slice, turn);",
    ),
    "if (!near.alive) return;": ("",),
    "if (near.publishes[turn] && thread_number() == thread_of_warp(2))\n"
    "                    "
    "release_system(reinterpret_cast<u64*>(near.link[LINK_IN_CREDIT]), near.credit[turn]);": (
        "",
        *(
            "if (near.publishes[turn] && thread_number() == thread_of_warp(2)) "
            f"{store}(reinterpret_cast<u64*>(near.link[LINK_IN_CREDIT]), {value});"
            for store, value in (
                ("relaxed_system", "near.credit[turn]"),
                ("release_device", "near.credit[turn]"),
                ("release_system", "near.credit[turn] + 1"),
                ("release_system", "near.credit[turn] - 1"),
                ("release_system", "near.credit[turn] + machine.slices"),
                ("release_system", "near.credit[turn ^ 1]"),
                ("release_system", "near.head[turn]"),
            )
        ),
    ),
    "if (signals && thread_number() == thread_of_warp(3))\n"
    "                release_device(machine.flags + block_number(), near.finished[turn ^ 1]);": (
        "",
        *(
            f"if (signals && thread_number() == thread_of_warp(3)) {store}(machine.flags + {block}, {value});"
            for store, block, value in (
                ("relaxed_system", "block_number()", "near.finished[turn ^ 1]"),
                ("release_device", "block_number()", "near.finished[turn]"),
                ("release_device", "block_number()", "near.finished[turn ^ 1] + 1"),
                ("release_device", "block_number()", "near.finished[turn ^ 1] - 1"),
                ("release_device", "block_number()", "near.finished[turn ^ 1] + steps"),
                ("release_device", "0", "near.finished[turn ^ 1]"),
                ("release_system", "block_number()", "near.finished[turn ^ 1]"),
            )
        ),
    ),
    "++near.sent;": ("", "near.sent += 2;"),
    "++near.received;": ("", "near.received += 2;"),
}
# The proxies between hosts; relaxed accesses are those of a CPU that keeps no order.
_OF_SIMPLE = {
    "number / slices % room_places": (
        "number % room_places",
        "number / slices % 1",
        "(number / slices + 1) % room_places",
    ),
    "number % span_count": ("0", "(number + 1) % span_count"),
    "acquire_host(counts[0])": (
        "acquire_host(counts[0]) + 1",
        "acquire_host(*(counts + 1))",
        "relaxed_system(counts[0])",
    ),
    "acquire_host(counts[1])": (
        "acquire_host(counts[1]) + 1",
        "acquire_host(*counts)",
        "relaxed_system(counts[1])",
    ),
    "room_places * slices": (
        "room_places * slices + 1",
        "room_places * slices - 1",
        "(room_places + 1) * slices",
    ),
    "begun < last": ("begun <= last", "begun < last - 1"),
    "complete < begun && test(complete)": (
        "complete < begun",
        "complete < begun && (test(complete) || !outgoing)",
    ),
    "near.sent * machine.slices + slice + 1": (
        "near.sent * machine.slices + slice",
        "near.sent * machine.slices + slice + 2",
        "near.sent * machine.slices + 1",
        "(near.sent + 1) * machine.slices",
        "near.sent + slice + 1",
        "static_cast<unsigned>(near.sent * machine.slices + slice + 1)",
    ),
    "near.received * machine.slices + slice + 1": (
        "near.received * machine.slices + slice",
        "near.received * machine.slices + slice + 2",
        "near.received * machine.slices + 1",
        "(near.received + 1) * machine.slices",
        "near.received + slice + 1",
        "static_cast<unsigned>(near.received * machine.slices + slice + 1)",
    ),
    "static_cast<i64>(near.credit[turn])": (
        "static_cast<i64>(near.credit[turn]) - 1",
        "static_cast<i64>(near.credit[turn]) - machine.slices",
        "static_cast<i64>(near.credit[turn]) - near.block[BLOCK_ROOM_IN] * machine.slices",
        "static_cast<i64>(near.credit[turn]) + 1",
        "0",
    ),
    "near.place_in * machine.tile + first": ("near.place_in * machine.tile", "first"),
    "near.place_out * machine.tile + first": ("near.place_out * machine.tile", "first"),
    "reinterpret_cast<const u64*>(near.link[LINK_IN_HEAD])": (
        "reinterpret_cast<const u64*>(near.link[LINK_IN_CREDIT])",
    ),
}
_STATEMENTS_OF_SIMPLE = {
    "release_host(counts[outgoing ? 1 : 0], static_cast<u64>(through));": (
        "",
        "relaxed_system(counts[outgoing ? 1 : 0], static_cast<u64>(through));",
        "release_host(counts[outgoing ? 0 : 1], static_cast<u64>(through));",
        "release_host(counts[outgoing ? 1 : 0], static_cast<u64>(begun));",
        "release_host(counts[outgoing ? 1 : 0], static_cast<u64>(through + 1));",
        "release_host(counts[outgoing ? 1 : 0], static_cast<u64>(through - 1));",
    ),
    "near.put_in = near.taken_out = 0;": ("near.put_in = 0;", "near.taken_out = 0;"),
    "if (does & SENDS && thread_number() == thread_of_warp(1))\n"
    "                    release_system(reinterpret_cast<u64*>(near.link[LINK_OUT_HEAD]), "
    "near.head[turn]);": (
        "",
        *(
            "if (does & SENDS && thread_number() == thread_of_warp(1)) "
            f"{store}(reinterpret_cast<u64*>(near.link[LINK_OUT_HEAD]), {value});"
            for store, value in (
                ("relaxed_system", "near.head[turn]"),
                ("release_device", "near.head[turn]"),
                ("release_system", "near.head[turn] + 1"),
                ("release_system", "near.head[turn] - 1"),
                ("release_system", "near.head[turn] + machine.slices"),
                ("release_system", "near.head[turn ^ 1]"),
                ("release_system", "near.credit[turn]"),
            )
        ),
    ),
}
_OF_LL = {
    # A message of LL is one slice.
    "near.sent * machine.slices + slice + 1": (
        "near.sent * machine.slices + slice",
        "near.sent * machine.slices + slice + 2",
        "static_cast<unsigned>(near.sent * machine.slices + slice + 1)",
    ),
    "near.received * machine.slices + slice + 1": (
        "near.received * machine.slices + slice",
        "near.received * machine.slices + slice + 2",
        "static_cast<unsigned>(near.received * machine.slices + slice + 1)",
    ),
    "load_line(at, static_cast<unsigned>(number), data)": (
        "load_line(at, static_cast<unsigned>(number - 1), data)",
        "load_line(at, static_cast<unsigned>(number + 1), data)",
        "load_line(at, static_cast<unsigned>(number), data) || tries > 3",
        "load_line(at, static_cast<unsigned>(number % 4294967295), data)",
    ),
    "static_cast<unsigned>(received)": (
        "static_cast<unsigned>(received - 1)",
        "static_cast<unsigned>(received - 2)",
    ),
    "near.line(in + 16 * (at + u * stride), received, total[u].bits)": (
        "near.line(in + 16 * (at + u * stride), received - 1, total[u].bits)",
        "near.line(in + 16 * (at + u * stride), received - 2, total[u].bits)",
        "0",
        "u ? 0 : near.line(in + 16 * (at + u * stride), received, total[u].bits)",
    ),
    "near.line(in + 16 * at, received, total.bits)": (
        "near.line(in + 16 * at, received - 1, total.bits)",
        "near.line(in + 16 * at, received - 2, total.bits)",
        "near.line(in + 16 * at, received + 1, total.bits)",
    ),
    "static_cast<Flag>(near.head[turn])": (
        "static_cast<Flag>(near.head[turn] + 1)",
        "static_cast<Flag>(near.head[turn] - 1)",
        "static_cast<Flag>(near.head[turn] & 1)",
        "static_cast<Flag>(near.head[turn] & 3)",
        "static_cast<Flag>(near.head[turn] % 4294967295)",
        "static_cast<unsigned>(near.head[turn ^ 1])",
    ),
    "near.place_in * place": ("0", "(near.place_in + 1) % near.block[BLOCK_ROOM_IN] * place"),
    "near.place_out * place": ("0", "(near.place_out + 1) % near.block[BLOCK_ROOM_OUT] * place"),
    "(machine.tile * sizeof(T) + 7) / 8 * 16": ("(machine.tile * sizeof(T) + 7) / 8 * 8",),
    # the lines of the model
    "low >> 32 == flag && high >> 32 == flag": (
        "low >> 32 == flag",
        "high >> 32 == flag",
        "low >> 32 == flag || high >> 32 == flag",
        "low >> 32 >= flag && high >> 32 >= flag",
        "(low >> 32 & 1) == (flag & 1) && (high >> 32 & 1) == (flag & 1)",
        "low >> 32 != 0 && high >> 32 != 0",
    ),
    "(number ? data >> 32 : data & 0xffffffffu)": ("(number ? data & 0xffffffffu : data >> 32)",),
}
_STATEMENTS_OF_LL = {
    "near.put_in = near.taken_out = 0;": ("near.put_in = 0;",),
    "near.whole[turn] = 1;": ("", "near.whole[turn ^ 1] = 1;"),
    "if (!state) continue;\n            release_system(stop, 1);\n            return state;": (
        "if (!state) continue; return state;",
        "if (!state) continue; release_system(stop, 1); return 0;",
        "if (!state) continue; release_system(stop, 0); return state;",
    ),
    "if (state == RAN_OUT) ran_out = 1;": (";", "ran_out = 1;"),
    "if (state) near.give_up(turn, state);": (";", "if (state) near.give_up(turn ^ 1, state);"),
    "near.ran_out = 0;": ("",),
    "near.write_lost_message(turn);\n                    return;": (
        "return;",
        "near.write_lost_message(turn);",
        "near.write_lost_message(turn ^ 1); return;",
    ),
}

_STATE_OF_LL = "if (!state) continue;\n            release_system(stop, 1);\n            return state;"
_SHARED_BY_LINES = (
    "near.sent * machine.slices + slice + 1",
    "near.received * machine.slices + slice + 1",
    "static_cast<Flag>(near.head[turn])",
    "near.place_in * place",
    "near.place_out * place",
)
_OF_LL128 = {site: _OF_LL[site] for site in _SHARED_BY_LINES} | {
    "load_part(at, static_cast<u64>(number), data)": (
        "load_part(at, static_cast<u64>(number - 1), data)",
        "load_part(at, static_cast<u64>(number + 1), data)",
        "load_part(at, static_cast<u64>(number), data) || tries > 3",
    ),
    "near.part(operands.in + 128 * line, received, data)": (
        "near.part(operands.in + 128 * line, received - 1, data)",
        "near.part(operands.in + 128 * line, received - 2, data)",
        "line ? 0 : near.part(operands.in + 128 * line, received, data)",
        "near.part(operands.in, received, data)",
    ),
    "((machine.tile * sizeof(T) + 7) / 8 + LINE_WORDS - 1) / LINE_WORDS * 128": (
        "(machine.tile * sizeof(T) + 7) / 8 / LINE_WORDS * 128",
    ),
    # the lines of the model
    "seen != flag": ("seen < flag", "(seen & 1) != (flag & 1)", "seen == 0", "seen + 2 < flag"),
}
_STATEMENTS_OF_LL128 = {site: told for site, told in _STATEMENTS_OF_LL.items() if site != _STATE_OF_LL} | {
    "release_system(stop, 1);\n            return state ? state : WAS_STOPPED;": (
        "return state ? state : WAS_STOPPED;",
        "release_system(stop, 1); return 0;",
        "release_system(stop, 1); return WAS_STOPPED;",
    ),
    "store_part(operands.out + 128 * line, data, sent);": (
        "store_part(operands.out + 128 * line, data, sent + 1);",
        "store_part(operands.out + 128 * line, data, sent - 1);",
        "store_part(operands.out, data, sent);",
    ),
}

_EARLY_CREDIT = (
    "if (does & RECEIVES && thread_number() == thread_of_warp(2)) "
    "release_system(reinterpret_cast<u64*>(near.link[LINK_IN_CREDIT]), near.credit[turn]);"
)
_EARLY_SIGNAL = (
    "if (signals && thread_number() == thread_of_warp(3)) "
    "release_device(machine.flags + block_number(), near.finished[turn]);"
)
_EARLY_HEAD = (
    "if (does & SENDS && thread_number() == thread_of_warp(1)) "
    "release_system(reinterpret_cast<u64*>(near.link[LINK_OUT_HEAD]), near.head[turn]);"
)
_BEFORE = {
    # Publication before the data is moved, or after it but before the threads meet.
    "Simple": {
        "if (count > 0)\n                    move<T, Op>(operands": (
            _EARLY_HEAD,
            _EARLY_CREDIT,
            _EARLY_SIGNAL,
        ),
        "meet();\n                if (does & SENDS && thread_number()": (
            _EARLY_HEAD,
            _EARLY_CREDIT,
            _EARLY_SIGNAL,
        ),
    },
    "LL": {
        "if (count > 0 && (operands.in || operands.out)) {": (_EARLY_CREDIT, _EARLY_SIGNAL),
        "meet();\n                if (!near.whole[turn]) {": (_EARLY_CREDIT, _EARLY_SIGNAL),
    },
}
_WITHOUT = {
    "Simple": ("meet();\n                if (does & SENDS && thread_number()",),
    "LL": ("meet();\n                if (!near.whole[turn]) {", "if (!near.whole[turn]) {"),
}
_BEFORE["LL128"], _WITHOUT["LL128"] = _BEFORE["LL"], _WITHOUT["LL"]


def mutants(wire_protocol):
    """Every mutant of a protocol, numbered from 1."""
    return tuple(Mutant(number, *told) for number, told in enumerate(_changes(wire_protocol), 1))


def _changes(by):
    for primitive in _USED[by]:
        order, scope = ACCESSES[primitive]
        for weaker in _WEAKER[order]:
            yield primitive, f"{weaker}, {scope}", "access"
        for narrower in _NARROWER[scope]:
            yield primitive, f"{order}, {narrower}", "access"
    for site in _WITHOUT[by]:
        yield site, "", "without"
    for site, changes in _BEFORE[by].items():
        yield from ((site, change, "before") for change in changes)
    of = {"Simple": _OF_SIMPLE, "LL": _OF_LL, "LL128": _OF_LL128}[by]
    statements_of = {
        "Simple": _STATEMENTS_OF_SIMPLE,
        "LL": _STATEMENTS_OF_LL,
        "LL128": _STATEMENTS_OF_LL128,
    }[by]
    expressions, statements = _EXPRESSIONS | of, _STATEMENTS | statements_of
    for kind, sites in (("expression", expressions), ("statement", statements)):
        for site, changes in sites.items():
            yield from ((site, change, kind) for change in changes)


# Changes that are as right as the real protocol, each with the proof.
EQUIVALENT = {
    "seen < flag": (
        "The flags of LL128 have 64 bits and only grow. A line holds a number above the awaited one only "
        "after its sender used the slot again. For that it waits until the reader says that it took this "
        "message."
    ),
    "acquire_system(count)": (
        "The scope of the system holds every thread that the scope of the GPU holds, so this "
        "acquire orders at "
        "least what the real one does; it is slower."
    ),
    "if (signals && thread_number() == thread_of_warp(3)) release_system(machine.flags + block_number(), "
    "near.finished[turn ^ 1]);": (
        "The scope of the system holds every thread that the scope of the GPU holds, so this "
        "release orders at "
        "least what the real one does; it is slower."
    ),
}
