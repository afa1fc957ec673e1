"""Mutants of MSCCL XML: one attribute of one element is changed."""

import random
import re

__all__ = ["MUTATIONS", "mutant"]

MUTATIONS = ("wait dropped", "offset moved", "peer changed", "channel changed", "operation changed")


def mutant(text: str, mutation: str, draw: random.Random) -> str:
    """Return the text with one change of a kind; unchanged if there is nothing to change."""
    match mutation:
        case "wait dropped":
            return _changed(text, r'depid="\d+" deps="\d+"', draw, lambda _: 'depid="-1" deps="-1"')
        case "offset moved":
            return _changed(text, r'(src|dst)off="\d+"', draw, _one_more)
        case "peer changed":
            return _changed(text, r'(send|recv)="-?\d+"', draw, _one_more)
        case "channel changed":
            return _changed(text, r'chan="\d+"', draw, _one_more)
    return _changed(text, r'type="(r|rrc|cpy|re|rcs|rrcs)"', draw, _other_operation)


def _changed(text: str, pattern: str, draw: random.Random, change: object) -> str:
    found = list(re.finditer(pattern, text))
    if not found:
        return text
    one = draw.choice(found)
    return text[: one.start()] + change(one) + text[one.end() :]


def _one_more(found: re.Match) -> str:
    name, value = found[0].rstrip('"').split('="')
    return f'{name}="{int(value) + 1}"'


def _other_operation(found: re.Match) -> str:
    others = {"r": "rrc", "rrc": "r", "cpy": "re", "re": "cpy", "rcs": "rrcs", "rrcs": "rcs"}
    return f'type="{others[found[1]]}"'
