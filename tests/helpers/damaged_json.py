"""JSON documents with one value replaced by any other, as a damaged or foreign file may have it."""

import copy
import json

from hypothesis import strategies as st

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@st.composite
def damaged(draw, document):
    """The bytes of the document with one value replaced."""
    found = copy.deepcopy(document)
    place = found
    while keys := list(place) if isinstance(place, dict) else list(range(len(place))):
        key = draw(st.sampled_from(keys))
        if not isinstance(place[key], dict | list) or not place[key] or draw(st.booleans()):
            place[key] = draw(JSON)
            break
        place = place[key]
    return json.dumps(found).encode()
