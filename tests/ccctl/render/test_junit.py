from xml.etree import ElementTree

from ccctl.render.junit_xml import Case, junit


def test_cases_are_counted_and_told():
    cases = [
        Case("a", 1.5, "passed", "well"),
        Case("b", 0.0, "failed", "too <slow>\x00 & late"),
        Case("c", 0.0, "skipped", "small"),
    ]
    root = ElementTree.fromstring(junit("suite \x1b", cases))
    suite = root.find("testsuite")
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("3", "1", "1")
    found = suite.findall("testcase")
    assert [case.get("name") for case in found] == ["a", "b", "c"]
    assert found[1].find("failure").get("message") == "too <slow>\\x00 & late"
    assert found[2].find("skipped").get("message") == "small"
    assert found[0].find("system-out").text == "well"
