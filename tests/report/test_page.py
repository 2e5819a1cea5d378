from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from fedasd_fast import presets
from fedasd_fast.common.html import Html
from fedasd_fast.common.plotting import new_figure
from fedasd_fast.common.schema import ConfigError
from fedasd_fast.config import Config, parse_overrides
from fedasd_fast.report import analysis_results, page
from fedasd_fast.report.figure_writer import FigureWriter, embedded
from fedasd_fast.report.label_distribution import MAX_BUBBLES, label_distribution_figure
from fedasd_fast.report.page_style import PAGE_CSS
from fedasd_fast.report.results_tables import difference_from_paper, gains_from_asd, rounds_text
from fedasd_fast.report.round_plots import MAX_LINES, line_styles, rounds_figure
from fedasd_fast.report.run_details import portable_settings, repeat_command
from fedasd_fast.report.run_discovery import find_runs
from fedasd_fast.report.run_group import RunGroup, group_runs
from fedasd_fast.report.seed_curves import mean_and_range, moving_average, updates_per_second
from fedasd_fast.settings import ASD
from fedasd_fast.simulation.storage.recorded_run import Curve, RecordedRun

from .synthetic_runs import synthetic_run

VOID_TAGS = {"meta", "br", "img", "link"}
LOADING_ATTRIBUTES = {"src", "srcset", "href", "xlink:href", "action", "data", "poster"}


def accuracies(run: RecordedRun) -> Curve:
    return run.accuracies("all")


class PageChecker(HTMLParser):
    """What a browser would build: refuses what is not nested, and gathers text, identifiers and links."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.words: list[str] = []
        self.labels: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in VOID_TAGS:
            self.open.append(tag)
        for name, value in attributes:
            if name == "id":
                self.ids.append(value or "")
            if name in LOADING_ATTRIBUTES:
                self.links.append(value or "")
            if name == "aria-label":
                self.labels.append(value or "")

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attributes)
        if tag not in VOID_TAGS:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style"} & set(self.open):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


class NamesOnly(FigureWriter):
    """Saves nothing, because that takes most of the time; remembers the names."""

    def write(self, figure: Any, name: str, **_: Any) -> Html:
        self.names.append(name)
        return Html()


def document_and_names(folder: Path, data_dir: str | None = None) -> tuple[str, list[str]]:
    """The page without figures, and their names."""
    writer = NamesOnly(folder)
    return page.document(group_runs(find_runs([folder])[0]), [], writer, "", data_dir), writer.names


def write_synthetic_run(
    folder: Path, accuracies: dict[int, float | None] | None = None, rounds: int = 10, **changes: Any
) -> Path:
    """A run directory with made-up metrics."""
    run = synthetic_run(accuracies=accuracies)
    config = Config(**{"rounds": rounds, "clients": 8, **changes})
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(config.to_yaml())
    rows = [{**row, "drift": 1 / row["round"], "client_distance": 2.0, "steps": 40} for row in run.metrics]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[page.ReportPage, str]:
    """A page with everything: seeds, methods, an unfinished run, free text, damaged files, an analysis of its own."""
    top = tmp_path_factory.mktemp("runs")
    for seed, end in ((0, 61.25), (1, 63.75)):
        write_synthetic_run(top / "a" / f"avg{seed}", {5: 40.0, 10: end}, seed=seed)
        write_synthetic_run(top / "a" / "deep" / f"asd{seed}", {5: 30.0, 10: end + 3}, seed=seed, method="fedavg+asd")
    strange = write_synthetic_run(top / "<b>", {10: 12.5}, rounds=40, name="<script>alert('1')</script> $x_$")
    (strange / "analysis").mkdir()
    (strange / "analysis" / "doubles.json").write_text('{"trace": 3.25, "values": [1, 2]}')
    (strange / "analysis" / "unknown.json").write_text('{"value": 7.125}')
    (strange / "analysis" / "hessian.json").write_text("{")
    write_synthetic_run(top / "damaged", name="damaged")
    rows = ('{"round": 1, "acc_all": 1.5}', '{"rou', '{"round": 3, "acc_all": 3.5}', "[1, 2]")
    (top / "damaged" / "metrics.jsonl").write_text("\n".join(rows) + "\n")
    write_synthetic_run(top / "unreadable")
    (top / "unreadable" / "config.yaml").write_text("rounds: [")

    def doubles(results: list[dict[str, Any]]) -> Any:
        figure = new_figure(5, 3)
        figure.add_subplot().plot(results[0]["values"], label=results[0]["label"])
        return figure

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(analysis_results.FIGURES, "doubles", doubles)
        written = page.write_report([top, top / "a", top / "absent"], top / "out" / "report.html")
    return written, written.path.read_text(encoding="utf-8")


def test_the_page_is_well_formed_and_semantic(shown: tuple[page.ReportPage, str]) -> None:
    found = PageChecker(shown[1])
    assert {"html", "head", "title", "main", "header", "footer", "nav", "figure", "figcaption", "details"} <= {
        *found.tags
    }
    assert found.tags.count("h1") == 1
    assert len(found.ids) == len(set(found.ids))
    assert 'name="viewport"' in shown[1]
    assert "prefers-color-scheme: dark" in shown[1]
    assert found.tags.count("figcaption") == found.tags.count("figure") == len(shown[0].names)
    for caption in re.findall("<figcaption>(.*?)</figcaption>", shown[1]):
        assert "Look " in caption
    for drawing in re.findall("<svg[^>]*>", shown[1]):
        assert 'role="img" aria-label="' in drawing


def test_it_loads_nothing(shown: tuple[page.ReportPage, str]) -> None:
    found = PageChecker(shown[1])
    assert not {"script", "link", "img", "iframe", "object"} & set(found.tags)
    targets = {f"#{name}" for name in found.ids}
    assert all(link in targets or link.startswith("data:image/png;base64,") for link in found.links)
    assert found.links
    assert "@import" not in shown[1]
    assert not re.search(r"url\((?!#)", shown[1])
    assert set(re.findall(r"url\((#[^)]*)\)", shown[1])) <= targets


def test_it_has_the_numbers(shown: tuple[page.ReportPage, str]) -> None:
    text = PageChecker(shown[1]).text
    assert "62.50 ± 1.77" in text  # FedAvg
    assert "65.50 ± 1.77" in text
    assert "+3.00" in text
    assert "12.50" in text
    assert "FedAvg 10.0 1.0 80 8.0 12.5" in text  # seconds of training and evaluation, updates, a second, ms a step
    assert "10 of 40" in text
    assert "(25%). To continue it: fedasd resume" in text
    assert any("FedAvg seed 1 ends at 63.75" in label for label in PageChecker(shown[1]).labels)


def test_free_text_is_escaped(shown: tuple[page.ReportPage, str]) -> None:
    assert "<script" not in shown[1]
    assert "<script>alert('1')</script> $x_$" in PageChecker(shown[1]).text


def test_what_is_damaged_is_named_and_the_rest_is_shown(shown: tuple[page.ReportPage, str]) -> None:
    written, text = shown[0], PageChecker(shown[1]).text
    assert len(written.runs) == 6  # each once, though two of the folders contain them
    why = {problem.path.name: str(problem) for problem in written.unreadable}
    assert sorted(why) == ["absent", "unreadable"]
    assert "while parsing" in why["unreadable"]
    assert all(reason in text for reason in why.values())
    damaged = [str(line) for line in written.bad_lines]
    assert "line 2, is left out: it is not valid JSON" in damaged[0]
    assert damaged[1].endswith("line 4, is left out: it is not an object: [1, 2]")
    assert all(line in text for line in damaged)
    assert "3.50" in text  # the row after the damaged line


def test_analyses_are_drawn_or_named(shown: tuple[page.ReportPage, str]) -> None:
    text = PageChecker(shown[1]).text
    assert any(name.endswith("doubles") for name in shown[0].names)
    assert "3.25" in text
    assert "7.125" in text
    assert re.search(r"unknown.json is not plotted: this version has no plot for it \(it has: cost, .*, doubles,", text)
    assert re.search(r"hessian.json cannot be read: Expecting", text)


def test_an_analysis_that_cannot_be_drawn_costs_no_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = write_synthetic_run(tmp_path / "run", {10: 50.0})
    (run / "analysis").mkdir()
    (run / "analysis" / "cost.json").write_text("{}")
    monkeypatch.setitem(analysis_results.FIGURES, "cost", lambda results: results[0]["seconds"])
    text, _ = document_and_names(run)
    assert "analysis/cost.json cannot be plotted: KeyError: &#x27;seconds&#x27;" in text


def test_figures_are_left_beside_it_and_the_bytes_repeat(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path / "run", {5: 40.0, 10: 50.0})

    def content(out: Path) -> Iterator[bytes]:
        written = page.write_report([run], out)
        yield written.path.read_bytes()
        files = sorted(written.figures.iterdir())
        assert {file.stem for file in files} >= {"accuracy", "labels", "time", "throughput", "drift", "client_distance"}
        assert [file.suffix for file in files] == [".png", ".svg"] * len(written.names)
        yield from (file.read_bytes() for file in files)

    assert list(content(tmp_path / "one" / "report.html")) == list(content(tmp_path / "two" / "page.html"))
    assert (tmp_path / "two" / "page-figures").is_dir()


def test_data_that_is_not_here_is_a_note(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path / "run", dataset="cifar100", model="cnn_cifar")
    text, _ = document_and_names(run, str(tmp_path / "nothing"))
    assert "The label distribution cannot be plotted: " in text


def test_nothing_to_show_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing to report; .*absent: there is no such folder"):
        page.write_report([tmp_path / "absent"], tmp_path / "report.html")
    assert not list(tmp_path.iterdir())


def test_labels_say_what_differs() -> None:
    runs = [
        synthetic_run(method=m, asd=ASD(weight=w), seed=s) for m in ("fedavg+asd",) for w in (10.0, 3.0) for s in (0, 1)
    ]
    runs += [synthetic_run(partition="iid", executor="serial"), synthetic_run(partition="iid")]
    mixed, even = group_runs(runs)
    assert mixed.labels == ["FedAvg+ASD, asd.weight=3.0", "FedAvg+ASD, asd.weight=10.0"]
    assert [run.config.seed for run in mixed.with_label(mixed.labels[0])] == [0, 1]
    assert even.labels == ["FedAvg"]  # who computes it makes no other experiment
    assert {mixed.title, even.title} == {"run, synthetic, dirichlet_0.3", "run, synthetic, iid"}


def test_the_gain_needs_runs_that_got_equally_far() -> None:
    def gains(end: int) -> dict[str, float]:
        runs = [synthetic_run("FedAvg", {10: 50.0}), synthetic_run("FedAvg+ASD", {end: 55.0})]
        return gains_from_asd(RunGroup("", runs))

    assert gains(10) == {"FedAvg+ASD": 5.0}
    assert gains(9) == {}


def test_only_the_papers_settings_stand_difference_from_paper() -> None:
    def difference(words: list[str], done: int) -> float | None:
        config = presets.load("table4_500clients", words)
        run = RecordedRun("FedAvg", config, [{"round": done, "acc_sel": 30.0}])
        paper = presets.expected(config)
        assert paper is not None
        return difference_from_paper([run], paper)

    plain = ["method=fedavg"]
    paper = presets.expected("table4_500clients", plain)
    assert paper is not None
    assert difference(plain, 1000) == pytest.approx(30.0 - paper.mean)
    assert difference(plain, 999) is None
    assert difference([*plain, "rounds=50"], 50) is None
    assert difference([*plain, "local_epochs=1"], 1000) is None


def test_how_far_runs_got() -> None:
    ten, twenty = synthetic_run(), RecordedRun("FedAvg", Config(rounds=20), synthetic_run().metrics[:4])
    assert rounds_text([ten]) == "10"
    assert rounds_text([twenty]) == "4 of 20"
    assert rounds_text([ten, twenty]) == "4..10 of 10..20"


@pytest.mark.parametrize("name", ["quickstart", "table4_500clients", "table2_cifar100"])
def test_the_command_repeats_the_run(name: str) -> None:
    words = [
        "method=feddyn+asd",
        "seed=3",
        "asd.weight=7",
        "eval_models=[sel]",
        "optimizer.clip_norm=null",
        "threads=2",
    ]
    config = presets.load(name, words)
    said = repeat_command(RecordedRun("", config.replace(out="somewhere", data_dir="elsewhere"), []))
    program, run, preset, *given = re.sub("'", "", said).split()
    assert (program, run, preset) == ("fedasd", "run", name)
    assert portable_settings(presets.load(preset, parse_overrides(given))) == portable_settings(config)


def test_a_run_without_a_preset_is_repeated_from_its_folder() -> None:
    said = repeat_command(RecordedRun("", Config(name="mine"), [], Path("my runs/a")))
    assert said == "fedasd run 'my runs/a/config.yaml' --out 'my runs/a-again'"


def test_bands_reach_from_the_lowest_seed_to_the_highest() -> None:
    curves = [{1: 1.0, 2: 5.0}, {1: 3.0, 2: 7.0, 3: 9.0}]
    assert mean_and_range(curves) == ({1: 2.0, 2: 6.0}, {1: 1.0, 2: 5.0}, {1: 3.0, 2: 7.0})
    runs = [synthetic_run(accuracies={5: a, 10: b}, seed=s) for s, (a, b) in enumerate([(40.0, 60.0), (44.0, 64.0)])]
    figure = rounds_figure(runs, accuracies, title="", ylabel="")
    (band,) = figure.axes[0].collections
    assert band.get_datalim(figure.axes[0].transData).y0 == 40.0
    assert band.get_datalim(figure.axes[0].transData).y1 == 64.0
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["FedAvg  62.00"]


def test_lines_differ_in_colour_and_marker_and_asd_in_the_line() -> None:
    look = line_styles(["FedAvg", "FedAvg+ASD", "FedDyn", "FedDyn+ASD"])
    assert look["FedAvg"].colour == look["FedAvg+ASD"].colour != look["FedDyn"].colour
    assert look["FedAvg"].line != look["FedAvg+ASD"].line
    assert len(set(line_styles(["FedAvg", "FedAvg+ASD"]).values())) == 2
    alone = line_styles([str(i) for i in range(MAX_LINES)])
    assert len({(style.colour, style.marker) for style in alone.values()}) == MAX_LINES


def test_more_lines_than_can_be_told_apart_are_several_figures(tmp_path: Path) -> None:
    for i in range(MAX_LINES + 1):
        write_synthetic_run(
            tmp_path / str(i), {10: 50.0 + i}, method="fedavg+asd", asd=ASD(weight=float(i)), eval_models=("all",)
        )
    _, names = document_and_names(tmp_path)
    assert {"accuracy-1", "accuracy-2", "drift-1", "drift-2"} <= set(names)


def test_a_label_looks_the_same_in_all_parts() -> None:
    labels = [f"FedAvg+ASD, asd.weight={i}" for i in range(4)]
    part = [synthetic_run(label, {5: 1.0, 10: 2.0}) for label in labels[2:]]
    figure = rounds_figure(part, accuracies, title="", ylabel="", all_labels=labels)
    drawn = [(line.get_color(), line.get_marker()) for line in figure.axes[0].lines]
    look = line_styles(labels)
    assert drawn == [(look[label].colour, look[label].marker) for label in labels[2:]]


def test_moving_means() -> None:
    assert moving_average({1: 0.0, 2: 3.0, 3: 6.0, 5: 0.0}, 3) == {1: 1.5, 2: 3.0, 3: 3.0, 5: 3.0}
    assert moving_average({1: 4.0}, 9) == {1: 4.0}
    rows = [{"round": i, "seconds": s, "client_updates": 6} for i, s in enumerate((1.0, 2.0), 1)]
    assert updates_per_second(RecordedRun("", Config(), rows)) == {1: 6.0, 2: 3.0}


def test_drawings_follow_the_page_and_maps_keep_their_paper(tmp_path: Path) -> None:
    writer = FigureWriter(tmp_path)
    lines, map_ = new_figure(4, 3), new_figure(4, 3)
    lines.add_subplot().plot([1, 2])
    map_.add_subplot().imshow([[1, 2]])
    drawn = writer.write(lines, "a/b", caption="Look", alt='"quoted"')
    assert "var(--paper)" in drawn
    assert "#ffffff" not in drawn
    assert "#000000" not in drawn
    assert 'aria-label="&quot;quoted&quot;"' in drawn
    assert "#ffffff" in (tmp_path / "a-b.svg").read_text()  # the file stands alone
    kept = writer.write(map_, "A-b", caption="Look", alt="")
    assert "plot card" in kept
    assert "var(--paper)" not in kept
    assert writer.names == ["a-b", "a-b-2"]


def test_a_dark_page_has_dark_maps_and_light_bubbles(tmp_path: Path) -> None:
    writer = FigureWriter(tmp_path)
    few, many = [[3, 1], [0, 4]], [[1, 2]] * (MAX_BUBBLES[0] + 1)
    bubbles, map_ = (writer.write(label_distribution_figure(c, ""), "x", caption="Look", alt="") for c in (few, many))
    assert "var(--dot)" in bubbles
    assert "plot card" not in bubbles
    assert "plot card" in map_
    dark = PAGE_CSS[PAGE_CSS.index(".card {") :]
    assert re.search(r"prefers-color-scheme: dark\) \{[^@]*\.card svg \{ filter: invert", dark)
    assert PAGE_CSS.count("--dot:") == 2  # one for each scheme


def test_dates_processors_and_durations_are_shown(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path / "run", {10: 50.0})
    row = {"round": 0, "date": "2025-03-01T14:05:59+00:00", "torch": "2.13.0", "cpu": "A processor, 2 cores"}
    rows = [row, {**row, "round": 6, "date": "2025-03-02T10:00:00+00:00", "cpu": "Another, 1 core"}]
    (run / "versions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = PageChecker(document_and_names(run)[0]).text
    assert "FedAvg 0 10 2025-03-01 14:05 UTC A processor, 2 cores, then Another, 1 core 5 s" in text
    assert "Run with torch 2.13.0; from round 7 on with torch 2.13.0." in text
    (run / "versions.jsonl").write_text(json.dumps({"round": 0, "date": ["no"]}) + "\n")  # of another version
    assert "FedAvg 0 10 - - 5 s" in PageChecker(document_and_names(run)[0]).text


def test_identifiers_of_drawings_do_not_meet() -> None:
    drawn = '<?xml?><svg width="1" viewBox="0 0 1 1"><g id="a"/><use xlink:href="#a" clip-path="url(#a)"/></svg>'
    assert embedded(drawn, "f1-", "x", themed=True) == (
        '<svg role="img" aria-label="x" viewBox="0 0 1 1">'
        '<g id="f1-a"/><use xlink:href="#f1-a" clip-path="url(#f1-a)"/></svg>'
    )


def test_folders_are_searched_but_not_inside_runs(tmp_path: Path) -> None:
    outer = write_synthetic_run(tmp_path / "outer")
    write_synthetic_run(outer / "clients" / "inner", seed=1)
    runs, broken = find_runs([tmp_path])
    assert [run.out for run in runs] == [outer]
    assert not broken


def test_a_long_name_stays_inside_the_picture() -> None:
    label = "FedAvg+ASD, augment=epoch, asd.weight=30.0, teacher=recompute"
    run = synthetic_run(label, {5: 20.0, 10: 31.0})
    figure = rounds_figure([run], accuracies, title="", ylabel="", paper={label: 31.3})
    figure.canvas.draw()
    (legend,) = figure.legends
    box = legend.get_window_extent()
    assert 0 <= box.x0 < box.x1 <= figure.bbox.width
    assert 0 <= box.y0 < box.y1 < figure.axes[0].get_window_extent().y0


def test_the_name_of_an_axis_stays_inside_beside_long_ticks() -> None:
    run = synthetic_run(accuracies={9: 1.06, 10: 1.26})
    figure = rounds_figure([run], accuracies, title="", ylabel="loss")
    figure.canvas.draw()
    ticks = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert max(map(len, ticks)) == 5
    assert figure.axes[0].yaxis.label.get_window_extent().x0 >= 0
