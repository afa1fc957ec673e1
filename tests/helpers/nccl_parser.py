"""A port of NCCL's XML parser, src/graph/xml.cc of NCCL 2.30.7, with all that it refuses.

It reads less than XML: only spaces and line feeds separate, each attribute follows exactly one space, a value
ends at its quote whatever it holds, and there are neither declarations nor entities. RCCL's is the same.
"""

from dataclasses import dataclass, field

LONGEST, MOST_ATTRIBUTES, MOST_INSIDE = 255, 16, 512
TOPOLOGY = {"system": {"cpu": {"pci": None, "nic": {"net": {}}}}}
PCI = {"gpu": {"nvlink": {}, "xgmi": {}, "c2c": {}}, "nic": {"net": {}}, "pcilink": {}}
PCI["pci"] = PCI
TOPOLOGY["system"]["cpu"]["pci"] = PCI
GRAPHS = {"graphs": {"graph": {"channel": {"gpu": {}, "net": {}}}}}


class RefusedError(Exception):
    """NCCL would end with an error."""


@dataclass
class Node:
    name: str = ""
    attributes: dict = field(default_factory=dict)
    inside: list = field(default_factory=list)
    kind: str = ""


class _Reader:
    def __init__(self, text):
        self.text, self.at = text, 0

    def char(self):
        if self.at == len(self.text):
            raise RefusedError("unexpected end")
        self.at += 1
        return self.text[self.at - 1]

    def value(self):
        quote = self.char()
        if quote not in "\"'":
            raise RefusedError("expected a quote")
        found = ""
        while (one := self.char()) != quote:
            found += one
            if len(found) == LONGEST - 1:
                raise RefusedError("value too long")
        return found, self.char()

    def token(self, *, valued):
        name = ""
        while True:
            one = self.char()
            if one == "=":
                if not valued:
                    raise RefusedError("unexpected value")
                value, last = self.value()
                return name, value, last
            name += one
            if len(name) == LONGEST:
                raise RefusedError("name too long")
            if one in " >/\n\r":
                return name[:-1], None, one

    def node(self):
        one = " "
        while one in " \n\r":
            if self.at == len(self.text):
                return None
            one = self.char()
        if one != "<":
            raise RefusedError(f"expecting '<', got {one!r}")
        node = Node()
        node.name, _, last = self.token(valued=False)
        if node.name.startswith("!--"):
            self.at = self.text.index("-->", self.at - 1) + 3
            return self.node()
        if not node.name and last == "/":
            node.kind = "close"
            node.name, _, last = self.token(valued=False)
            if last != ">":
                raise RefusedError("trailing character in closing tag")
            return node
        node.kind = "open"
        while last == " ":
            name, value, last = self.token(valued=True)
            if len(node.attributes) < MOST_ATTRIBUTES:
                node.attributes[name] = value
        if last == "/":
            node.kind = "single"
            last = self.token(valued=False)[2]
        if last != ">":
            raise RefusedError(f"expected >, got {last!r}")
        return node

    def inside(self, head, known, count):
        if head is not None and head.kind == "single":
            return count
        while True:
            node = self.node()
            if node is None:
                if head is not None:
                    raise RefusedError(f"unterminated {head.name}")
                return count
            if node.kind == "close":
                if head is None or node.name != head.name:
                    raise RefusedError(f"mismatch: {node.name}")
                return count
            if node.name in known:
                if head is not None:
                    if len(head.inside) == MOST_INSIDE:
                        raise RefusedError("too many inside")
                    head.inside.append(node)
                else:
                    self.root = node
                count = self.inside(node, known[node.name], count + 1)
            else:
                self.inside(node, {}, 0)


def parse(content, form=GRAPHS, most=65536):
    """The root element as NCCL reads it, without elements that it does not know. Raises RefusedError."""
    reader = _Reader(content.decode("latin-1"))
    reader.root = None
    if reader.inside(None, form, 0) > most:
        raise RefusedError("too many nodes")
    if reader.root is None:
        raise RefusedError("nothing in it")
    return reader.root
