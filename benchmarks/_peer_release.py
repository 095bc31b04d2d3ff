"""Run by ``benchmarks.peers_tabular`` with a peer's interpreter: one synthetic table by that peer.

It imports nothing of this project. Arguments: the peer, the method, ε, δ, the seed, a folder with
``data.csv`` (codes) and ``domain.json`` (sizes of the columns), and how many seconds of the processor it may
take. Writes ``made.csv`` there, and ``drawn.csv`` where the same model can also be drawn from in a second
way. Prints as JSON the seconds of the first table, by the clock and of the processor.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

#: From the data to the synthetic table, and the second way to draw from the model, if there is one.
Release = Callable[[pd.DataFrame], tuple[pd.DataFrame, Callable[[], pd.DataFrame] | None]]


def dpmm(method: str, sizes: dict[str, int], epsilon: float, delta: float, seed: int) -> Release:
    from dpmm.pipelines import AIMPipeline, MSTPipeline  # type: ignore[import-not-found, unused-ignore]

    # 80 MB is AIM's own default for its model, which the pipeline would drop.
    options = {"max_model_size": 80} if method == "AIM" else {}
    pipeline = {"MST": MSTPipeline, "AIM": AIMPipeline}[method]

    def release(frame: pd.DataFrame) -> tuple[pd.DataFrame, None]:
        model = pipeline(epsilon=epsilon, delta=delta, disable_processing=True, **options)
        model.fit(frame, domain=sizes, random_state=seed)
        return model.generate(n_records=len(frame), random_state=seed), None

    return release


def smartnoise(method: str, sizes: dict[str, int], epsilon: float, delta: float, seed: int) -> Release:
    from snsynth import TableTransformer  # type: ignore[import-not-found, unused-ignore]
    from snsynth.aim import AIMSynthesizer  # type: ignore[import-not-found, unused-ignore]
    from snsynth.mst import MSTSynthesizer  # type: ignore[import-not-found, unused-ignore]
    from snsynth.transform import LabelTransformer  # type: ignore[import-not-found, unused-ignore]

    def labels(size: int) -> LabelTransformer:
        made = LabelTransformer(nullable=False)
        made.fit(range(size))  # the public codes, which it would otherwise read off the private data
        return made

    def release(frame: pd.DataFrame) -> tuple[pd.DataFrame, Callable[[], pd.DataFrame] | None]:
        # Its choices and rows come from numpy's global state; the noise is OpenDP's, which takes no seed.
        np.random.seed(seed)  # noqa: NPY002
        model = {"MST": MSTSynthesizer, "AIM": AIMSynthesizer}[method](epsilon=epsilon, delta=delta)
        model.fit(frame, transformer=TableTransformer([labels(sizes[name]) for name in frame]))

        def drawn() -> pd.DataFrame:
            # What model.sample does, but for the way to draw: the rounding of mbi 1.1.0 gives the rows of a
            # group their values in rising order, in every column, which ties columns that the model holds
            # apart (mended by mbi#145, which no release below 2 has).
            rows = model.undo_compress_fn(model.synthesizer.synthetic_data(rows=len(frame), method="sample"))
            codes = rows.df[[f"col{place}" for place in range(len(frame.columns))]]
            return codes.set_axis(frame.columns, axis=1)

        # Only a tree's rows are right that way: mbi#145 also mends which columns AIM's rows depend on.
        return model.sample(len(frame)), drawn if method == "MST" else None

    return release


PEERS = {"dpmm": dpmm, "SmartNoise": smartnoise}


def main() -> None:
    peer, method, epsilon, delta, seed, place, limit = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_CPU, (int(limit), int(limit) + 10))
    folder = Path(place)
    frame = pd.read_csv(folder / "data.csv")
    sizes = json.loads((folder / "domain.json").read_text())
    release = PEERS[peer](method, sizes, float(epsilon), float(delta), int(seed))
    start, spent = time.perf_counter(), time.process_time()
    made, drawn = release(frame)
    took = {"seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - spent}
    made[list(frame.columns)].to_csv(folder / "made.csv", index=False)
    if drawn is not None:
        drawn().to_csv(folder / "drawn.csv", index=False)
    print(json.dumps(took))


if __name__ == "__main__":
    main()
