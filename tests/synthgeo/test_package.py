"""The package itself: what an import costs, what a missing part says, what a wheel holds."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import synthgeo as sg
from synthgeo.cli.app import run
from tools import base_only

ROOT = Path(__file__).resolve().parents[2]
HEAVY = [
    "numpy",
    "pandas",
    "geopandas",
    "shapely",
    "scipy",
    "numba",
    "duckdb",
    "osmnx",
    "mbi",
    "jax",
    "dask",
    "matplotlib",
]


def python(code: str, *, path: Path | None = None, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter with ``path`` before everything else."""
    environment = dict(os.environ)
    first = [str(path)] if path is not None else []
    environment["PYTHONPATH"] = os.pathsep.join([*first, str(ROOT)])
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment,
        timeout=300,
        check=False,
    )


def test_importing_loads_nothing_heavy():
    found = python(f"import sys, synthgeo; print([m for m in {HEAVY} if m in sys.modules])")
    assert found.stdout.strip() == "[]", found.stderr


def test_a_stream_of_points_loads_only_what_it_uses():
    """Compilers and frames of geometries take half a second and 120 MB: more than a small stream does."""
    found = python(
        "import sys, synthgeo as sg, numpy as np\n"
        "stream = sg.PHDStream(domain=sg.BoxDomain(0, 0, 1, 1), budget=sg.PrivacyBudget(1.0))\n"
        "for _ in range(3): stream.update(np.random.default_rng(0).random((50, 2)))\n"
        "print([m for m in ('numba', 'geopandas', 'scipy.sparse', 'matplotlib') if m in sys.modules])"
    )
    assert found.stdout.strip() == "[]", found.stderr


def test_a_table_loads_only_what_it_uses():
    found = python(
        "import sys, synthgeo as sg, pandas as pd\n"
        "schema = sg.Schema({'a': sg.Categorical(range(3)), 'b': sg.Numeric(0, 9, bins='auto')})\n"
        "frame = pd.DataFrame({'a': [0, 1, 2] * 40, 'b': range(0, 120)}).assign(b=lambda f: f['b'] % 10)\n"
        "model = sg.TabularSynthesizer(schema=schema, budget=sg.PrivacyBudget(1.0, 1e-9))\n"
        "model.fit(frame).sample().data\n"
        "heavy = ('mbi', 'jax', 'geopandas', 'sklearn', 'dask', 'matplotlib')\n"
        "print([m for m in heavy if m in sys.modules])"
    )
    assert found.stdout.strip() == "[]", found.stderr


def test_every_public_class_has_a_repr_of_its_own():
    modules = [sg, sg.series, sg.metrics, sg.simulate, sg.baselines, sg.auditing, sg.results]
    values = [getattr(module, name) for module in modules for name in module.__all__]
    classes = {value for value in values if isinstance(value, type)}
    assert len(classes) > 50
    assert {kind.__name__ for kind in classes if kind.__repr__ is object.__repr__} == set()


def test_the_facade_has_at_most_fifty_names():
    assert len(sg.__all__) <= 50


def test_every_public_name_is_there():
    for name in sg.__all__:
        assert getattr(sg, name) is not None
    assert dir(sg) == sorted(sg.__all__)
    with pytest.raises(AttributeError, match="nonsense"):
        _ = sg.nonsense


def test_errors_are_one_family():
    for name in sg.errors.__all__:
        error = getattr(sg.errors, name)
        assert issubclass(error, sg.SynthGeoError)
        assert error.__doc__


def test_somebody_elses_streams_package_is_recognised(tmp_path):
    (tmp_path / "streams").mkdir()
    (tmp_path / "streams" / "__init__.py").write_text("")
    found = python(
        "import synthgeo as sg\ntry: sg.PHDStream\nexcept sg.ConfigError as e: print(e)",
        path=tmp_path,
        cwd=tmp_path,
    )
    assert "another distribution owns that name" in found.stdout, found.stderr


@pytest.mark.slow
def test_every_missing_extra_says_what_to_install():
    """The walk of ``make test-base``, with the extras blocked instead of not installed."""
    found = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "base_only.py"), "--block"],
        capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    assert "README's first example works" in found.stdout


def test_every_extra_for_users_is_walked():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    ours = {"bench", "fuzz", "docs", "test", "dev", "all"}
    assert set(base_only.BRINGS) == set(declared) - ours
    walked = {extra for extra, _ in base_only.commands()} | {"audit"}  # only weaker without it, and says so
    assert {"dask", "spark", "h3", "report", "excel", "ml"} <= walked


def test_an_audit_without_trees_says_so(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    assert run(["audit", "noise", "--runs", "2000"]) == 0
    assert "pip install 'synthgeo[audit]'" in capsys.readouterr().err


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    built = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    return next(out.glob("*.whl"))


@pytest.mark.slow
def test_the_wheel_holds_the_packages_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names if ".dist-info" not in name}
    assert tops == {"synthgeo", "streams", "tabular", "trajectories"}
    assert {f"{top}/py.typed" for top in tops} <= set(names)
    assert any(name.endswith("licenses/LICENSE") for name in names)


@pytest.mark.slow
def test_the_wheel_runs_its_demo_outside_the_repository(wheel, tmp_path):
    home = tmp_path / "site"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(home), str(wheel)],
        check=True,
    )
    environment = dict(os.environ, PYTHONPATH=str(home))
    where = [sys.executable, "-c", "import synthgeo, streams; print(synthgeo.__file__, streams.__file__)"]
    found = subprocess.run(where, capture_output=True, text=True, cwd=tmp_path, env=environment, check=True)
    assert all(str(home) in path for path in found.stdout.split())
    call = [
        sys.executable,
        "-c",
        "from synthgeo.cli import main; main()",
        "demo",
        "--quick",
        "--out",
        str(tmp_path / "demo"),
    ]
    demo = subprocess.run(call, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)
    assert demo.returncode == 0, demo.stderr
    assert list((tmp_path / "demo").rglob("*.parquet"))


@pytest.mark.slow
def test_a_function_that_shares_its_name_with_a_package_stays_callable():
    """Importing a submodule puts the package in the function's place."""
    found = python(
        "import synthgeo.reporting.charts, synthgeo as sg\ntry: sg.report()\nexcept TypeError as e: print(e)"
    )
    assert "missing" in found.stdout, found.stderr
