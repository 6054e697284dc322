"""``deceptron demo``: a table and a picture from the models that ship."""

from tests.cli.command import run


def test_a_table_and_a_picture(tmp_path, monkeypatch, capsys):
    picture = tmp_path / "demo.png"
    assert run(monkeypatch, "demo", "heat-1d", "--count", 2, "--output", picture) == 0
    text = capsys.readouterr().out
    for method in ("one-shot", "dc.solve", "D-IPG", "LM"):
        assert method in text
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_mistakes_are_one_sentence(tmp_path, monkeypatch, capsys):
    assert run(monkeypatch, "demo", "heat-4d", "--output", tmp_path / "a.png") == 2
    assert "Did you mean" in capsys.readouterr().err
    assert run(monkeypatch, "demo", "--output", tmp_path / "a.gif") == 2
    assert "path must end in one of" in capsys.readouterr().err
