"""PrivTree as the paper prints it: a queue of nodes, one at a time. Slow and obvious."""

from __future__ import annotations

import math
from fractions import Fraction


def reference_leaves(points, *, epsilon, draw, max_depth, fanout=2, theta=0.0, grid=2**20):
    """Leaves (depth, prefix) of weighted integer keys; ``draw(n)`` gives a level's noise in grid steps.

    ``points`` is a list of (key at the finest level, weight in grid steps).
    """
    step = fanout.bit_length() - 1
    scale = (2 * fanout - 1) / ((fanout - 1) * epsilon)
    decay = math.ceil(scale * math.log(fanout) * grid)
    threshold = math.floor(Fraction(theta) * grid)
    level, leaves = [0], []
    for depth in range(max_depth + 1):
        if depth == max_depth:
            leaves += [(depth, node) for node in level]
            break
        noise = draw(len(level))
        children = []
        for node, extra in zip(level, noise, strict=True):
            shift = step * (max_depth - depth)
            score = sum(weight for key, weight in points if key >> shift == node)
            biased = max(score - depth * decay, threshold - decay)
            if biased + int(extra) > threshold:
                children += [node * fanout + child for child in range(fanout)]
            else:
                leaves.append((depth, node))
        level = children
        if not level:
            break
    return sorted(leaves, key=lambda leaf: leaf[1] << (step * (max_depth - leaf[0])))
