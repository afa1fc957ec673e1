"""Damage to the structure of JSON documents: every path, every type, every column."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

from oddities import Raw, dumps, odd_value, tweaked

__all__ = ["mutated", "respelled"]

Place = tuple[Any, Any]
_SCHEMAS = (
    "ccctl/schedule/1", "ccctl/program/1", "ccctl/profile/1", "ccctl/topology/1", "ccctl/selection/1",
    "ccctl/report/1", "ccctl/schedule/2", "ccctl/schedule/0", "ccctl/schedule/-1", "ccctl/schedule/1.0",
    "ccctl/x/1", "ccctl//1", "ccctl/schedule", "ccctl/schedule/1/1", "ccctl/" + "9" * 5000 + "/1", "x", "",
    "ccctl/schedule/" + "9" * 5000, "ccctl/schedule/١",
)  # fmt: skip


def mutated(rng: random.Random, document: Any, donor: Any = None) -> bytes:
    """A document with one to three changes; ``donor`` is another document, whose parts may be put into it."""
    changed = copy.deepcopy(document)
    if isinstance(changed, dict) and "schema" in changed and rng.random() < 0.04:
        changed["schema"] = rng.choice(_SCHEMAS)
        return dumps(changed).encode("utf-8", "surrogatepass")
    for _ in range(rng.choice((1, 1, 1, 1, 2, 3))):
        changed = _change(rng, changed, donor)
    text = dumps(changed, indent=rng.choice((None, 2)), ensure_ascii=rng.random() < 0.5)
    if rng.random() < 0.03:
        text = _duplicated_key(rng, text)
    return text.encode("utf-8", "surrogatepass")


def respelled(rng: random.Random, document: Any) -> bytes:
    """The same document: keys in another order, other white space, fields that nobody knows."""
    changed = _reordered(rng, document, rng.random() < 0.5)
    return json.dumps(
        changed,
        indent=rng.choice((None, 1, "\t")),
        separators=rng.choice(((",", ":"), (" , ", " :\r\n"), (", ", ": "))),
        ensure_ascii=rng.random() < 0.5,
    ).encode()


def _reordered(rng: random.Random, value: Any, extra: bool) -> Any:
    if isinstance(value, dict):
        entries = [(key, _reordered(rng, entry, extra)) for key, entry in value.items()]
        # Keys of a report's machine and peers, and of an envelope's inputs, are names that operators choose.
        if extra and "schema" in value:
            entries.append(("zz_unknown", {"a": [1, None, "x"]}))
        rng.shuffle(entries)
        return dict(entries)
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [_reordered(rng, entry, extra) for entry in value]
    return value


def _places(value: Any, path: str, found: dict[str, list[Place]]) -> None:
    """Every place below ``value``, by its path with the numbers of lists left out."""
    entries = value.items() if isinstance(value, dict) else enumerate(value)
    for key, entry in entries:
        below = f"{path}.{key}" if isinstance(value, dict) else f"{path}[]"
        found.setdefault(below, []).append((value, key))
        if isinstance(entry, (dict, list)):
            _places(entry, below, found)


def _change(rng: random.Random, document: Any, donor: Any) -> Any:
    found: dict[str, list[Place]] = {}
    if isinstance(document, (dict, list)):
        _places(document, "", found)
    if not found or rng.random() < 0.003:
        return odd_value(rng)
    # Each path has the same chance, or a column of a hundred numbers would take nearly all mutations.
    paths = [path for path in found if path.startswith(".body")] or list(found)
    holder, key = rng.choice(found[rng.choice(paths if rng.random() < 0.95 else list(found))])
    value = holder[key]
    if isinstance(value, list) and rng.random() < 0.6:
        holder[key] = _list(rng, value)
        return document
    pick = rng.random()
    if pick < 0.4:
        holder[key] = odd_value(rng)
    elif pick < 0.65:
        holder[key] = tweaked(rng, value)
    elif pick < 0.75:
        del holder[key]
    elif pick < 0.8 and isinstance(holder, dict):
        name = rng.choice((key.upper(), f"{key}_", f" {key}", "", "__class__", "é", "x" * 5000))
        holder[name] = holder.pop(key) if rng.random() < 0.5 else value
    elif pick < 0.9:
        other, place = rng.choice(found[rng.choice(list(found))])
        holder[key], other[place] = copy.deepcopy(other[place]), copy.deepcopy(value)
    else:
        holder[key] = _from(rng, document if donor is None or rng.random() < 0.5 else donor)
    return document


def _from(rng: random.Random, document: Any) -> Any:
    found: dict[str, list[Place]] = {}
    if isinstance(document, (dict, list)):
        _places(document, "", found)
    if not found:
        return document
    holder, key = rng.choice(found[rng.choice(list(found))])
    return copy.deepcopy(holder[key])


def _list(rng: random.Random, value: list[Any]) -> list[Any]:
    changed = list(value)
    at = rng.randrange(len(changed) + 1)
    pick = rng.randrange(11)
    if pick == 0:
        changed = changed[:at]
    elif pick == 1:
        changed = changed + copy.deepcopy(changed[at:])
    elif pick == 2:
        rng.shuffle(changed)
    elif pick == 3:
        changed.reverse()
    elif pick == 4:
        changed = changed[1:] + changed[:1]
    elif pick == 5:
        changed.insert(at, odd_value(rng))
    elif pick == 6 and changed:
        del changed[min(at, len(changed) - 1)]
    elif pick == 7 and changed:
        changed.insert(at, copy.deepcopy(rng.choice(changed)))
    elif pick == 8 and len(changed) > 1:
        first, second = rng.sample(range(len(changed)), 2)
        changed[first], changed[second] = changed[second], changed[first]
    elif pick == 9 and changed:
        at = min(at, len(changed) - 1)
        changed[at] = tweaked(rng, changed[at])
    elif changed:
        changed = [tweaked(rng, entry) if rng.random() < 0.2 else entry for entry in changed]
    return changed


def _duplicated_key(rng: random.Random, text: str) -> str:
    ends = [at for at, letter in enumerate(text) if letter == "}"]
    if not ends:
        return text
    at = rng.choice(ends)
    key = rng.choice(("schema", "body", "kind", "ranks", "chunk", "src", "name"))
    value = dumps(rng.choice((odd_value(rng), 1, "x", Raw("null"))))
    return f'{text[:at]},"{key}":{value}{text[at:]}'
