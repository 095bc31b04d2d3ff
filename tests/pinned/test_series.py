"""Seeded outputs of every series mechanism, as digests: moving code must not move a number.

``python -m tests.pinned.test_series`` prints the tables below anew; change a line only with a reason.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.pinned.digest import digest
from tests.streams.scalar.examples import EXAMPLES


def released(name: str) -> str:
    """Everything an example releases: in one run, value by value, with gaps, on a grid of halves."""
    example = EXAMPLES[name]
    out = [example.make().run(example.series)]
    mechanism = example.make()
    if mechanism.online and not getattr(mechanism, "batch", None):
        out.append([mechanism.update(value) for value in example.series])
    if name != "sip-batched":
        gaps = np.where(np.arange(example.series.size) % 7 == 4, np.nan, example.series)
        out.append(example.make(missing="public").run(gaps))
    if "nonnegative" in mechanism.provenance()["parameters"]:
        out.append(example.make(grid_bits=1, sensitivity=1.5, nonnegative=True).run(example.series / 2 - 90))
    return digest([out, mechanism.guarantee.describe(), spent_by(mechanism)])


def spent_by(mechanism: Any) -> str:
    """What a mechanism has spent, to the ten digits of a digest: some find their ε numerically."""
    spent = mechanism.spent
    if spent is None:
        return str(None)
    return str(type(spent)(float(f"{spent.epsilon:.10g}"), float(f"{spent.delta:.10g}")))


PINNED: dict[str, str] = {
    "lpa": "a8d78acd64d9",
    "gaussian": "08a8856c8474",
    "fast": "c13337ddc776",
    "fast-guess": "d51f2a6b97e7",
    "fast-window": "e7588d281cff",
    "fast-event": "3f41f3430e69",
    "fast-gaussian": "4b977a66c56f",
    "fast-kalman": "1aa57d8801b8",
    "fast-particle": "0578ff188c55",
    "fast-fixed": "7150ea54f24e",
    "ar1": "a1837b481a2c",
    "ar1-binomial": "5ccb9b12501d",
    "ar1-geometric": "2561b30b8c35",
    "absorption": "afcc18e82691",
    "distribution": "ab861f6d6deb",
    "counter": "da8010da2aa2",
    "counter-binary": "f1b87560e9cd",
    "counter-toeplitz": "1c97c71ae91a",
    "uniform": "ba6f796a9000",
    "sampling": "56bd500d5b1e",
    "sampling-user": "8fe1d8122a60",
    "sip": "367f3bedc2a0",
    "sip-batched": "b525d7baf477",
    "randomized-response": "89793de09455",
    "unary-encoding": "446e6d7858fd",
    "temporal-response": "22a6e12f58e5",
    "window-response": "210474c88106",
    "window-unary": "2ead6f99ea8e",
    "tops": "0e1c949b7323",
    "sip-delta": "7c44a35ae4e7",
    "sip-window": "db1b3bcfa924",
    "sip-second-order": "aa789011ea13",
    "dft": "1c15a3283062",
    "dft-gaussian": "ea31240086dd",
    "dft-delay": "9f75953a8e6b",
    "subsampled": "ef87664bc2a4",
    "filtered": "c6d49d46d6e8",
}


@pytest.mark.parametrize("name", PINNED)
def test_outputs_are_those_of_before(name):
    assert released(name) == PINNED[name]


if __name__ == "__main__":
    for case in EXAMPLES:
        print(f'    "{case}": "{released(case)}",')
