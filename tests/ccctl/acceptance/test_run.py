import pytest

from ccctl.acceptance.folder import AcceptanceFolder
from ccctl.acceptance.run import AcceptanceRun, _links_note


@pytest.mark.parametrize("written", [True, False])
def test_a_stage_that_has_ended_stays_done_when_its_certificate_is_interrupted(
    tmp_path, monkeypatch, written
):
    write = AcceptanceFolder.write_certificate

    def interrupted(folder, certificate):
        if written:
            write(folder, certificate)
        monkeypatch.setattr(AcceptanceFolder, "write_certificate", write)
        raise KeyboardInterrupt

    monkeypatch.setattr(AcceptanceFolder, "write_certificate", interrupted)
    monkeypatch.setattr(AcceptanceRun, "_hosts", lambda run: ())
    run = AcceptanceRun(None, AcceptanceFolder(tmp_path))
    with pytest.raises(KeyboardInterrupt):
        run.measure()
    (stage,) = run.folder.certificate().stages
    assert (stage.name, stage.done) == ("hosts", True)


@pytest.mark.parametrize(
    ("budget_s", "said"),
    [
        (None, ": 5 s, longer for slow links or shared cores"),
        (
            60.0,
            ": 5 s, longer for slow links or shared cores, up to 60 s",
        ),
        (1.0, " that fit into 1 s"),
    ],
)
def test_the_time_for_the_links_is_no_more_than_the_budget(budget_s, said):
    assert _links_note(4, 5.0, budget_s) == f"links: measuring the links between 4 ranks{said}"
