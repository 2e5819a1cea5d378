"""What `fedasd analyse` leaves is what `fedasd report` draws: every analysis, of two runs."""

from __future__ import annotations

from pathlib import Path

from fedasd_fast.analysis.registry import ANALYSES
from fedasd_fast.cli.main import main
from fedasd_fast.simulation import simulate
from tests.simulation.small_runs import small


def test_every_analysis_is_drawn(tmp_path: Path) -> None:
    for method in ("fedavg", "fedavg+asd"):
        out = tmp_path / method
        simulate(small(method=method, rounds=4, participation=0.8, out=str(out)))
        quick = ["hessian.top=2", "hessian.probes=3", "hessian.lanczos_steps=8", "dissimilarity.clients=4"]
        assert main(["analyse", str(out), "--quiet", *quick, "forgetting.clients=2", "weights.clients=2"]) == 0
        assert {path.stem for path in (out / "analysis").glob("*.json")} == set(ANALYSES)
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text()
    assert "cannot be drawn" not in page
    assert "is not drawn" not in page
    for title in ("the Hessian of", "Gradient dissimilarity", "Forgetting", "Weights and entropies", "against cost"):
        assert title in page
    figures = {path.stem for path in (tmp_path / "page-figures").glob("*.png")}
    assert sum("forgetting" in name for name in figures) == 2  # one for each run
