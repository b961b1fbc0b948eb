"""The page of evidence: whatever a file or a model says, it stays text."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import resource

import pytest

from dice_ls.report import render
from dice_ls.report.command import main

EVIDENCE = {
    "name": "k</title><script>alert(1)</script>",
    "summary": "</script><script>alert(2)</script>\u2028",
    "candidates": [],
    "markdown": "",
}


def test_text_cannot_leave_its_place() -> None:
    page = render(EVIDENCE)
    assert "<script>alert" not in page and page.count("</title>") == 1
    data = re.search(r'<script type="application/json" id="dice-data">(.*?)</script>', page, re.DOTALL)
    assert data is not None
    assert json.loads(data[1]) == {**EVIDENCE, "traces": []}


def test_the_policy_allows_exactly_the_scripts_and_the_style_of_the_page() -> None:
    page = render(EVIDENCE)
    inline = re.findall(r"<script>(.*?)</script>", page, re.DOTALL) + re.findall(
        r"<style>(.*?)</style>", page, re.DOTALL
    )
    hashes = {base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in inline}
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None and policy[1].startswith("default-src 'none'; script-src ")
    assert set(re.findall(r"'sha256-([^']*)'", policy[1])) == hashes and len(hashes) == 5
    assert "http" not in policy[1] and "unsafe" not in policy[1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot read"),
        ("{", "is not JSON"),
        ("[]", "is not what"),
        ('{"evidence": {}, "traces": []}', "is not what"),
    ],
)
def test_a_bad_file_is_one_clear_line(tmp_path, capsys, content: str | None, message: str) -> None:
    told = tmp_path / "told.json"
    if content is not None:
        told.write_text(content, encoding="utf-8")
    assert main([str(told), "--out", str(tmp_path / "page.html")]) == 2
    said = capsys.readouterr().err
    assert message in said and said.startswith("dice report: ") and said.count("\n") == 1


def test_the_page_must_go_somewhere(capsys) -> None:
    assert main(["a.cu"]) == 2
    assert "--out" in capsys.readouterr().err


def test_a_page_that_cannot_be_written_whole_leaves_nothing(tmp_path, capsys) -> None:
    told, page = tmp_path / "told.json", tmp_path / "page.html"
    told.write_text(json.dumps({"evidence": EVIDENCE, "traces": []}), encoding="utf-8")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        assert main([str(told), "--out", str(page)]) == 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "cannot write" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [told]
    page.write_text("what was there", encoding="utf-8")
    assert main([str(told), "--out", str(page)]) == 1
    assert page.read_text(encoding="utf-8").startswith("<!") and len(list(tmp_path.iterdir())) == 2
