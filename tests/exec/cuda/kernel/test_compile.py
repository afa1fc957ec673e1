"""The kernels compile for every GPU from Volta on; from Turing on two blocks fit on a multiprocessor."""

import pytest
from cubins import NVCC, NVRTC, by_nvcc
from drawn_examples import chessboard

from exec.cuda.kernel.compile import cubin
from exec.cuda.kernel.elements import ELEMENTS, OPERATORS, SWITCH_ELEMENTS, element_of
from exec.cuda.kernel.source import THREADS, kernels
from probes.base.errors import UnavailableError, UsageError

ARCHITECTURES = (70, 75, 80, 86, 89, 90, 100)
NAMES = {"ccctl_interpret", "ccctl_combine", "ccctl_divide"}
# A multiprocessor of any of these has 65536 registers.
MOST_REGISTERS = 65536 // THREADS
needs_nvrtc = pytest.mark.skipif(
    not NVRTC, reason="NVRTC is not installed (cuda-bindings, nvidia-cuda-nvrtc)"
)


def checked(found, what, capsys, resident=2):
    assert set(found) == NAMES
    with capsys.disabled():
        told = ", ".join(
            f"{name} {need.registers} registers, {need.spilled_bytes} bytes spilled"
            for name, need in sorted(found.items())
        )
        print(f"\n{what}: {told}", end="")
    for need in found.values():
        assert need.registers <= MOST_REGISTERS // resident
        assert need.spilled_bytes == 0


# All architectures, types, operators and protocols; `make test-long` compiles more of their pairs.
SPREAD = (
    ("float32", "sum", 70, "Simple"),
    ("int16", "min", 70, "LL"),
    ("float64", "prod", 75, "LL"),
    ("bfloat16", "min", 80, "LL128"),
    ("int8", "sum", 80, "LL"),
    ("uint8", "sum", 80, "Simple"),
    ("float16", "max", 86, "Simple"),
    ("int32", "avg", 89, "LL"),
    ("int64", "sum", 90, "LL128"),
    ("float32", "sum", 100, "Simple"),
)


def test_everything_is_compiled():
    dtypes, redops, architectures, protocols = map(set, zip(*SPREAD, strict=True))
    assert (dtypes, redops, architectures) == ({*ELEMENTS}, {*OPERATORS}, {*ARCHITECTURES})
    assert protocols == {"Simple", "LL", "LL128"}


@needs_nvrtc
@pytest.mark.parametrize(("dtype", "redop", "architecture", "by"), SPREAD)
def test_every_architecture_type_operator_and_protocol(dtype, redop, architecture, by, capsys):
    found = cubin(dtype, redop, architecture, by).needs
    checked(found, f"{dtype} {redop}, sm_{architecture}, {by}", capsys, 1 if architecture < 75 else 2)


@needs_nvrtc
@pytest.mark.long
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_architecture(architecture, capsys):
    resident = 1 if architecture < 75 else 2
    checked(cubin("float32", "sum", architecture).needs, f"sm_{architecture}", capsys, resident)


@needs_nvrtc
@pytest.mark.parametrize(
    "name",
    [
        "nvrtcGetSupportedArchs",
        "nvrtcCreateProgram",
        "nvrtcCompileProgram",
        "nvrtcGetProgramLogSize",
        "nvrtcGetProgramLog",
        "nvrtcGetCUBINSize",
        "nvrtcGetCUBIN",
    ],
)
def test_a_fault_at_each_call_of_nvrtc_is_told_and_frees_the_program(name, monkeypatch):
    from cuda.bindings import nvrtc

    freed, failure = [], nvrtc.nvrtcResult.NVRTC_ERROR_OUT_OF_MEMORY
    for call in [each for each in vars(nvrtc) if each.startswith("nvrtc") and each != "nvrtcResult"]:
        answer = {"nvrtcCompileProgram": (), "nvrtcGetSupportedArchs": ([80],)}.get(call, (8,))

        def answered(*_, _name=call, _answer=answer):
            freed.extend(["program"] * (_name == "nvrtcDestroyProgram"))
            return (failure if _name == name else nvrtc.nvrtcResult.NVRTC_SUCCESS, *_answer)

        answered.__name__ = call
        monkeypatch.setattr(nvrtc, call, answered)
    with pytest.raises(UnavailableError, match=f"^NVRTC: {name} fails: NVRTC_ERROR_OUT_OF_MEMORY$") as caught:
        cubin.__wrapped__("float32", "sum", 80)
    assert "ccctl doctor" in caught.value.hint
    assert freed == ["program"] * (name not in ("nvrtcGetSupportedArchs", "nvrtcCreateProgram"))


@pytest.mark.parametrize(("dtype", "element"), [("half", "Half"), ("bf16", "Bfloat"), ("int32", "int")])
def test_every_name_of_a_type_is_understood(dtype, element):
    assert element_of(dtype) == element


@needs_nvrtc
@pytest.mark.long
# float32 is compiled for sm_80 among the architectures.
@pytest.mark.parametrize("dtype", [each for each in ELEMENTS if each != "float32"])
def test_every_type(dtype, capsys):
    checked(cubin(dtype, "sum", 80).needs, dtype, capsys)


@needs_nvrtc
@pytest.mark.long
@pytest.mark.parametrize("redop", OPERATORS)
def test_every_operator(redop, capsys):
    checked(cubin("bfloat16", redop, 75).needs, redop, capsys)


@pytest.mark.skipif(not NVCC, reason="nvcc is not installed")
def test_the_toolkits_compiler(tmp_path, capsys):
    checked(by_nvcc(kernels("float16", "sum"), 90, tmp_path), "nvcc, sm_90", capsys)


@pytest.mark.parametrize("arguments", [("float128", "sum"), ("float32", "xor")])
def test_unknown_types_and_operators_are_refused(arguments):
    with pytest.raises(UsageError, match="expected one of"):
        kernels(*arguments)


@needs_nvrtc
def test_a_gpu_that_nvrtc_does_not_know_is_named():
    with pytest.raises(UnavailableError, match="this GPU is sm_7000"):
        cubin("float32", "sum", 7000)


# For int8 by LL128, 20 bytes spill on sm_75 and sm_80.
OF_LINES = [*((each, "float32") for each in ARCHITECTURES), (70, "bfloat16"), (90, "int64")]


@needs_nvrtc
@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "by"), [*((kind, by) for kind in OF_LINES for by in ("LL", "LL128")), ((80, "int8"), "LL")]
)
def test_lines_of_every_architecture(kind, by):
    architecture, dtype = kind
    need = cubin(dtype, "sum", architecture, by).needs["ccctl_interpret"]
    assert need.registers <= MOST_REGISTERS // (1 if architecture < 75 else 2)
    assert need.spilled_bytes == 0


@needs_nvrtc
@pytest.mark.parametrize(("dtype", "architecture"), chessboard(SWITCH_ELEMENTS, [100, 90]))
def test_instructions_of_switches(dtype, architecture):
    need = cubin(dtype, "sum", architecture, multimem=True).needs["ccctl_interpret"]
    assert need.registers <= MOST_REGISTERS // 2
    if need.spilled_bytes > 0:
        assert architecture == 100
        assert cubin(dtype, "sum", architecture).needs["ccctl_interpret"].spilled_bytes > 0
