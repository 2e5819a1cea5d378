from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from .conftest import SMALL_SETTINGS, Fedasd


def test_a_comparison_becomes_a_page(fedasd: Fedasd) -> None:
    assert (
        fedasd(
            "compare", "quickstart", *SMALL_SETTINGS, "executor=serial", "--seeds", "0,1", "--out", "here", "--quiet"
        )[0]
        == 0
    )
    code, out, err = fedasd("report", "here", "absent", "--title", "Ours & theirs", "--out", "pages/report.html")
    assert code == 0
    assert "page      pages/report.html (4 runs)" in out
    assert err == "fedasd: not shown: absent: there is no such folder\n"
    text = Path("pages/report.html").read_text()
    assert "<title>Ours &amp; theirs</title>" in text
    rows = [json.loads(Path(f"here/fedavg-seed{seed}/metrics.jsonl").read_text().splitlines()[-1]) for seed in (0, 1)]
    assert f"{sum(row['acc_all'] for row in rows) / 2:.2f} ± " in text
    assert "fedasd run quickstart method=fedavg+asd seed=1 " in text
    assert Path("pages/figures/accuracy.png").stat().st_size > 1000


def test_the_page_of_one_folder_is_in_it(fedasd: Fedasd) -> None:
    assert fedasd("run", "quickstart", *SMALL_SETTINGS, "executor=serial", "--out", "here", "--quiet")[0] == 0
    assert fedasd("report", "here")[0] == 0
    assert Path("here/report.html").is_file()
    assert Path("here/figures/labels.svg").is_file()


def test_nothing_to_report_is_one_readable_error(fedasd: Fedasd) -> None:
    Path("empty").mkdir()
    code, out, err = fedasd("report", "empty", "absent")
    assert (code, out) == (2, "")
    assert err.startswith("fedasd: nothing to report; empty: no run in this folder")
    assert "absent: there is no such folder" in err


def test_a_watched_page_follows_the_run_to_its_end(fedasd: Fedasd, monkeypatch: pytest.MonkeyPatch) -> None:
    fedasd("run", "quickstart", *SMALL_SETTINGS, "executor=serial", "--out", "here", "--quiet")
    rows = Path("here/metrics.jsonl").read_text().splitlines(keepends=True)
    Path("here/metrics.jsonl").write_text(rows[0])
    seen: list[str] = []

    def finish(seconds: float) -> None:
        seen.append(Path("here/report.html").read_text())
        Path("here/metrics.jsonl").write_text("".join(rows))

    monkeypatch.setattr(time, "sleep", finish)
    code, out, _ = fedasd("report", "here", "--watch", "7")
    assert code == 0
    assert "again every 7 s" in out
    assert ['<meta http-equiv="refresh" content="7">' in text for text in seen] == [True]
    assert "this page loads itself again every 7 s" in seen[0]
    assert "loads itself" not in Path("here/report.html").read_text()
    assert "http-equiv" not in Path("here/report.html").read_text()  # it is finished
    assert Path("here/figures/loss.svg").is_file()
    assert fedasd("report", "here", "--watch", "0")[0] == 2

    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    Path("here/metrics.jsonl").write_text(rows[0])
    monkeypatch.setattr(time, "sleep", interrupt)
    code, out, _ = fedasd("report", "here", "--watch")
    assert (code, "(1 run)" in out) == (0, True)
    assert "http-equiv" not in Path("here/report.html").read_text()  # it is not written again
