"""Names for the array types that signatures use, so that each is spelled once."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
Bools: TypeAlias = NDArray[np.bool_]
Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
Keys: TypeAlias = NDArray[np.uint64]  # cells of a hierarchy, cells of a marginal: whatever is counted
Points: TypeAlias = NDArray[np.float64]  # (n, 2): x and y
Times: TypeAlias = NDArray[np.datetime64]

__all__ = ["Array", "Bools", "Floats", "Ints", "Keys", "Points", "Times"]
