"""Run by ``benchmarks.peers_tabular`` with another environment's interpreter: one synthetic table by dpmm.

It imports nothing of this project. Arguments: the method, a CSV of codes, a JSON file of column sizes, ε, δ,
the seed, and where to write the synthetic codes. Prints as JSON the seconds, by the clock and of the
processor.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pandas as pd
from dpmm.pipelines import AIMPipeline, MSTPipeline  # type: ignore[import-not-found, unused-ignore]


def main() -> None:
    method, data, domain, epsilon, delta, seed, out = sys.argv[1:]
    frame = pd.read_csv(data)
    sizes = json.loads(Path(domain).read_text())
    # 80 MB is AIM's own default for its model, which the pipeline would drop.
    options = {"max_model_size": 80} if method == "AIM" else {}
    pipeline = {"MST": MSTPipeline, "AIM": AIMPipeline}[method]
    start, spent = time.perf_counter(), time.process_time()
    model = pipeline(epsilon=float(epsilon), delta=float(delta), disable_processing=True, **options)
    model.fit(frame, domain=sizes, random_state=int(seed))
    made = model.generate(n_records=len(frame), random_state=int(seed))
    took = {"seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - spent}
    made[list(frame.columns)].to_csv(out, index=False)
    print(json.dumps(took))


if __name__ == "__main__":
    main()
