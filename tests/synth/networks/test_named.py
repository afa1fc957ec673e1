"""Networks by name: translations are known, and many links are listed only when one is asked for."""

import pickle
from dataclasses import replace

import numpy as np
import pytest

from probes.base.errors import UsageError
from synth.networks.dgx import pod
from synth.networks.families import family
from synth.networks.named import symmetry_of


def test_many_links_are_listed_when_one_is_asked_for():
    network = family("torus:64x64", [5e-7], [50e9])
    assert (network.ranks, network.links, network.symmetry.translations) == (4096, 16384, 4096)
    assert network.problems() == []
    assert "src" not in vars(network)
    assert len(network.src) == network.links == 16384
    again = pickle.loads(pickle.dumps(network))
    assert np.array_equal(again.dst, network.dst) and again.symmetry is not None


def test_more_links_than_fit_are_refused_where_they_are_needed():
    network = pod("dgx-h100:512")
    assert network.links > 1 << 22
    with pytest.raises(UsageError, match="more than the"):
        _ = network.src
    with pytest.raises(UsageError, match="more than the"):
        family("mesh:4000x4000", [0.0], [1e9])


def test_a_network_that_was_changed_has_no_translations_by_name():
    torus = family("torus:4x4", [5e-7], [50e9])
    slow = replace(torus, beta_s_per_byte=np.where(torus.src == 0, 1e-9, 2e-11))
    assert torus.symmetry is not None and slow.symmetry is None
    assert symmetry_of(slow) is None
    assert symmetry_of(replace(torus)).translations == 16
