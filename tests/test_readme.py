import pathlib
import re

import pytest

README = pathlib.Path(__file__).parents[1] / "README.md"


@pytest.mark.parametrize("number", [0, 1])
def test_code_of_the_readme_runs(number, tmp_path, monkeypatch):
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 2
    monkeypatch.chdir(tmp_path)
    exec(compile(blocks[number], f"{README} (block {number})", "exec"), {})
    assert list((tmp_path / "saved_models").glob("*/1/saved_model.pb"))
