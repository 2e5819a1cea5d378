"""Sections of the report page about one experiment: accuracy, label distribution, time, drift, analyses, runs."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ..common.formatting import MODEL_DESCRIPTIONS
from ..common.html import Html, details, element, joined, note, section, table
from ..common.schema import ConfigError
from ..data import DataError
from ..simulation.storage.recorded_run import Curve, RecordedRun
from . import analysis_results
from .accuracy_plot import common_settings
from .analysis_numbers import number_table
from .figure_writer import FigureWriter
from .label_distribution import describe_skew, label_counts, label_distribution_figure
from .milestones import milestones_section
from .results_tables import results_section
from .round_plots import MAX_LINES, rounds_figure, time_figure
from .run_details import run_details, runs_table
from .run_group import RunGroup
from .seed_curves import smoothed_metric, updates_per_second

_MAX_CLIENTS = 2000  # in the label distribution; of a larger population, evenly spaced ones
_BAND_CAPTION = " The line is the mean over seeds, the band reaches from the lowest seed to the highest."
_DRIFT_PLOTS = (
    (
        "drift",
        "Movement of the global model",
        "Distance between the models that the server sends in consecutive rounds, moving average. Look at which line "
        "is lower and smoother; all of them fall with the learning rate.",
    ),
    (
        "client_distance",
        "Distance of clients from the global model",
        "Mean distance of the clients' models from the model they were sent, moving average. Look at which line is "
        "lower: its clients drift less; all of them fall with the learning rate.",
    ),
)


class ExperimentSections:
    """The sections about one experiment; `prefix` begins the names of its figures."""

    def __init__(self, experiment: RunGroup, writer: FigureWriter, prefix: str, data_dir: str | None = None) -> None:
        self.experiment, self.writer, self.prefix, self.data_dir = experiment, writer, prefix, data_dir
        self.runs, self.labels = experiment.runs, experiment.labels
        self.several_seeds = len(self.runs) > len(self.labels)

    def all(self) -> list[Html]:
        parts = [
            element("p", common_settings([run.config for run in self.runs]), class_="muted"),
            results_section(self.experiment),
            milestones_section(self.experiment),
            self.accuracy(),
            self.loss(),
            self.label_distribution(),
            self.time(),
            self.drift(),
            *self.analyses(),
            section(3, "The runs, and how to repeat them", runs_table(self.runs), *map(run_details, self.runs)),
        ]
        return [part for part in parts if part]

    def accuracy(self) -> Html:
        model, expected = self.experiment.model, self.experiment.expected
        paper = {label: n.mean for label, n in expected.items() if n.comparable and n.model == model}
        caption = f"Test accuracy of {_with_article(MODEL_DESCRIPTIONS[model])}. Look at where the lines end and "
        caption += "whether they still rise: a line that is behind early may lead late."
        if paper:
            rounds = sorted({expected[label].rounds for label in paper})
            caption += f" Dotted: the paper's number, after {' or '.join(map(str, rounds))} rounds."
        unfinished = [run for run in self.runs if not run.finished]
        if unfinished:
            verb = "run is" if len(unfinished) == 1 else "runs are"
            caption += f" {len(unfinished)} {verb} not finished: those lines end at the last evaluation so far."
        main = self._rounds_plot("accuracy", *_accuracy_plot(model), caption, "test accuracy (%)", paper)
        others = [m for m in MODEL_DESCRIPTIONS if m != model and any(run.accuracies(m) for run in self.runs)]
        more = [
            self._rounds_plot(
                f"accuracy-{m}",
                *_accuracy_plot(m),
                f"Test accuracy of {_with_article(MODEL_DESCRIPTIONS[m])}. Look at how much it varies from one "
                "evaluation to the next.",
                "test accuracy (%)",
            )
            for m in others
        ]
        rest = details("The other averaged models", _grid(more)) if more else ""
        return section(3, "Accuracy over the rounds", _grid([main]), rest)

    def label_distribution(self) -> Html:
        """Computed again from the settings; a run keeps no copy of its data."""
        config = self.runs[0].config
        try:
            counts = label_counts(config.replace(data_dir=self.data_dir) if self.data_dir else config, _MAX_CLIENTS)
        except (DataError, ConfigError, ValueError, ImportError, OSError) as error:
            return section(
                3,
                "Label distribution: which clients have which classes",
                _remark(f"The label distribution cannot be plotted: {error}"),
            )
        figure = label_distribution_figure(counts, f"{config.dataset}, {config.partition}")
        caption = (
            f"Distribution of the classes over the clients with the settings of {self.runs[0].label}, seed "
            f"{config.seed}. Look at how uneven a column is: one colour or one dot means a client with a single "
            "class; an even surface means clients with similar data."
        )
        alt = f"Label distribution. {describe_skew(counts)}"
        shown = self.writer.write(figure, f"{self.prefix}labels", caption=caption, alt=alt)
        return section(3, "Label distribution: which clients have which classes", shown)

    def time(self) -> Html:
        rows = []
        for label in self.labels:
            runs = self.experiment.with_label(label)
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
        columns = ["", "training (s)", "evaluation (s)", "client updates", "client updates/s", "ms per local step"]
        bars = self.writer.write(
            time_figure(self.runs),
            f"{self.prefix}time",
            caption="Look at the proportion of evaluation: if it is large, evaluate less often (eval_every). Times "
            "from different machines, or from a busy one, are not comparable.",
            alt="Seconds per round. " + "; ".join(f"{row[0]}: {row[1]} s of training in total" for row in rows),
        )
        speed = self._rounds_plot(
            "throughput",
            "Client updates per second",
            updates_per_second,
            "Moving average. Look for steps and dips: they usually come from a busy machine, not from the method.",
            "client updates/s",
            digits=1,
        )
        return section(
            3,
            "Time that training and evaluation took",
            table(columns, rows, "Totals over all seeds"),
            _grid([bars, speed]),
        )

    def loss(self) -> Html:
        if not any(run.curve("loss") for run in self.runs):
            return Html()
        caption = "Mean loss of the clients' local steps, ASD term included, moving average. Look at the shape, not "
        caption += "the height: methods with and without ASD minimise different losses."
        curve = partial(smoothed_metric, key="loss")
        shown = self._rounds_plot("loss", "Training loss", curve, caption, "loss", digits=3)
        return section(3, "Training loss over the rounds", _grid([shown]))

    def drift(self) -> Html:
        shown = [
            self._rounds_plot(key, title, partial(smoothed_metric, key=key), caption, "Euclidean norm", digits=3)
            for key, title, caption in _DRIFT_PLOTS
            if any(run.curve(key) for run in self.runs)
        ]
        return section(3, "Drift: how far the models move", _grid(shown)) if shown else Html()

    def analyses(self) -> list[Html]:
        """A section for every analysis that `fedasd analyse` has saved."""
        found, problems = analysis_results.load_results(self.runs)
        titles = analysis_results.TITLES
        order = [*(name for name in titles if name in found), *sorted(found.keys() - titles.keys())]
        parts = []
        for name in order:
            title = titles.get(name, name)
            parts.append(section(3, title, self._analysis(name, title, found[name]), number_table(name, found[name])))
        if problems:
            parts.append(section(3, "Analyses that cannot be read", *map(_remark, problems)))
        return parts

    def _analysis(self, name: str, title: str, results: list[dict[str, Any]]) -> Html:
        plot = analysis_results.FIGURES.get(name)
        if plot is None:
            known = ", ".join(sorted(analysis_results.FIGURES)) or "none"
            return _remark(f"analysis/{name}.json is not plotted: this version has no plot for it (it has: {known}).")
        single = name in analysis_results.SINGLE_RUN_NAMES
        if single and len(results) > 1:
            return joined([self._analysis(name, title, [result]) for result in results])
        try:
            figure = plot(results)
        except Exception as error:  # a file of another version must not break the whole page
            return _remark(f"analysis/{name}.json cannot be plotted: {type(error).__name__}: {error}")
        if figure is None:
            return Html()
        whose = ", ".join(f"{result['label']} seed {result['seed']}" for result in results)
        caption = analysis_results.CAPTIONS.get(name, "Look at how the runs differ.")
        if single:
            caption = f"{whose}. {caption}"
        return self.writer.write(figure, f"{self.prefix}{name}", caption=caption, alt=f"{title}: {whose}")

    def _rounds_plot(
        self,
        name: str,
        title: str,
        curve: Callable[[RecordedRun], Curve],
        caption: str,
        ylabel: str,
        paper: dict[str, float] | None = None,
        digits: int = 2,
    ) -> Html:
        """One figure, or several if there are too many lines for one."""
        parts = [self.labels[i : i + MAX_LINES] for i in range(0, len(self.labels), MAX_LINES)]
        shown = []
        for number, part in enumerate(parts, 1):
            runs = [run for run in self.runs if run.label in part]
            count = f", {number} of {len(parts)}" if len(parts) > 1 else ""
            figure = rounds_figure(
                runs,
                curve,
                title=title + count,
                ylabel=ylabel,
                paper={label: number for label, number in (paper or {}).items() if label in part},
                digits=digits,
                all_labels=self.labels,
            )
            ends = [f"{run.label} seed {run.config.seed} ends at {_last_value(curve(run), digits)}" for run in runs]
            shown.append(
                self.writer.write(
                    figure,
                    f"{self.prefix}{name}" + (f"-{number}" if len(parts) > 1 else ""),
                    caption=caption + (_BAND_CAPTION if self.several_seeds else ""),
                    alt=f"{title} against rounds{count}: {'; '.join(ends)}",
                )
            )
        return joined(shown)


def _accuracy_plot(model: str) -> tuple[str, Callable[[RecordedRun], Curve]]:
    """Title and curve."""
    return f"Test accuracy, {model} (%)", lambda run: run.accuracies(model)


def _last_value(curve: Curve, digits: int) -> str:
    return f"{list(curve.values())[-1]:.{digits}f}" if curve else "no value yet"


def _with_article(name: str) -> str:
    return name if name.startswith("the ") else f"the {name}"


def _remark(message: str) -> Html:
    return note(element("p", message))


def _grid(shown: Sequence[Html]) -> Html:
    return element("div", joined(shown), class_="figures")
