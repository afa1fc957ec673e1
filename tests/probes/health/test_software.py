"""Versions from the names of library files."""

from probes.health.software import library_facts, package_versions


def put(root, name, content=""):
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(content)


def test_versions_are_those_of_the_files_names(tmp_path):
    put(tmp_path, "usr/lib/x86_64-linux-gnu/libnccl.so.2")
    put(tmp_path, "usr/lib/x86_64-linux-gnu/libnccl.so.2.21.5")
    put(tmp_path, "usr/local/lib/libnccl.so.2.18.3")
    put(tmp_path, "usr/lib/x86_64-linux-gnu/libnccl-net.so.0.0.1")
    put(tmp_path, "usr/local/cuda-12.4/lib64/libcudart.so.12.4.127")
    put(tmp_path, "opt/amazon/openmpi/lib/libmpi.so.40.30.6")
    put(
        tmp_path,
        "usr/bin/ofed_info",
        "#!/bin/bash\necho\nMLNX_OFED_LINUX-24.04-0.6.6.0 (OFED-24.04-0.6.6):\n",
    )
    facts = library_facts(tmp_path)
    assert facts["nccl"] == "2.18.3, 2.21.5"
    assert facts["nccl plugin"] == "0.0.1"
    assert facts["cuda"] == "12.4.127"
    assert facts["mpi"] == "40.30.6"
    assert facts["ucx"] == "none"
    assert facts["ofed package"] == "MLNX_OFED_LINUX-24.04-0.6.6.0"


def test_an_empty_machine_has_none(tmp_path):
    assert set(library_facts(tmp_path).values()) == {"none"}


def test_installed_packages_have_their_versions():
    assert package_versions() == "none" or all(" " in one for one in package_versions().split(", "))
