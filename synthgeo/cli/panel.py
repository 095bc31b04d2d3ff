"""``synthgeo panel``: the same persons, wave after wave, in a durable run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from synthgeo.cli import runs
from synthgeo.cli.batches import Arrivals
from synthgeo.cli.check import NoCheck
from synthgeo.cli.options import (
    Config,
    Delta,
    DryRun,
    Epsilon,
    Json,
    LedgerPath,
    Per,
    Seed,
    budget_of,
    ledger_of,
    noise_of,
    number_or_text,
)
from synthgeo.cli.output import words
from synthgeo.cli.reading import with_reading
from synthgeo.cli.stream import (
    AllowClockBack,
    AllowRepeat,
    End,
    Every,
    Idle,
    Poll,
    RunFolder,
    Settle,
    Start,
    Time,
    Watch,
)
from synthgeo.cli.table import SchemaFile, schema_of
from synthgeo.errors import ConfigError

app = typer.Typer(no_args_is_help=True, help="Panels: the same persons answer in every wave.")
Wave = Annotated[
    str | None, typer.Option("--wave", help="Column that names the wave of each row: cut the files by it.")
]
Waves = Annotated[
    str | None, typer.Option("--waves", help="The waves in order, which are public: 1..12 or spring,autumn.")
]
MaxWaves = Annotated[
    int | None, typer.Option("--max-waves", help="Waves in which a person counts, for life or --per period.")
]
# Options that fix what a run promises and releases: the same for its whole life.
_SETTINGS = runs.SETTINGS | {"schema", "max_waves"}


@app.command("run")
@with_reading
def run_command(
    context: typer.Context,
    run: RunFolder,
    inputs: Annotated[
        list[str] | None, typer.Argument(help="CSV or Parquet files; globs. Each is one wave, unless cut.")
    ] = None,
    schema: SchemaFile = None,
    epsilon: Epsilon = None,
    delta: Delta = 0.0,
    user: Annotated[
        str | None, typer.Option("--user", help="The column that tells persons apart; it is not released.")
    ] = None,
    max_waves: MaxWaves = None,
    per: Per = None,
    wave: Wave = None,
    waves: Waves = None,
    time: Time = None,
    every: Every = None,
    start: Start = None,
    end: End = None,
    watch: Watch = None,
    poll: Poll = 2.0,
    settle: Settle = 2.0,
    idle: Idle = None,
    allow_repeat: AllowRepeat = False,
    allow_clock_back: AllowClockBack = False,
    no_check: NoCheck = False,
    seed: Seed = None,
    ledger: LedgerPath = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    config: Config = None,
    reading: Any = None,
) -> None:
    """Release synthetic persons who persist, wave by wave, in a durable run.

    Each file is one wave; or all files are cut, by a column that names waves (--wave, --waves) or by times
    (--time, --every). ``stream status`` and ``stream verify`` look at the run, ``publish`` hands it on.
    """
    del config
    option = runs.Settings(context, run, "PanelStream", _options)
    arrivals = Arrivals(
        inputs, watch, time, every, start, end, poll, settle, idle, None, wave, _waves_of(wave, waves, option)
    )
    if option.run is None:
        _check_order(arrivals)
    made: Any = None
    if option.needed(_SETTINGS):
        import synthgeo as sg

        made = sg.PanelStream(
            schema=option.known["schema"] if option.kept({"schema"}) else schema_of(schema),
            budget=budget_of(option("epsilon", epsilon), option("delta", delta)),
            unit=_unit_of(option("user", user), option("max_waves", max_waves), option("per", per)),
            reading=option.reading(reading),
            noise=option.known["noise"] if option.kept({"seed"}) else noise_of(seed),
        )
    book = ledger_of(ledger)
    if dry_run:
        facts = {} if made is None else {"budget": words(made.budget), "protects": made.unit.describe()}
        runs.show_plan(run, option.run, facts, arrivals, book, as_json=as_json)
        return
    runs.go_on(
        run,
        option.run,
        made,
        arrivals,
        ledger=book,
        as_json=as_json,
        allow_repeat=allow_repeat,
        allow_clock_back=allow_clock_back,
        no_check=no_check,
    )


def _options(stream: Any) -> dict[str, Any]:
    """The options that a panel was made with."""
    return runs.common_options(stream) | {
        "schema": stream.schema,
        "max_waves": stream.unit.max_contributions,
    }


def _unit_of(user: str | None, max_waves: int | None, per: str | int | None) -> Any:
    """A person with a bound on its waves."""
    from synthgeo import validate
    from synthgeo.privacy.unit import PrivacyUnit

    if user is None:
        raise ConfigError("give --user, the column that tells persons apart")
    if max_waves is None:
        raise ConfigError(
            "give --max-waves, in how many waves a person counts: each has a part of the budget"
        )
    most = validate.whole(max_waves, "--max-waves", low=1)
    return PrivacyUnit.user(max_events=most, per=number_or_text(per), key=user)


def _waves_of(wave: str | None, waves: str | None, option: runs.Settings) -> tuple[str, ...]:
    """The waves that the options list, in order."""
    if waves is None:
        if wave is not None and option.run is None:
            raise ConfigError(f"give --waves, the waves that {wave!r} names, in order: 1..12, or with commas")
        return ()
    if wave is None and option.run is None:
        raise ConfigError("--waves goes with --wave, the column that names them")
    return names_of(waves)


def names_of(waves: str) -> tuple[str, ...]:
    """The names of waves in a text: a range of whole numbers, or names with commas.

    >>> names_of("1..3"), names_of("spring, autumn")
    (('1', '2', '3'), ('spring', 'autumn'))
    """
    from synthgeo.sources.waves import wave_names

    low, dots, high = waves.partition("..")
    if not dots:
        return tuple(wave_names([name.strip() for name in waves.split(",") if name.strip()]))
    try:
        found = range(int(low), int(high) + 1)
    except ValueError:
        raise ConfigError(f"--waves must be whole numbers such as 1..12, or names; got {waves!r}") from None
    return tuple(wave_names(found))


def _check_order(arrivals: Arrivals) -> None:
    """Refuse files whose names are in another order than the numbers in them: waves have an order."""
    if arrivals.watch is not None or arrivals.time is not None or arrivals.wave is not None:
        return
    for first, second in zip(arrivals.files, arrivals.files[1:], strict=False):
        if _numbered(second) < _numbered(first):
            raise ConfigError(
                f"files are waves in the order of their names, in which {first.name} comes before "
                f"{second.name}: write their numbers with as many digits ({_padded(second)})"
            )


def _numbered(file: Path) -> list[Any]:
    """A name as texts and numbers, in turns."""
    parts = re.split(r"(\d+)", file.name)
    return [int(part) if place % 2 else part for place, part in enumerate(parts)]


def _padded(file: Path) -> str:
    return re.sub(r"\d+", lambda found: found[0].zfill(2), file.name, count=1)
