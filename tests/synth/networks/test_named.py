"""Networks by name: translations are known, and many links are listed only when one is asked for."""

import pickle
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from probes.base.errors import UsageError
from synth.networks.dgx import pod, pod_names
from synth.networks.families import family, names as family_names, shape_of
from synth.networks.named import symmetry_of


def test_many_links_are_listed_when_one_is_asked_for():
    network = family("torus:64x64", [5e-7], [50e9])
    assert (network.ranks, network.links, network.symmetry.translations) == (4096, 16384, 4096)
    assert network.problems() == []
    assert "src" not in vars(network)
    assert len(network.src) == network.links == 16384
    again = pickle.loads(pickle.dumps(network))
    assert np.array_equal(again.dst, network.dst) and again.symmetry is not None


@pytest.mark.parametrize("spec", [*pod_names(), "dgx-h100+nvls", *family_names()])
def test_every_named_network_goes_to_a_worker_process(spec):
    network = pod(f"{spec}:2") if spec not in family_names() else family(_sized(spec), [5e-7], [50e9])
    again = pickle.loads(pickle.dumps(network))
    assert np.array_equal(again.dst, network.dst)
    assert again.multimem_s_per_byte == network.multimem_s_per_byte
    assert (again.symmetry is None) == (network.symmetry is None)


def _sized(spec: str) -> str:
    for shape in ("4", "4x4", "4x4x4", "2x2x2x2"):
        with suppress(UsageError):
            shape_of(f"{spec}:{shape}", [5e-7], [50e9])
            return f"{spec}:{shape}"
    raise AssertionError(spec)


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
