"""The parts of the page that show one experiment."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..common.formatting import MODELS, written
from ..common.html import Html, details, element, joined, section, table
from ..common.schema import ConfigError
from ..config import Config
from ..simulation.storage.recorded_run import Run
from . import analysis_results as analyses
from . import label_distribution as labels
from . import page_plots as figures
from . import results_tables as results
from .accuracy_plot import setting_text
from .experiment import Experiment
from .figure_writer import Album
from .page_plots import Curve
from .run_details import details_of

_MOST_CLIENTS = 2000  # in a picture; of a larger population, evenly spread ones
_BAND = " The band reaches from the lowest to the highest seed, the line is their mean."


class Sections:
    """What one experiment shows; `prefix` begins the names of its figures."""

    def __init__(self, experiment: Experiment, album: Album, prefix: str, data_dir: str | None = None) -> None:
        self.experiment, self.album, self.prefix, self.data_dir = experiment, album, prefix, data_dir
        self.runs, self.labels = experiment.runs, experiment.labels
        self.several_seeds = len(self.runs) > len(self.labels)

    def all(self) -> list[Html]:
        parts = [
            element("p", setting_text([run.config for run in self.runs]), class_="muted"),
            results.section_of(self.experiment),
            self.accuracy(),
            self.label_distribution(),
            self.time(),
            self.drift(),
            *self.analyses(),
            section(3, "Runs", *map(details_of, self.runs)),
        ]
        return [part for part in parts if part]

    def accuracy(self) -> Html:
        model, expected = self.experiment.model, self.experiment.expected
        paper = {label: n.mean for label, n in expected.items() if n.comparable and n.model == model}
        caption = f"Test accuracy of {_the(MODELS[model])}. Look at where the lines end and whether they still rise: "
        caption += "a line that is behind early may lead late."
        if paper:
            rounds = sorted({expected[label].rounds for label in paper})
            caption += f" Dotted: the paper's number, after {' or '.join(map(str, rounds))} rounds."
        unfinished = [run for run in self.runs if not run.finished]
        if unfinished:
            caption += f" {_count(unfinished, 'run')} not finished: the lines end where they got to."
        title = f"Test accuracy, {model} (%)"
        main = self._lines("accuracy", title, figures.accuracy(model), caption, "test accuracy (%)", paper)
        others = [m for m in MODELS if m != model and any(run.curve(m)[0] for run in self.runs)]
        more = [
            self._lines(
                f"accuracy-{m}",
                f"Test accuracy, {m} (%)",
                figures.accuracy(m),
                f"Test accuracy of {_the(MODELS[m])}. Look at how much it swings from one evaluation to the next.",
                "test accuracy (%)",
            )
            for m in others
        ]
        rest = details("The other averaged models", _grid(more)) if more else ""
        return section(3, "Accuracy", _grid([main]), rest)

    def label_distribution(self) -> Html:
        """Drawn anew from the settings; a run leaves no copy of its data."""
        from ..data import DataError

        config = self.runs[0].config
        try:
            counts = label_counts(config.replace(data_dir=self.data_dir) if self.data_dir else config)
        except (DataError, ConfigError, ValueError, ImportError, OSError) as error:
            return section(3, "Who has what", note(f"No picture of the label distribution: {error}"))
        figure = labels.draw(counts, f"{config.dataset}, {config.partition}")
        caption = f"How the classes are spread over the clients with the settings of {self.runs[0].label}, seed "
        caption += (
            f"{config.seed}. Look at how uneven a column is: one colour or one dot means a client that knows one "
        )
        caption += "class only; an even surface means clients that are alike."
        said = labels.caption(counts)
        alt = f"Label distribution. {said}"
        return section(3, "Who has what", self.album.show(figure, f"{self.prefix}labels", caption=caption, alt=alt))

    def time(self) -> Html:
        rows = []
        for label in self.labels:
            runs = self.experiment.of(label)
            training, evaluation = (sum(run.total(key) for run in runs) for key in ("seconds", "seconds_eval"))
            steps = sum(run.total("steps") for run in runs)
            rows.append(
                [
                    label,
                    f"{training:,.1f}",
                    f"{evaluation:,.1f}",
                    f"{sum(run.total('client_updates') for run in runs):,.0f}",
                    f"{statistics.fmean(run.updates_per_second for run in runs):,.1f}",
                    f"{1000 * training / steps:,.3g}" if steps else "-",
                ]
            )
        columns = ["", "training (s)", "evaluation (s)", "client updates", "client updates/s", "ms a local step"]
        bars = self.album.show(
            figures.time_bars(self.runs),
            f"{self.prefix}time",
            caption="Look at the share of the evaluation: if it is large, evaluate less often (eval_every). Times of "
            "other machines, or of a busy one, do not compare.",
            alt="Seconds a round: " + "; ".join(f"{row[0]}: {row[1]} s of training in all" for row in rows),
        )
        speed = self._lines(
            "throughput",
            "Clients trained in a second",
            figures.updates_per_second,
            "Moving mean. Look for steps and dips: they mostly tell of a busy machine, not of the method.",
            "client updates/s",
        )
        return section(3, "Time", table(columns, rows, "All seeds together"), _grid([bars, speed]))

    def drift(self) -> Html:
        shown = []
        for key, title, caption in (
            (
                "drift",
                "How far a round moves the model",
                "Distance between the models that the server sends in consecutive rounds, moving mean. Look at which "
                "line is lower and calmer; all of them fall with the learning rate.",
            ),
            (
                "client_distance",
                "How far clients go from it",
                "Mean distance of the clients' models from the one they were sent, moving mean. Look at which line is "
                "lower: those clients stay closer to what they were sent; all of them fall with the learning rate.",
            ),
        ):
            if any(figures.metric(key)(run) for run in self.runs):
                shown.append(self._lines(key, title, figures.metric(key), caption, "Euclidean norm", digits=3))
        return section(3, "Drift", _grid(shown)) if shown else Html()

    def analyses(self) -> list[Html]:
        """A section for every file that `fedasd analyse` left."""
        found, problems = analyses.results(self.runs)
        order = [*(n for n in analyses.TITLES if n in found), *sorted(found.keys() - analyses.TITLES.keys())]
        parts = []
        for name in order:
            title = analyses.TITLES.get(name, name)
            parts.append(section(3, title, self._analysis(name, title, found[name]), _scalars(found[name])))
        if problems:
            parts.append(section(3, "Analyses that cannot be read", *map(note, problems)))
        return parts

    def _analysis(self, name: str, title: str, results: list[dict[str, Any]]) -> Html:
        draw = analyses.FIGURES.get(name)
        if draw is None:
            known = ", ".join(sorted(analyses.FIGURES)) or "none"
            return note(f"analysis/{name}.json is not drawn: this version knows no figure for it (known: {known}).")
        if name in analyses.ONE_BY_ONE and len(results) > 1:
            return joined([self._analysis(name, title, [result]) for result in results])
        try:
            figure = draw(results)
        except Exception as error:  # a file of another version must not cost the whole page
            return note(f"analysis/{name}.json cannot be drawn: {type(error).__name__}: {error}")
        if figure is None:
            return Html()
        whose = ", ".join(f"{result['label']} seed {result['seed']}" for result in results)
        caption = analyses.CAPTIONS.get(name, "Look at how the runs differ.")
        if name in analyses.ONE_BY_ONE:
            caption = f"{whose}. {caption}"
        return self.album.show(figure, f"{self.prefix}{name}", caption=caption, alt=f"{title}: {whose}")

    def _lines(
        self,
        name: str,
        title: str,
        curve: Callable[[Run], Curve],
        caption: str,
        ylabel: str,
        paper: dict[str, float] | None = None,
        digits: int = 1,
    ) -> Html:
        """One figure, or several where there are too many lines for one."""
        most = figures.MOST_LINES
        parts = [self.labels[i : i + most] for i in range(0, len(self.labels), most)]
        shown = []
        for number, part in enumerate(parts, 1):
            runs = [run for run in self.runs if run.label in part]
            count = f", {number} of {len(parts)}" if len(parts) > 1 else ""
            figure = figures.over_rounds(
                runs,
                curve,
                title=title + count,
                ylabel=ylabel,
                paper={label: number for label, number in (paper or {}).items() if label in part},
                digits=digits,
                among=self.labels,
            )
            ends = [f"{run.label} seed {run.config.seed} ends at {_last(curve(run), digits)}" for run in runs]
            shown.append(
                self.album.show(
                    figure,
                    f"{self.prefix}{name}" + (f"-{number}" if len(parts) > 1 else ""),
                    caption=caption + (_BAND if self.several_seeds else ""),
                    alt=f"{title} against rounds{count}: {'; '.join(ends)}",
                )
            )
        return joined(shown)


def label_counts(config: Config) -> np.ndarray[Any, Any]:
    from ..data import federate

    data = federate(config)
    shown = np.linspace(0, data.num_clients - 1, min(data.num_clients, _MOST_CLIENTS)).astype(int)
    return np.stack([data.label_counts(int(k)).numpy() for k in shown])


def note(message: str) -> Html:
    return element("div", element("p", message), class_="note")


def _scalars(results: list[dict[str, Any]]) -> Html:
    """The single numbers among an analysis' results."""
    keys = [
        key
        for key in dict.fromkeys(key for result in results for key in result)
        if key not in ("label", "seed") and any(_is_number(result.get(key)) for result in results)
    ]
    rows = [
        [result["label"], result["seed"], *(_number(result.get(key)) for key in keys)] for result in results if keys
    ]
    return table(["", "seed", *keys], rows, "Numbers of this analysis") if rows else Html()


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _number(value: Any) -> str:
    return written(value) if _is_number(value) else "-"


def _last(curve: Curve, digits: int) -> str:
    return f"{list(curve.values())[-1]:.{digits}f}" if curve else "nothing yet"


def _the(name: str) -> str:
    return name if name.startswith("the ") else f"the {name}"


def _count(things: Sequence[object], word: str) -> str:
    return f"1 {word} is" if len(things) == 1 else f"{len(things)} {word}s are"


def _grid(shown: Sequence[Html]) -> Html:
    return element("div", joined(shown), class_="figures")
