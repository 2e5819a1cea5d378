from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fedasd_fast.analysis.dominant_class import METHOD_VARIANTS, dominant_class, main
from fedasd_fast.analysis.loaded_run import LoadedRun, load_run
from fedasd_fast.simulation import simulate

from ..simulation.small_runs import small_config


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> LoadedRun:
    out = tmp_path_factory.mktemp("run")
    simulate(small_config(out=str(out)))
    return load_run(out)


def test_a_class_that_was_made_to_dominate_is_found(run: LoadedRun) -> None:
    cloud = run.state.cloud.clone()
    cloud[1 - run.context.experiment.data.num_classes] += 50  # the last layer's biases come last: that of class 1
    found = dominant_class(replace(run, state=replace(run.state, cloud=cloud)))
    assert (found.label, found.predicted) == (1, found.samples)
    assert found.lead == pytest.approx(50, abs=10)
    assert list(found.changes) == list(METHOD_VARIANTS)
    assert found.changes["FedAvg"][0] < 0
    assert f"class 1 is predicted for {found.samples} of {found.samples} " in str(found)


def test_the_command(run: LoadedRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(run.path), "--samples", "30", "--clients", "2"]) == 0
    first, _, *changes = capsys.readouterr().out.splitlines()
    assert first.endswith(" of 30 training samples")
    assert [line[2:32].strip() for line in changes] == list(METHOD_VARIANTS)
    for words, message in (([], "the following arguments are required: RUN"), ([str(tmp_path)], "config.yaml")):
        with pytest.raises(SystemExit, match="2"):
            main(words)
        assert message in capsys.readouterr().err
