"""Text that a spreadsheet or a browser would run is written as text."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

import synthgeo as sg
from synthgeo.publishing.folder import publish
from synthgeo.release import write_csv

FORMULAS = ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "'=1", "''-1"]
TEXTS = ["a", "-3", "+4.5", "-1e-3", ".5", "'quoted'", "", "a=b", "-"]
LINK = "[click](javascript:alert(1)) <script>alert(1)</script> \\[x](javascript:y) &#106; ![i](http://a)"


def read_back(text):
    """The rule of ``write_csv``, from the other side."""
    return text[1:] if re.match(r"'+[=+\-@\t\r\n]", text) else text


@pytest.mark.parametrize("dtype", ["object", "category", "string"])
def test_text_that_would_be_a_formula_is_text(tmp_path, dtype):
    every = [text for text in FORMULAS + TEXTS if text]
    frame = pd.DataFrame({"=head": pd.Series(every, dtype=dtype), "n": -np.arange(float(len(every)))})
    write_csv(frame, tmp_path / "a.csv")
    found = pd.read_csv(tmp_path / "a.csv", dtype=str, lineterminator="\n", keep_default_na=False)
    assert list(found.columns) == ["'=head", "n"]
    for text, written in zip(every, found.iloc[:, 0], strict=True):
        number = re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)(e-?\d+)?", written)
        assert number or written[0] not in "=+-@\t\r\n"
        assert read_back(written) == text
    assert found["n"].tolist()[1:] == [f"-{n}.0" for n in range(1, len(every))]
    assert frame.columns[0] == "=head"  # the frame itself stays


def release():
    schema = sg.Schema({"=kind": sg.Categorical(["=A1", "<b>x</b>", "\x01a", LINK])})
    made = sg.TabularSynthesizer(schema=schema, budget=sg.PrivacyBudget(1.0), progress=False)
    return made.fit(pd.DataFrame({"=kind": ["=A1", LINK] * 40})).sample(50)


def test_a_published_folder_runs_nothing(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    description = sg.publishing.card.Description(title=f"A {LINK}", summary=LINK, curator=LINK, license=LINK)
    folder = publish(
        [release()], tmp_path / "out", formats=("csv", "xlsx", "geoparquet"), description=description
    ).folder
    card = (folder / "README.md").read_text()
    assert not re.search(r"<(script|b)\b", card)
    assert not re.search(r"(?<!\\)(\\\\)*\[[^]]*(?<!\\)(\\\\)*\]\(", card)
    assert "&#106;" not in card.replace("&amp;#106;", "")
    page = (folder / "data-card.html").read_text()
    assert "<script" not in page
    assert "href" not in page
    assert (folder / "table.csv").read_text().startswith("'=kind\n")
    book = openpyxl.load_workbook(next(folder.glob("*.xlsx")))
    for sheet in book:
        for row in sheet.iter_rows():
            assert all(cell.data_type != "f" for cell in row)
    assert pd.read_parquet(folder / "table.parquet").columns.tolist() == ["=kind"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 than that in driver: 3.11,",
         "Python 3.12"),
        ("RuntimeError: Python in worker has different version 3.9 than that in driver 3.11", "Python 3.9"),
        ("SparkRuntimeException: [PYTHON_VERSION_MISMATCH]", "another Python"),
        ("ModuleNotFoundError: No module named 'pandas'", "has no pandas"),
        ('java.io.IOException: Cannot run program "python3": error=2', "find no Python"),
    ],
    ids=range(5),
)  # fmt: skip
def test_spark_with_another_python_names_it_and_the_setting(text, said):
    pyspark = pytest.importorskip("pyspark")
    from synthgeo.sources.spark import _typed_errors

    with pytest.raises(sg.ConfigError, match="PYSPARK_PYTHON") as refused, _typed_errors(None):
        raise pyspark.errors.PySparkException(text)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "content", ["a = " + "[" * 5000, "start = 2020-01-01T00:00:00+99:99", "epsilon = " + "9" * 5000,
                "start = 2020-02-31", "epsilon = 1979-05-27", "bounds = [1979-05-27]",
                "bounds = {b = 07:32:00}"],
    ids=range(7),
)  # fmt: skip
def test_odd_toml_is_refused_in_a_line(content, tmp_path):
    from typer.testing import CliRunner

    from synthgeo.cli.app import app

    (tmp_path / "a.toml").write_text(content)
    (tmp_path / "a.csv").write_text("lon,lat\n0.5,0.5\n")
    given = ["stream", "run", str(tmp_path / "run"), str(tmp_path / "a.csv"), "--config"]
    done = CliRunner().invoke(app, [*given, str(tmp_path / "a.toml")])
    assert done.exit_code != 0
    assert isinstance(done.exception, SystemExit | sg.SynthGeoError), done.exception
    assert "\n" not in str(done.exception)
    assert not (tmp_path / "run").exists()
