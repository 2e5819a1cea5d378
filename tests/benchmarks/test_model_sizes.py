from benchmarks import model_sizes
from benchmarks.executors import EXECUTORS


def test_parameters_are_counted():
    assert model_sizes.parameters(8) == 64 * 8 + 8 + 8 * 8 + 8 + 8 * 10 + 10


def test_every_executor_has_a_line(tmp_path, capsys):
    picture = tmp_path / "new" / "sizes.png"
    arguments = ["--widths", "4", "8", "--rounds", "2", "--repeats", "1", "--clients", "20", "--out", str(picture)]
    model_sizes.main(arguments)
    head, _, *rows = capsys.readouterr().out.splitlines()
    assert head.count("|") == len(EXECUTORS) + 3
    assert [row.split(" | ")[0] for row in rows] == ["| 4-4", "| 8-8"]
    assert all(row.count("**") == 2 for row in rows)  # one winner
    assert picture.read_bytes().startswith(b"\x89PNG")
