from benchmarks.executors import EXECUTORS, main, measure


def test_every_executor_is_measured():
    seconds = measure("fedavg+asd", 3, 1, {"clients": 6, "participation": 0.5})
    assert {executor: len(times) for executor, times in seconds.items()} == dict.fromkeys(EXECUTORS, 2)


def test_the_table(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["executors", "--rounds", "4", "--repeats", "1", "clients=5", "participation=0.4"])
    main()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + 3 * len(EXECUTORS)
    assert lines[2].startswith("| fedavg | serial |")
    assert lines[2].endswith("| 1.0 |")
