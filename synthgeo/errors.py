"""Every error this toolkit raises on purpose.

    SynthGeoError
    ├── ConfigError          a parameter makes no sense (ε <= 0, an unknown counter name, a missing extra)
    ├── InputError           the data is wrong; the message names the column and the row
    │   ├── DomainError      a place is wrong: outside the domain, missing or mismatched CRS, empty geometry
    │   └── ContributionError  the user key cannot be used to bound contributions
    ├── BudgetExhausted      the call would spend more than the budget allows; nothing was spent
    ├── LedgerError          the ledger refuses (cap reached, other content under a known batch id, locked)
    ├── ClusterError         a cluster that counts was lost, or took longer than allowed; nothing was spent
    └── StateError           a saved state is damaged, newer than this version, or of another kind

Validation comes before any noise is drawn and before any state changes, so after an error the object is
as it was before the call.
"""

from __future__ import annotations

from typing import Any, Self


class SynthGeoError(Exception):
    """Base of all errors that the toolkit raises on purpose."""


class ConfigError(SynthGeoError, ValueError):
    """A parameter makes no sense."""


class InputError(SynthGeoError, ValueError):
    """The data is wrong; the message names the column and, where there is one, the row.

    ``column`` is the column at fault, ``row`` its position in the chunk being read, ``where`` the name of
    that row for people ("line 7 of visits.csv"), ``problem`` what is wrong. None where it does not apply.
    """

    def __init__(
        self,
        problem: str = "",
        *,
        column: str | None = None,
        row: int | None = None,
        where: str | None = None,
    ) -> None:
        self.problem, self.column, self.row, self.where = problem, column, row, where
        place = where if where is not None else None if row is None else f"row {row}"
        parts = [part for part in (None if column is None else f"column {column!r}", place) if part]
        super().__init__(f"{', '.join(parts)}: {problem}" if parts else problem)

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self.problem, self.column, self.row, self.where)

    def located(self, where: str) -> Self:
        """The same error, said about a row by its name in the whole input."""
        return type(self)(self.problem, column=self.column, row=self.row, where=where)


def _again(kind: type[InputError], problem: str, column: Any, row: Any, where: Any) -> InputError:
    return kind(problem, column=column, row=row, where=where)


class DomainError(InputError):
    """A place is wrong: outside the domain, of another coordinate system, or an empty geometry."""


class BudgetExhausted(SynthGeoError, RuntimeError):  # noqa: N818 - a state, and a public name
    """The call would spend more than the budget allows. Nothing was spent."""


class ContributionError(InputError):
    """The user key cannot be used to bound what one user contributes."""


class LedgerError(SynthGeoError, RuntimeError):
    """The ledger refuses: cap reached, conflicting content, or a run that is open elsewhere."""


class ClusterError(SynthGeoError, RuntimeError):
    """A cluster that counts was lost, or took longer than allowed. Nothing was spent: try again."""


class StateError(SynthGeoError, RuntimeError):
    """A saved state is damaged, written by a newer version, or of another kind."""


__all__ = [
    "BudgetExhausted",
    "ClusterError",
    "ConfigError",
    "ContributionError",
    "DomainError",
    "InputError",
    "LedgerError",
    "StateError",
    "SynthGeoError",
]
