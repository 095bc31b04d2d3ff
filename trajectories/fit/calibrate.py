"""From noisy measurements to a model whose trips agree with them. Post-processing.

1. *Ends*: the noisy number of ends of each cell is combined with its traffic (from crossings well above the
   noise), that of each part of a busy cell with the walks that pass there, and the noisy count of each block
   of pairs with gravity, what independent ends would give.
2. *Network prior*: the released pairs walk over the public roads, which know distance but no preference. The
   crossings they make are combined with the measured ones by inverse variance: the traffic on each link.
3. *Calibration*: link costs are raised where walks cross more than that, lowered where they cross less, and
   the walks are drawn again. Costs are relative: the usual crossing costs nothing.
   On a plane, segments of sides that are crossed more often than lines do by themselves weigh more.
4. *Weights*: whole walks are weighted so that lengths and crossings agree with the measurements at once
   (``fit_weights``).
"""

from __future__ import annotations

from dataclasses import replace

import numba
import numpy as np
from scipy.optimize import Bounds, minimize
from scipy.sparse import csr_array

from synthgeo.arrays import Array, Floats, Ints
from synthgeo.hierarchy.privtree import GRID
from synthgeo.progress import track
from synthgeo.ragged import offsets_of, owners_of, ranks_of
from trajectories.fit.clock import estimate_clock, estimate_recording, zone_flows
from trajectories.fit.shrinkage import (
    beyond_noise,
    cell_traffic,
    combine,
    combine_blocks,
    estimate_ends,
    expected_counts,
    in_cells,
    misfit_of_parts,
    mixed,
    posterior_means,
    traffic_exponent,
    with_floor,
)
from trajectories.ground.cell_lines import SideSegments
from trajectories.ground.state_graph import StateGraph
from trajectories.measure.ends import BUCKETS, count_lengths
from trajectories.measure.measured import WEAK, MeasuredTrips
from trajectories.measure.pairs import Weights, count_links, segment_offsets
from trajectories.model import TripModel
from trajectories.reading.points import Trips
from trajectories.reading.recorded import speed_variations
from trajectories.walks.bridges import Walks
from trajectories.walks.pacing import timetable
from trajectories.walks.sampler import Effort, EndPicker, TripSampler, fewer
from trajectories.walks.traits import NOTHING, WalkFeatures, WalkTraits, WalkWeights

__all__ = ["SHUT", "both_ways", "calibrate", "even_segments", "fit_weights", "weigh_segments"]


_ROUNDS = 6
_TRIPS = 1000
_STEP = 0.7
_CLOSED = 4.0  # first cost of a link that carries nothing
_LEAST, _MOST = -5.0, 8.0
SHUT = 30.0  # cost of a link that nobody takes while there is another way
_SIGNAL = 2.0  # standard deviations of the noise that a crossing must exceed to speak for its cells
_LINK_THRESHOLD = 0.75  # standard deviations: what is left below is noise
_LENGTH_THRESHOLD = 1.25  # nearly a hundred buckets, most of them empty
_LENGTH_REACH = 3.0  # for the same reason: two deviations happen by chance
_POPULARITY = (1.0, 0.5, 2.0, 0.0)  # ends lie where walks pass: exponents; 0 puts them anywhere in the cell
_BOOSTS = 4  # rounds
_WINDINGS = np.exp2(np.arange(13) / 16)  # to 1.68
_FIT_EFFORT = Effort(destinations=250)


def calibrate(
    model: TripModel, measured: MeasuredTrips, rng: np.random.Generator, costs: Floats | None = None
) -> TripModel:
    """The model that follows from the measurements: ends, pairs, link costs and weights of walks, then
    departures, paces and gaps. ``costs`` are link costs to start from, those of an earlier release; a link
    that costs ``SHUT`` stays shut.
    """
    model, walks = _ways(model, measured, rng, costs)
    model = _with_clock(model, measured)
    recording = model.recording
    if walks is None or model.clock is None or recording is None or not len(recording.variations):
        return model
    return model.but(recording=replace(recording, boost=_boost(model, walks, rng)))


def _ways(
    model: TripModel, measured: MeasuredTrips, rng: np.random.Generator, costs: Floats | None
) -> tuple[TripModel, Walks | None]:
    """The model with ends, pairs, link costs and weights of walks, and some of its walks."""
    graph = model.graph
    links, variance = measured.crossings, measured.crossing_variance
    if links is None or not graph.links:
        even = cell_traffic(graph, np.zeros(graph.links))  # PrivTree's cells hold about as many ends each
        return _with_ends(model, measured, even, _exponent(model, measured, even)), None
    loud = measured.signal["links"] < 1
    sure = beyond_noise(graph.links) if loud else _SIGNAL
    if measured.silent:
        sure = np.inf  # the one link that noise lifts above all others would have all trips end beside it
    traffic = cell_traffic(graph, np.where(links > sure * np.sqrt(variance), links, 0.0))
    exponent = _exponent(model, measured, traffic)
    model = _with_ends(model, measured, traffic, exponent)
    if not measured.silent:
        model = model.but(segments=even_segments(graph, measured.halvings))
    model = model.but(winding=_winding(model, measured, rng))
    model, walks = _draw(model, measured, None, rng)
    expected = _crossings(graph, walks, measured.weights) * model.total
    goal = expected
    if not measured.silent:
        goal = combine(links, expected, variance, threshold=_LINK_THRESHOLD)
    first = np.zeros(graph.links) if costs is None else costs
    shut = first >= SHUT
    goal = np.where(shut, 0.0, goal)
    model = model.but(link_cost=np.where(goal > 0, first, np.maximum(first, _CLOSED)), traffic=goal)
    offered = []
    for _ in track(range(_ROUNDS), label="fitting walks"):
        model, walks = _draw(model, measured, goal, rng)
        offered.append(_by_segment(model, measured, walks, rng))
        crossed = _crossings(graph, walks, measured.weights) * model.total
        cost = model.link_cost + _STEP * np.log((crossed + 1.0) / (goal + 1.0))
        # The usual crossing is free: else every cell on the way would make detours dearer.
        cost -= np.average(cost, weights=np.where(shut, 0.0, crossed) + 1e-9)
        passed = np.bincount(walks.states, minlength=graph.size).astype(np.float64)
        passed *= 1000.0 / max(walks.size, 1)
        model = model.but(
            link_cost=np.where(shut, SHUT, np.clip(cost, _LEAST, _MOST)),
            popularity=_popularity(model, measured, passed),
        )
        model = _with_ends(model, measured, with_floor(graph, in_cells(graph, passed)), exponent)
    if model.segments is not None:
        usual = np.mean(offered[_ROUNDS // 2 :], axis=0)
        model = model.but(segments=weigh_segments(graph, measured, model.segments, usual))
    return _draw(model, measured, goal, rng)


def _exponent(model: TripModel, measured: MeasuredTrips, traffic: Floats) -> float:
    """How much the measured traffic of cells says of their ends."""
    return 0.0 if measured.silent else traffic_exponent(measured.ends, traffic, _size_of_cells(model))


def _size_of_cells(model: TripModel) -> Floats:
    """Metres of road (or area) where trips can end, of each cell."""
    cell = model.cell_of_part[model.places.part]
    size: Floats = np.bincount(cell, model.places.size, minlength=model.partition.size).astype(np.float64)
    return size


def _winding(model: TripModel, measured: MeasuredTrips, rng: np.random.Generator) -> float:
    """How much longer trips on a plane are than the lines of walks: half, in octaves, of the factor with
    which the lengths of straight walks are closest to the measured ones. Inside a cell trips turn corners
    that no walk from cell to cell knows, and walks that are chosen to be longer would go by other cells
    instead. But some trips do make detours: the other half is left to the choice of walks.
    """
    if model.ground.has_ways or measured.lengths is None or measured.signal["lengths"] < WEAK:
        return 1.0
    origin, destination, _ = EndPicker(model).draw(_TRIPS, rng)
    destination = fewer(destination, model.order_of_states, _FIT_EFFORT.destinations, rng)
    walks = TripSampler(model).straight(origin, destination, rng)
    walks = walks.take(np.flatnonzero(walks.found))
    metres, diameter, _ = model.ground.shapes_of_walks(model, walks, WalkTraits.of(model.graph, walks))
    misfits = []
    for factor in _WINDINGS:
        offered = count_lengths(factor * metres, diameter) * (model.total / max(walks.size, 1))
        misfits.append(float(((measured.lengths - offered) ** 2).sum()))
    return float(np.sqrt(_WINDINGS[int(np.argmin(misfits))]))


def _popularity(model: TripModel, measured: MeasuredTrips, passed: Floats) -> Floats:
    """How likely a trip ends at a place of each state, from how often walks pass it.

    Buses end on their routes, taxis in any street: of a few exponents the one that agrees best with the
    released ends of parts of cells. A state that few walks pass has its due with those of the usual number.
    Where ends drown in noise all are alike: ends where walks pass, and walks where ends are, would gather at
    whatever the noise had lifted first.
    """
    if measured.silent or measured.signal["by_cell"] < WEAK:
        return np.ones(len(passed))
    popular = [(passed + passed.mean() + 1e-9) ** exponent for exponent in _POPULARITY]
    misfits = [misfit_of_parts(measured.ends, _ends_inside(model, one)) for one in popular]
    best: Floats = popular[int(np.argmin(misfits))]
    return best


def _ends_inside(model: TripModel, popularity: Floats) -> Floats:
    """Ends that each part would have if all its places were as popular as their states."""
    places = model.places
    inside: Floats = np.bincount(
        places.part, popularity[places.state] * places.size, minlength=len(model.ends)
    ).astype(np.float64)
    return inside


def _with_clock(model: TripModel, measured: MeasuredTrips) -> TripModel:
    """The model with departures, paces and gaps, as far as they were measured."""
    clock = recording = None
    if measured.times is not None:
        flows = None
        if measured.zones is not None:
            by_cell = np.bincount(model.cell_of_part, model.ends, minlength=model.partition.size)
            flows = zone_flows(model.pairs, by_cell.astype(np.float64), measured.zones.zone)
        total = max(measured.total[0], 1.0)
        clock = estimate_clock(measured.times, measured.zones, flows, total=total)
    if measured.recording is not None:
        recording = estimate_recording(measured.recording, timed=clock is not None)
    return model.but(clock=clock, recording=recording)


def _boost(model: TripModel, walks: Walks, rng: np.random.Generator) -> Floats:
    """The factor on variations with which speeds between points vary as was measured."""
    clock, recording = model.clock, model.recording
    if clock is None or recording is None or not walks.size:
        return np.ones(1)
    lines, pieces = model.ground.lines(model, walks, rng)
    usual = model.ground.usual_seconds(model.graph, walks, pieces)
    everywhere = np.zeros(walks.size, dtype=np.int64)
    departure = clock.departures(everywhere, everywhere, rng)
    duration = np.maximum(clock.draw_paces(usual, departure, rng) * usual, 1.0)
    gap, variation = recording.draw_gaps(walks.size, rng), recording.draw_variations(walks.size, rng)
    parts = np.maximum(np.rint(duration / gap), 1).astype(np.int64)
    cap = model.ground.fastest(clock, recording)
    boost = 1.0
    for _ in range(_BOOSTS):
        table = timetable(pieces, duration, boost * variation, gap, rng, max_speed=cap)
        xy, start, seconds = table.evenly(lines, parts)
        have = speed_variations(Trips(xy, start, seconds), lines.scale)
        known = ~np.isnan(have)
        if not known.any():
            break
        boost = float(np.clip(boost * variation[known].mean() / max(have[known].mean(), 1e-9), 0.2, 5.0))
    return np.array([boost])


def _with_ends(model: TripModel, measured: MeasuredTrips, traffic: Floats, exponent: float) -> TripModel:
    """Where trips end: measured ends combined with the traffic of each cell, as far as its ``exponent`` says,
    and, within it, with where walks pass; blocks of pairs combined with gravity.
    """
    blocks, cells = measured.pairs, model.partition.size
    total = max(measured.total[0], 1.0)
    inside = _ends_inside(model, model.popularity)
    in_cell = np.bincount(model.cell_of_part, inside, minlength=cells)
    wanted = mixed(traffic, _size_of_cells(model), exponent)
    expected = inside * (wanted / np.maximum(in_cell, 1e-300))[model.cell_of_part]
    expected *= total / max(float(expected.sum()), 1e-300)
    ends = expected if measured.silent else estimate_ends(measured.ends, expected)
    # A little everywhere: any place that exists may be asked for.
    weight = np.where(inside > 0, ends + 1e-3 * expected + 1e-9, 0.0)
    by_cell = np.bincount(model.cell_of_part, weight, minlength=cells).astype(np.float64)
    if measured.silent:
        trips = expected_counts(blocks, by_cell, total)
    else:
        centres = model.ground.centres(model.partition)
        trips = combine_blocks(blocks, measured.pair_variance, by_cell, centres, total)
    return model.but(pairs=replace(blocks, count=trips), ends=weight)


def _draw(
    model: TripModel, measured: MeasuredTrips, goal: Floats | None, rng: np.random.Generator
) -> tuple[TripModel, Walks]:
    """Walks of the model, after its weights were fitted to what it proposes: to the lengths and, with a
    ``goal`` of crossings, to links.
    """
    effort = _FIT_EFFORT.for_each_of(round(max(measured.total[0], 1.0)))
    sampler = TripSampler(model, effort)
    if measured.lengths is None:
        return model, sampler.draw(_TRIPS, rng)
    origin, destination, block = EndPicker(model).draw(_TRIPS, rng)
    destination = fewer(destination, model.order_of_states, _FIT_EFFORT.destinations, rng)
    pool = sampler.pool(origin, destination, block, rng)
    if not pool.weight.any():
        return model, sampler.draw(0, rng)
    plain = pool.features.by_bucket(pool.features.within(pool.weight, np.zeros(len(measured.lengths))))
    offered: Floats = plain * (model.total / plain.sum())
    lengths = combine(
        measured.lengths, offered, measured.length_variance, reach=_LENGTH_REACH, threshold=_LENGTH_THRESHOLD
    )
    if not lengths.any():
        lengths = offered
    noise = float(np.mean(measured.crossing_variance))
    weights = fit_weights(pool.features, pool.weight, lengths, goal, noise)
    return model.but(weights=weights), pool.choose(weights, _TRIPS, rng)


def _by_segment(model: TripModel, measured: MeasuredTrips, walks: Walks, rng: np.random.Generator) -> Floats:
    """Crossings by segment of the lines of walks, for one trip on average."""
    if model.segments is None:
        return np.empty(0)
    along = model.ground.crossed_along(model, walks, rng)
    counted = count_links(model.graph, walks.states, walks.start, measured.weights, along, measured.halvings)
    return GRID.value(counted) / max(walks.size, 1)


def _crossings(graph: StateGraph, walks: Walks, weights: Weights) -> Floats:
    """Crossings of each link, for one trip on average."""
    return GRID.value(count_links(graph, walks.states, walks.start, weights)) / max(walks.size, 1)


# The weights of whole walks, fitted to released lengths and crossings. Post-processing.
#
# By bucket of length the weights are raked; by link they maximise a penalised likelihood: of all
# distributions of walks that agree with the counts within their noise, the one closest to the proposals in
# relative entropy.

_RAKES = 25  # of raking within pairs
_TURNS = 5  # between lengths and links
_ITERATIONS = 25
_CAUTION = 0.1  # how much the noise in links is held against them; 0 would fit it exactly
_LINK = 30.0  # bound of a link's weight
_RAREST, _DEAREST = -6.0, 4.0


def fit_weights(
    features: WalkFeatures, proposed: Floats, lengths: Floats, links: Floats | None, link_variance: float
) -> WalkWeights:
    """The weights with which ``proposed`` walks fill the buckets like ``lengths`` and, if given, follow
    ``links``: trips by bucket and by link.
    """
    rows = np.flatnonzero(proposed > 0)
    features, proposed = features.take(rows), proposed[rows]
    total = max(float(lengths.sum()), 1.0)
    offered = features.by_bucket(features.within(proposed, np.zeros(BUCKETS)))
    known = offered > NOTHING * offered.sum()  # of what was not offered nothing can be learned
    goal = np.where(known, lengths, 0.0)
    goal /= max(float(goal.sum()), 1e-300)
    within = np.zeros(BUCKETS)
    for _ in range(_RAKES):
        have = features.by_bucket(features.within(proposed, within))
        change = np.log((goal + 1e-4) / (have / have.sum() + 1e-4))
        within += np.where(known, np.clip(change, -1.6, 1.6), 0.0)
        within = np.clip(within - within[known].max(initial=-np.inf), -20.0, 0.0)
    chance = features.within(proposed, within)
    chance /= chance.sum()
    plain = np.log(np.maximum(chance, 1e-300))
    # However exact the links, this pool is one of many: it must not be fitted too closely.
    caution = max(_CAUTION * link_variance / total, 1 / (int(features.pair.max(initial=0)) + 1))
    among, by_link = np.zeros(BUCKETS), np.zeros(features.links.shape[1])

    def scores(among: Floats, by_link: Floats) -> Floats:
        out: Floats = among[features.bucket] + features.links @ by_link
        return out

    for turn in range(_TURNS + 1):
        fixed = plain + np.log(features.restoring(chance, _chances(plain + scores(among, by_link))[0]))
        have = features.by_bucket(_chances(fixed + scores(among, by_link))[0])
        change = np.log(np.maximum(goal, 2 * NOTHING) / np.maximum(have, NOTHING))
        among = np.where(known, np.clip(among + change, _RAREST, _DEAREST), _RAREST)
        if links is not None and links.any() and turn < _TURNS:
            by_link = _follow(
                features.links, fixed + among[features.bucket], by_link, links / links.sum(), caution
            )
    return WalkWeights(within, among, by_link, scores(among, by_link).max(initial=0.0))


def _follow(shares: csr_array, fixed: Floats, start: Floats, goal: Floats, caution: float) -> Floats:
    """Weights of links for walks with scores ``fixed``, by penalised likelihood."""
    squares = csr_array((shares.data**2, shares.indices, shares.indptr), shares.shape)
    chance = _chances(fixed)[0]
    begin, links, rows = shares.indptr, shares.indices, _row_shares(shares)
    offered = _crossed(begin, links, rows, chance, len(goal)) > NOTHING
    # Rare links move little for a given change of weight: on a scale of equal curvature all are found alike.
    scale = 1 / np.sqrt(squares.T @ chance + caution + NOTHING**2)
    bound = np.where(offered, _LINK, 0.0) / scale

    def likelihood(scaled: Floats) -> tuple[float, Floats]:
        weights = scale * scaled
        chance, log_sum = _chances(fixed + _along(begin, links, rows, weights))
        value = log_sum - weights @ goal + 0.5 * caution * (weights @ weights)
        crossed = _crossed(begin, links, rows, chance, len(goal))
        return value, np.where(offered, scale * (crossed - goal + caution * weights), 0.0)

    found = minimize(
        likelihood, start / scale, jac=True, method="L-BFGS-B", bounds=Bounds(-bound, bound),
        options={"maxiter": _ITERATIONS},
    )  # fmt: skip
    fitted: Floats = scale * found.x
    return fitted


def _row_shares(shares: csr_array) -> Floats:
    """What each walk gives to every link that it crosses: all of them the same."""
    out = np.zeros(shares.shape[0])
    some = np.diff(shares.indptr) > 0
    out[some] = shares.data[shares.indptr[:-1][some]]
    return out


@numba.njit(cache=True, nogil=True)
def _along(begin: Array, links: Array, share: Floats, weight: Floats) -> Floats:
    """The mean weight of the links of each walk: the product of the shares' matrix, whose rows are even."""
    out = np.zeros(len(share))
    for walk in range(len(share)):
        total, part = 0.0, share[walk]
        for j in range(begin[walk], begin[walk + 1]):
            total += part * weight[links[j]]
        out[walk] = total
    return out


@numba.njit(cache=True, nogil=True)
def _crossed(begin: Array, links: Array, share: Floats, chance: Floats, size: int) -> Floats:
    """Crossings of each link by walks with these chances: the product of the transposed matrix."""
    out = np.zeros(size)
    for walk in range(len(share)):
        part = share[walk] * chance[walk]
        for j in range(begin[walk], begin[walk + 1]):
            out[links[j]] += part
    return out


def _chances(scores: Floats) -> tuple[Floats, float]:
    """Probabilities of walks with these scores, and the logarithm of the sum of their weights."""
    top = float(scores.max())
    weight = np.exp(scores - top)
    whole = float(weight.sum())
    return weight / whole, top + float(np.log(whole))


# Where along their sides cells are crossed: weights of segments from noisy counts. Post-processing.

_LEAST_SEGMENT = 0.1  # of the mean of its side, what is expected of a segment at least: lines stray
_MOST_SEGMENT = 20.0  # weight of a segment, and one over the least


def even_segments(graph: StateGraph, halvings: Ints | None) -> SideSegments | None:
    """The segments of sides, all alike; None where no link has some."""
    if halvings is None or not halvings.any():
        return None
    number = np.zeros(int(graph.side_of_step.max()) + 1, dtype=np.int64)
    cut = np.flatnonzero(halvings)
    number[graph.side_of_step[cut]] = 1 << halvings[cut]
    first = offsets_of(number)
    return SideSegments(first, np.ones(int(first[-1])))


def weigh_segments(
    graph: StateGraph, measured: MeasuredTrips, even: SideSegments, expected: Floats
) -> SideSegments:
    """Weights with which lines cross segments as was measured, where ``expected`` of them do when all weigh
    the same: the mean, given the noisy count, of the multiple of what is expected.
    """
    assert measured.links is not None
    assert measured.halvings is not None
    side = owners_of(even.first)
    count, offered = (both_ways(graph, measured.halvings, even, of) for of in (measured.links, expected))
    sums, sides = np.bincount(side, count), np.bincount(side, offered)
    variance = 2 * measured.link_variance
    number = np.diff(even.first)[: len(sums)]
    total = np.maximum(sums, np.sqrt(variance * number))
    mean = (total / np.maximum(number, 1))[side]
    usual = np.maximum(offered * (total / np.maximum(sides, 1e-300))[side], _LEAST_SEGMENT * mean)
    found, _ = posterior_means(count, usual, np.full(len(count), variance))
    return even._replace(weight=np.clip(found / usual, 1 / _MOST_SEGMENT, _MOST_SEGMENT))


def both_ways(graph: StateGraph, halvings: Ints, segments: SideSegments, links: Floats) -> Floats:
    """Crossings of each segment of sides, the two directions together."""
    cut = np.flatnonzero(halvings)
    size = 1 << halvings[cut]
    rank = ranks_of(size)
    segment = np.repeat(segments.first[graph.side_of_step[cut]], size) + rank
    counted = links[np.repeat(segment_offsets(halvings)[cut], size) + rank]
    sums: Floats = np.bincount(segment, counted, minlength=len(segments.weight)).astype(np.float64)
    return sums
