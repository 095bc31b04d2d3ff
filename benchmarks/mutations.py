"""The mutants that ``benchmarks.mutants`` tries: privacy-relevant lines, each changed so that a promise
breaks.

Grouped by module. Whoever builds something that spends budget, bounds users or reads records adds its mutants.
"""

# ruff: noqa: E501  one change a line, whole
from __future__ import annotations

from benchmarks.mutants import Mutant

NOISE = ("tests/synthgeo/test_noise.py", "tests/statistical/test_noise_distribution.py")
SELECTION = ("tests/synthgeo/test_selection.py", "tests/statistical/test_noise_selection.py")
GAUSSIAN = ("tests/synthgeo/test_gaussian.py",)
FILTER = (
    "tests/synthgeo/test_filter.py",
    "tests/tabular/test_synthesizer.py::test_a_filter_never_gives_more_than_it_holds",
    "tests/tabular/test_synthesizer.py::test_a_filter_turns_the_budget_into_the_noise_it_promises",
    "tests/tabular/test_synthesizer.py::test_the_noise_of_a_measurement_has_the_variance_it_states",
    "tests/synthgeo/test_gaussian.py",
    "tests/tabular/test_measuring.py",
)
ACCOUNTANT = ("tests/synthgeo/test_accountant.py",)
BUDGET = ("tests/synthgeo/test_budget.py",)
UNIT = ("tests/synthgeo/test_unit.py", "tests/synthgeo/test_contribution.py")
BOUND = ("tests/synthgeo/test_contribution.py",)
LEDGER = ("tests/synthgeo/test_ledger.py", "tests/contract/test_ledger.py")
TREE = ("tests/synthgeo/test_privtree.py",)
COUNTERS = ("tests/streams/test_counters_privacy.py", "tests/streams/test_counters.py")
SUMS = ("tests/audit/test_sums.py", "tests/streams/test_lifetime.py")
POINTS = ("tests/audit/test_sums.py", "tests/audit/test_streams.py", "tests/audit/test_stream_replay.py")
BASELINES = ("tests/audit/test_registry.py -k DifferentialPrivTree or InitialPrivTree",)
STREAM = ("tests/streams/test_interrupts.py", "tests/streams/test_phd.py", "tests/synthgeo/test_ledger.py")
TABLES = ("tests/tabular/test_rotating.py", "tests/tabular/test_sensitivity.py")
ONCE = ("tests/audit/test_tables.py", "tests/tabular/test_measuring.py", "tests/tabular/test_finer_groups.py")
# One audit each, of those that take a product as a whole.
BINS = ("tests/audit/test_registry.py -k bins",)
BOUNDED = ("tests/audit/test_registry.py -k records",)
VALUES = ("tests/tabular/test_values.py",)
HOMES = ("tests/tabular/test_households.py",)
PANELS = ("tests/tabular/test_panel.py", "tests/audit/test_registry.py -k PanelStream")
TRIP_AUDITS = ("tests/audit/test_registry.py -k trips or Trajectory",)
ONCE_ONLY = ("tests/contract/test_products.py -k TabularSynthesizer",)
COPIES = ("tests/contract/test_ledger.py -k copy",)
TRIP_SPENDING = ("tests/trajectories/test_spending.py",)
MARGINALS = ("tests/tabular/test_sensitivity.py",)
TRIPS = (
    "tests/trajectories/test_measurements.py",
    "tests/audit/test_trips.py",
    "tests/trajectories/test_spending.py",
)
TRIP_POINTS = ("tests/trajectories/test_points.py",)
TRIP_STREAMS = ("tests/trajectories/test_stream.py",)
TRIP_CHOICES = ("tests/audit/test_trips.py -k answers",)
TRIP_SETUP = ("tests/trajectories/test_spending.py -k may_spend or cannot_work",)
ATTRIBUTES = ("tests/audit/test_registry.py -k attributes", "tests/trajectories/test_attributes.py -k refused",
              "tests/trajectories/test_stream.py -k attributes")  # fmt: skip
MODEL_FILE = ("tests/trajectories/test_spending.py -k hash",)
IN_PARTS = ("tests/trajectories/test_parts.py -k in_parts or travel or files_in",)
MATCHING = ("tests/trajectories/test_matching.py -k alone or reach",)
TRIP_ADMISSION = (
    "tests/trajectories/test_stream.py -k user or period or admitted or counted or other_trips or decides",
)
READING = ("tests/synthgeo/test_sources_text.py", "tests/synthgeo/test_sources_coupling.py", "tests/synthgeo/test_windows.py",
           "tests/synthgeo/test_sources_files.py")  # fmt: skip
IDENTITY = ("tests/synthgeo/test_sources_text.py", "tests/synthgeo/test_sources_files.py",
            "tests/synthgeo/test_sources_agreement.py", "tests/streams/test_durable_content.py")  # fmt: skip
RUNS = ("tests/streams/test_durable.py", "tests/streams/test_durable_content.py", "tests/streams/test_durable_damage.py",
        "tests/streams/test_durable_writers.py", "tests/streams/test_durable_paid.py")  # fmt: skip
JOURNAL = ("tests/streams/test_durable_content.py -k salted",)
PUBLISHED = ("tests/synthgeo/test_publish.py -k releasable or seeded_release or every_release",)
SCHEMA = ("tests/synthgeo/test_schema.py",)
SERIES = ("tests/audit/test_series.py",)
BY_HAND = ("tests/docs/test_by_hand.py",)
STATE = ("tests/synthgeo/test_state.py",)
WINDOWS = ("tests/streams/scalar/test_window.py",)
BASE = ("tests/streams/scalar/test_window.py", "tests/streams/scalar/test_perturbation.py",
        "tests/streams/scalar/test_contract.py::test_a_state_of_an_earlier_version_is_refused",
        "tests/streams/scalar/test_contract.py::test_an_offline_mechanism_remembers_that_it_has_spent")  # fmt: skip
AR1 = ("tests/streams/scalar/test_autoregressive.py",)
STEPS = "tests/streams/scalar/test_contract.py::test_noise_on_a_grid_is_that_of_whole_steps"
PERTURBED = ("tests/streams/scalar/test_perturbation.py", "tests/audit/test_series.py", STEPS)
COUNTING = ("tests/streams/scalar/test_counting.py", STEPS)
FOURIER = ("tests/streams/scalar/test_fourier.py", "tests/audit/test_series.py")
SAMPLED = (
    "tests/streams/scalar/test_subsampling.py",
    "tests/audit/test_registry.py -k computed and FilteredRelease",
)
FAST = (
    "tests/streams/scalar/test_fast.py",
    STEPS,
    "tests/streams/scalar/test_contract.py -k middle and fast",
)
LOCAL = ("tests/streams/scalar/test_local.py", "tests/streams/scalar/test_contract.py -k middle or runs_out",
         "tests/audit/test_registry.py -k ToPS or TemporalResponse or WindowResponse")  # fmt: skip
SIP = ("tests/streams/scalar/test_sip.py", "tests/audit/test_series.py")
CHOICE = ("tests/streams/scalar/test_choose.py",)
EXPIRING = ("tests/tabular/test_table_lifetime.py -k one_released or deletions or saved or noise or rows",)
TIMES = ("tests/streams/test_times.py",)
AGES = (
    "tests/streams/test_lifetime.py::test_a_deletion_is_in_the_group_of_its_age_and_in_its_insertions_period",
    "tests/streams/test_lifetime.py::test_deletions_inside_a_lifetime_expire_with_their_insertions",
    "tests/streams/test_lifetime.py::test_a_deletion_of_the_same_step_and_one_of_an_expired_event",
    "tests/streams/test_lifetime.py::test_deletions_without_their_insertions_step_are_refused",
    "tests/streams/test_lifetime.py::test_deletions_by_time_in_windows",
    "tests/streams/test_lifetime.py::test_settings_that_do_not_go_together_are_refused",
    "tests/streams/test_periods.py::test_deletions_belong_to_the_period_of_their_insertion",
    "tests/streams/test_periods.py::test_deletions_need_a_column_that_says_their_period",
    "tests/tabular/test_table_lifetime.py::test_a_row_is_in_one_released_sum_whether_it_comes_or_goes",
    "tests/tabular/test_table_lifetime.py::test_users_who_delete_are_bounded_by_the_period_of_their_insertions",
)
PARTS = ("tests/synthgeo/test_filter.py",)
ROUNDS = (
    "tests/tabular/test_measuring.py::test_choices_have_the_sensitivity_of_the_largest_weight",
    "tests/tabular/test_synthesizer.py::test_a_filter_never_gives_more_than_it_holds",
)
UNCHANGED = ("tests/synthgeo/test_sources_unchanged.py",)

_LISTED: tuple[tuple[tuple[str, ...], str, tuple[tuple[str, str, str] | tuple[str, str, str, str], ...]], ...] = (
    (NOISE, "synthgeo.privacy.noise", (
        ("Noise._signed", "negative & (value == 0)", "negative & (value == 1)"),
        ("Noise._signed", "np.negative(value, out=value, where=negative)", "np.negative(value, out=value)"),
        ("Noise._geometric", "out[high] += np.int64(1) << bits", "out[high] += np.int64(1)"),
        ("Noise._geometric", "hits[k].astype(np.int64) << k", "hits[k].astype(np.int64) << max(k - 1, 0)"),
        ("Noise._bernoulli_rows", "hit[row, column] = more < digit", "hit[row, column] = more > digit"),
        ("Noise.discrete_laplace", "out[order[start:end]] = self._laplace(float(value)", "out[order[start:end]] = self._laplace(float(values[0])"),
        ("Noise.discrete_gaussian", "math.floor(sigma) + 1.0", "math.floor(sigma) + 0.5"),
        ("Noise._accept_gaussian", "gap * gap / (2 * variance * t * t)", "gap * gap / (variance * t * t)"),
        ("Noise._accept_gaussian", "(abs(int(proposals[i])) * t - exact_variance) ** 2 / (2", "(abs(int(proposals[i])) * t - exact_variance) ** 2 / (4"),
        ("Noise.integers", "(2**64 // high) * high - 1", "2**64 - 1"),
        ("Noise.bernoulli_exp_near", "np.exp(-gamma) * 2.0**64", "np.exp(-gamma) * 2.0**63"),
        ("Noise._compare_exactly", "if uniform + 1 <= low:", "if uniform >= low:"),
        ("FixedPoint.floor", "np.trunc(", "np.ceil("),
        ("_row_digits", "2**row / Fraction(scale)", "2**row / Fraction(scale / 2)"),
        ("laplace_variance", "0.5 / math.sinh(half) ** 2", "1.0 / math.sinh(half) ** 2"),
        ("SystemNoise._bytes", "os.urandom(count)", "np.random.default_rng(0).bytes(count)"),
        ("SystemNoise.__reduce__", "return SystemNoise, ()", "return SeededNoise, (0,)"),
        ("SeededNoise", "releasable = False", "releasable = True"),
        ("SeededNoise", 'self._bits.bit_generator.state = state["bits"]', "pass"),
    )),
    (GAUSSIAN, "synthgeo.privacy.noise", (
        ("contrast", "table.sum(axis=axis, keepdims=True)", "0"),
    )),
    (SELECTION, "synthgeo.privacy.selection", (
        ("_exponents", "rate /= 2", "pass"),
        ("_exponents", "if not monotonic:", "if monotonic:"),
        ("_exponents", "float(finite.max())", "float(finite.min())"),
        ("_exponents", "np.flatnonzero(values > -np.inf)", "np.arange(values.size)"),
        ("_first_kept", "exact(int(trial[i]))", "exact(int(trial[0]))"),
        ("exponential_mechanism", "noise.integers(candidates.size, size)", "np.arange(size) % candidates.size"),
        ("permute_and_flip", "noise.permutation(candidates.size)", "np.arange(candidates.size)"),
    )),
    (GAUSSIAN, "synthgeo.privacy.gaussian", (
        ("gaussian_delta", "mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu", "mu / 2 - epsilon / mu, mu / 2 - epsilon / mu - 9"),
        ("gaussian_mu", "losses + epsilon, losses - epsilon", "losses, losses - epsilon"),
        ("gaussian_mu", "np.ceil(losses * 2.0**40)", "np.floor(losses * 2.0**0)"),
        ("noisy_table", "math.hypot(sigma * 2.0**bits, TAU)", "sigma * 2.0**bits / 2"),
        ("noisy_table", "contrast(steps) + noise.contrast_gaussian(fine, table.shape)", "contrast(steps) + noise.discrete_gaussian(fine, table.size).reshape(table.shape)"),
        ("noisy_table", "table.astype(np.int64) << bits", "table.astype(np.int64) << (bits + 1)"),
        ("interaction_cost", "1 - 1 / size", "1 - 2 / size"),
        ("grid_bits", "math.sqrt(5.5 * len(shape) * max(shape))", "math.sqrt(max(shape))"),
    )),
    (FILTER, "synthgeo.privacy.filter", (
        ("PrivacyFilter.__init__", "used.epsilon / bound", "used.epsilon"),
        ("PrivacyFilter.__init__", "zcdp_of(used) / bound**2", "zcdp_of(used) / bound"),
        ("PrivacyFilter.__init__", "/ bound) ** 2", ") ** 2"),
        ("PrivacyFilter.__init__", "tuple(bound * epsilon for epsilon in pure)", "()"),
        ("PrivacyFilter._take", "self.left -= taken", "pass"),
        ("PrivacyFilter._take", "fraction <= self.left * (1 + 1e-9)", "fraction <= 2"),
        ("PrivacyFilter.measure", "self.noise.discrete_laplace(1 / amount", "self.noise.discrete_laplace(0.5 / amount"),
        ("PrivacyFilter.measure", "math.sqrt(1 / (2 * amount))", "math.sqrt(1 / (4 * amount))"),
        ("PrivacyFilter.measure", "noisy_table(counts, math.sqrt(1 / amount)", "noisy_table(counts, math.sqrt(0.5 / amount)"),
        ("PrivacyFilter.measure_interaction", "interaction_cost(counts.shape) / amount", "interaction_cost(counts.shape) ** 2 / amount"),
        ("PrivacyFilter.measure_scores", "math.sqrt(scores.size / amount)", "math.sqrt(1 / amount)"),
        ("PrivacyFilter.measure_scores", "discrete_laplace(scores.size / amount", "discrete_laplace(1 / amount"),
        ("PrivacyFilter.choose", "math.sqrt(8 * amount)", "math.sqrt(16 * amount)"),
        ("PrivacyFilter.choose", "sensitivity=sensitivity", "sensitivity=sensitivity / 2"),
        ("PrivacyFilter.pure_epsilon", "math.sqrt(2 * amount)", "math.sqrt(4 * amount)"),
        ("PrivacyFilter.sigma", "2 * amount)", "amount)"),
    )),
    (ACCOUNTANT, "synthgeo.privacy.accountant", (
        ("Accountant.charge_gaussian", "count * ratio * ratio / 2", "ratio * ratio / 2"),
        ("Accountant.charge_gaussian", "ratio * ratio / 2", "ratio * ratio / 4"),
        ("Accountant._charge", "self._charges.append(charge)", "pass"),
        ("Accountant._charge", "if not self.budget.covers(total):", "if False:"),
        ("_spent", "math.fsum(pure) + own", "own"),
        ("_spent", "epsilon * epsilon / 2", "epsilon * epsilon / 8"),
        ("_spent", "np.minimum(_ORDERS", "np.maximum(_ORDERS"),
        ("zcdp_of", "            low = middle", "            low = 1.1 * middle"),
        ("gaussian_sigma", "math.sqrt(count / (2", "math.sqrt(1 / (2"),
    )),
    (BUDGET, "synthgeo.privacy.budget", (
        ("PrivacyBudget.split", "_rest(self.epsilon, [part.epsilon for part in parts[:-1]])", "self.epsilon"),
        ("PrivacyBudget.split", "self.epsilon * w / total", "self.epsilon * w"),
        ("PrivacyBudget.__sub__", "other.epsilon >= self.epsilon", "other.epsilon > 2 * self.epsilon"),
        ("PrivacyBudget.__sub__", "_rest(self.epsilon, [other.epsilon])", "self.epsilon"),
        ("PrivacyBudget.covers", "1 + 1e-12", "1 + 1e-2"),
        ("PrivacyBudget.covers", "and other.delta", "or other.delta"),
        ("PrivacyBudget.__truediv__", "self.epsilon / float(divisor)", "self.epsilon"),
        ("PrivacyBudget.__add__", "self.epsilon + other.epsilon", "max(self.epsilon, other.epsilon)"),
        ("_rest", "math.nextafter(rest, 0.0)", "rest - 0.0 if rest < 0 else 0.0"),
    )),
    (UNIT, "synthgeo.privacy.unit", (
        ("PrivacyUnit.user", 'return cls("user", bound, key', 'return cls("user", bound + 1, key'),
        ("PrivacyUnit.is_user", 'self.kind == "user"', 'self.kind == "person"'),
        ("PrivacyUnit.from_dict", 'int(value["max_contributions"])', "1"),
    )),
    (BOUND, "synthgeo.privacy.contribution", (
        ("ContributionBounder.admit", "self.unit.max_contributions - used", "self.unit.max_contributions"),
        ("ContributionBounder.admit", "places = 2 if self.deletes else 1", "places = 1"),
        ("ContributionBounder.admit", "used + places * taken", "used + taken"),
        ("ContributionBounder.admit", "self._users, self._open = users_after, open_after", "self._open = open_after"),
        ("ContributionBounder.admit", "used + places * taken", "places * taken"),
        ("ContributionBounder._choose", "_position_in_run(user) < room[user]", "_position_in_run(user) <= room[user]"),
        ("ContributionBounder._choose", "mix(self._salt, who.low[user], who.high[user], key)", "mix(self._salt, rows.astype(np.uint64))"),
        ("ContributionBounder._choose", "inserted & (wanted <= room)[codes]", "inserted & (wanted <= room.max())[codes]"),
        ("ContributionBounder._match_deletions", "< there[:, 0]", "<= there[:, 0]"),
        ("ContributionBounder._match_deletions", "np.full((len(rows), 1), -1, np.int64)", "np.full((len(rows), 1), 0, np.int64)"),
        ("ContributionBounder.from_state", 'bounder._users = _PairTable.from_arrays(arrays, "users_", 2)', "pass"),
        ("_distinct", "if not np.array_equal(high[codes], ids.high):", "if False:"),
        ("_PairTable.find", "== second[found]", ">= second[found]"),
    )),
    (BOUND, "synthgeo.privacy.users", (
        ("UserIds.of_integers", "beyond, [str(value) for value in values[beyond].tolist()]", "beyond, [str(value % 7) for value in values[beyond].tolist()]"),
        ("_is_plain_number", 'digits[0] == "0" and text != "0"', "False"),
        ("read_ids", "(np.abs(plain) < 2.0**63)", "(np.abs(plain) < 2.0**9)", "a whole number that goes the way of texts gets the same id there"),
    )),
    (LEDGER, "synthgeo.privacy.ledger", (
        ("Ledger._append", "self._check_room(product, budget, first)", "pass"),
        ("Ledger.charge", "if entry is None:", "if True:"),
        ("Ledger._append", '"epsilon": budget.epsilon', '"epsilon": budget.epsilon / 2'),
        ("Ledger.charge", "self._salted(content_hash)", "content_hash"),
        ("Ledger.reserve", "self._salted(content_hash)", "content_hash"),
        ("Ledger.reserve", "self._check_next(product, step, row[\"step\"])", "pass"),
        ("Ledger.reserve", '"pending": token', '"pending": row["pending"] or token'),
        ("Ledger.reserve", 'connection.execute("DELETE FROM steps WHERE once = ?", (row["once"],))', "pass"),
        ("Ledger.reserve", "row = self._enter(product, budget, unit, key, step - 1, content)", 'row = {"once": "", "entry": 1, "step": step - 1, "owner": None}'),
        ("Ledger._abandoned", "step = 0 AND ", ""),
        ("Ledger._abandoned", "pending IS NOT NULL ", "1 ", "content is kept for pending steps alone"),
        ("Ledger._abandoned", "product = ? AND", "? IS NOT NULL AND"),
        ("Ledger._abandoned", "epsilon = ? AND", "? IS NOT NULL AND"),
        ("Ledger._abandoned", "AND unit = ?", "AND ? IS NOT NULL"),
        ("Ledger._abandoned", "steps.content = ?", "? IS NOT 1"),
        ("Ledger._check_next", "if step <= committed:", "if False:"),
        ("Ledger._check_next", "if step > committed + 1:", "if False:"),
        ("Ledger.commit", '!= (reservation.step - 1, reservation.token)', '[:1] != (reservation.step - 1,)'),
        ("Ledger.commit", 'row["pending"]) != (reservation.step - 1, reservation.token)', 'row["pending"])[1:] != (reservation.token,)', "a token is reserved for one step"),
        ("Ledger.commit", '(row["step"], row["owner"]) == (reservation.step, reservation.token)', 'row["step"] == reservation.step'),
        ("Ledger.committed", '(row["step"], row["owner"]) == (reservation.step, reservation.token)', 'row["step"] == reservation.step'),
        ("Ledger.adopt", 'if row["step"] < step:', "if False:"),
        ("Ledger._unsealed", 'if row["seal"] != link("", list(values.values())):', "if False:"),
        ("Ledger.check", "None if key is None else self.find(key)", "None"),
        ("Ledger._check_room", "[*self._entries(), budget]", "[budget]"),
        ("Ledger._check_room", 'self.on_repeat == "refuse"', "False"),
    )),
    (TREE, "synthgeo.hierarchy.privtree", (
        ("SplitRule.scale", "(2 * self.fanout - 1)", "self.fanout"),
        ("SplitRule.scale", "(self.fanout - 1) * self.epsilon", "self.fanout * self.epsilon"),
        ("SplitRule.decay", "math.log(self.fanout)", "math.log(self.fanout) / 8"),
        ("SplitRule.decay", "max(decay, self.grid.one) if self.fractional else decay", "decay"),
        ("SplitRule.decide", "scores - depth * self.decay", "scores"),
        ("SplitRule.decide", "self.threshold - self.decay)", "self.threshold - 9 * self.decay)"),
        ("SplitRule.decide", "self.scale * self.grid.one", "self.scale * self.grid.one / 2"),
        ("SplitRule.decide", "self.grid.one, scores.size)", "self.grid.one, 1)"),
        ("privtree", "int(weights.min()) < 0", "False"),
        ("KeyScore.__call__", "self._running[last] - self._running[first]", "self._running[last]"),
        ("grow", "rule.decide(score(prefix, bits, measure), depth, noise)", "rule.decide(score(prefix, bits, measure), 0, noise)"),
    )),
    (COUNTERS, "streams.counters.base", (
        ("LaplaceBank.scale_for", "levels * 2.0**self.grid_bits", "2.0**self.grid_bits"),
        ("LaplaceBank.scale_for", "2.0**self.grid_bits / self.epsilon", "1.0 / self.epsilon"),
        ("CounterBank.drop", "array[..., slots] = 0", "pass"),
        ("CounterBank.step", "clock.take(slots) + 1", "clock.take(slots) + 2"),
        ("CounterBank._check_slots", "if np.count_nonzero(seen) != slots.size:", "if False:"),
    )),
    (COUNTERS, "streams.counters.bounded", (
        ("RadixBank._advance", "self.noise.discrete_laplace(self.scale, slots.size)", "self.noise.discrete_laplace(self.scale / 2, slots.size)"),
        ("RadixBank._advance", "change[moving] -= level[row, slots[moving]]", "change[moving] += level[row, slots[moving]]"),
        ("RadixBank._advance", "level[row, slots[moving]] = 0", "pass"),
        ("RadixBank._advance", "self._widths[row + 1] == 0", "self._widths[row] == 0"),
        ("BinaryBank.__init__", "need_horizon(horizon, self.kind).bit_length()", "max(1, need_horizon(horizon, self.kind).bit_length() - 1)",
         "fewer levels at the scale of fewer levels: the top one goes on, an event pays ε all the same, and the variance is larger"),
        ("BlockBank.__init__", "levels=2", "levels=1"),
        ("RadixBank.__init__", "self.scale_for(levels)", "self.scale_for(1)"),
    )),
    (COUNTERS, "streams.counters.bounded", (
        ("KaryBank.__init__", "self.scale_for(self.levels)", "self.scale_for(self.levels - 1)"),
        ("KaryBank._advance", "change[back] += ahead[which, slots[back]]", "pass"),
        ("KaryBank._advance", "ahead[:, slots[turn]] = drawn", "pass"),
        ("KaryBank._advance", "change[moving] = fresh[draws:]", "change[moving] = 0"),
    )),
    (COUNTERS, "streams.counters.unbounded", (
        ("HybridBank.__init__", "self.scale_for(epoch + 1)", "self.scale_for(1)"),
        ("HybridBank._advance", "change[moving] -= level[row, slots[moving]]", "pass"),
        ("UnboundedBlockBank.__init__", "self.scale_for(2)", "self.scale_for(1)"),
        ("UnboundedBlockBank._advance", "np.where(ends, fresh - before, fresh)", "np.where(ends, -before, fresh)"),
        ("UnboundedKaryBank.__init__", "self.scale_for(2)", "self.scale_for(1)"),
    )),
    (COUNTERS, "streams.counters.bounded", (
        ("ToeplitzBank.__init__", "math.sqrt(2 * self.rho)", "math.sqrt(4 * self.rho)"),
        ("ToeplitzBank._advance", "+ fresh[here]", ""),
        ("ToeplitzBank._advance", 'arrays["value"][:, starting] = 0', "pass", "each row of an epoch is written before it is read: the line only clears memory"),
    )),
    (SUMS, "streams.sums", (
        ("WindowPlan.scale", "1 / (self.epsilon * self.share)", "1 / self.epsilon"),
        ("WindowPlan.block_scale", "self.epsilon * (1 - self.share)", "self.epsilon"),
        ("WindowPlan.closes", "step % self.block == 0", "step % self.block <= 1"),
        ("Epoch.closes", "local % self.branching ** (count + 1) == 0", "local % self.branching == 0"),
    )),
    (POINTS, "streams.mechanism", (
        ("EventBudget.__post_init__", "self.budget / self.unit.max_contributions", "self.budget / 1"),
        ("EventBudget.__post_init__", "(self.structure_share, 1 - self.structure_share)", "(1.0, 1e-9)"),
        ("laplace_scale", "1 / part.epsilon", "0.5 / part.epsilon"),
    )),
    (POINTS, "streams.spatial.counted", (
        ("LeafCounts.measure", "true + noise.discrete_laplace(scale, true.size)", "true + noise.discrete_laplace(scale / 2, true.size)"),
        ("LeafCounts.measure", "noise.discrete_laplace(scale, true.size)", "noise.discrete_laplace(scale, 1)"),
        ("LeafCounts.measure", "true + noise.discrete_laplace(scale, true.size)", "np.where(true > 0, true + noise.discrete_laplace(scale, true.size), 0)"),
    )),
    (SUMS, "streams.spatial.lasting", (
        ("Lasting.__init__", "laplace_scale(event.counts)", "laplace_scale(event.whole)"),
        ("Lasting._scale", "self.event.whole.epsilon * epoch.shares[level]", "self.event.whole.epsilon"),
        ("Lasting._close", "_without(self.nodes, level - 1), _without(self.waiting, level - 1)", "_without(self.nodes, level - 1), self.waiting"),
        ("Lasting._close", "self.nodes = self.waiting = ()", "self.nodes = ()"),
        ("Lasting.advance", "            self._settle([self._measure((net,), step, step, self.scale_at_structure)])", "            self._settle([self._measure((net,), step, step, self.scale_at_structure)])\n            self._count(net, step, epoch)"),
    )),
    (SUMS, "streams.spatial.expiring", (
        ("Expiring.__init__", "laplace_scale(event.counts)", "laplace_scale(event.whole)"),
        ("Expiring.advance", "            self.waiting = ()", "            pass"),
        ("Expiring.advance", "elif plan.block > 1:", "if plan.block > 1:"),
        ("Expiring._terms", "weights[i] -= weight", "pass"),
        ("Expiring.advance", "measured.append(self._measure([gone], step - older + 1, step - youngest, scale))", "measured.append(self._measure([gone], step - older + 1, step - youngest, scale / 2))"),
    )),
    (POINTS, "streams.spatial.phd", (
        ("PHD.__init__", "event.counts if always else event.whole", "event.whole"),
        ("PHD.__init__", "laplace_scale(event.counts)", "laplace_scale(event.whole)"),
        ("PHD.advance", "if structure and not self.always:", "if False:"),
        ("PHD._move_to", "self.bank.drop(self.slots[gone])", "pass", "a counter that nobody reads any more is private whether or not its slot is used again"),
        ("PHD._move_to", "slots[here], counted[here] = self.slots[there], self.counted[there]", "slots[here] = self.slots[there]"),
    )),
    (POINTS, "streams.spatial.structure", (
        ("Structure.__init__", "SplitRule(event.structure.epsilon", "SplitRule(event.whole.epsilon"),
        ("Structure.score", "inserted * GRID.one", "2 * inserted * GRID.one"),
        ("Structure.score", "cells.released, GRID.one", "cells.released - 1, GRID.one"),
    )),
    (BASELINES, "streams.spatial.baselines", (
        ("TreePerStep.__init__", "laplace_scale(event.counts)", "laplace_scale(event.whole)"),
        ("TreePerStep.count", "self.noise.discrete_laplace(self.scale, true.size)", "self.noise.discrete_laplace(self.scale / 2, true.size)"),
        ("Differential.advance", "totals = (*self.totals, change)", "totals = (*self.totals, float(inserted.sum()))"),
    )),
    (STREAM, "streams.stream", (
        ("Stream.take", "self._charge()", "pass"),
        ("Stream.take", "if counted.clock.step != self.step + 1:", "if False:"),
        ("Stream._advance", "mechanism = now.mechanism.copy()", "mechanism = now.mechanism"),
        ("Stream.count", "copy(self._now.bounder)", "self._now.bounder"),
    )),
    (("tests/streams/test_phd.py::test_users_are_bounded_over_the_life_of_the_stream",), "streams.spatial.points", (
        ("AdmittedPoints.__call__", "kept[inside] = bounder.admit(", "kept[inside] = True | bounder.admit("),
    )),
    (TABLES, "tabular.over_time.every_step", (
        ("EveryStepModel.__init__", "setup.event.structure / setup.picks, setup.event.counts / setup.picks", "setup.event.structure / 1, setup.event.counts / setup.picks"),
        ("EveryStepModel.__init__", "setup.event.structure / setup.picks, setup.event.counts / setup.picks", "setup.event.structure / setup.picks, setup.event.counts / 1"),
        ("EveryStepModel.advance", "self.bank.step(self.slots[clique], batch[clique])", "self.bank.step(self.slots[clique], 2 * batch[clique])"),
        ("EveryStepModel._pick", "score_sensitivity(setup.workload.weights)", "min(setup.workload.weights)"),
        ("EveryStepModel._pick", "np.where(open_to, scores, -np.inf)", "np.where(open_to, 2 * scores, -np.inf)"),
    )),
    (TABLES, "tabular.over_time.rotating_marginals", (
        ("Rotating.advance", "event.whole - self.rows_budget if self.complete else self.marginals_budget", "event.whole - self.rows_budget"),
        ("Rotating._collect", "min(slot.share, share)", "share"),
        ("Rotating.advance", "marginals.epsilon / len(self.slots)", "marginals.epsilon"),
        ("Rotating._release", "scale = 1 / slot.share", "scale = 0.5 / slot.share"),
        ("Rotating._release", "slot.pending = np.zeros_like(slot.pending)", "pass"),
        ("Rotating._release", "slot.share = math.inf", "pass", "a share that is not reset is a smaller one: less is spent"),
        ("Rotating._pick", "(budget / setup.picks).epsilon", "budget.epsilon"),
        ("Rotating._pick", "max(weights.values())", "min(weights.values())"),
        ("Rotating._pick", "self._expected_in_period(candidates)", "{c: 3.0 * self.period[c] for c in candidates}"),
        ("Rotating._count_rows", "self.bank.step(self.row_slots, batch).tolist()", "batch.tolist()"),
        ("Rotating._begin_period", "np.zeros(self.setup.cells[c], dtype=np.int64)", "self.period.get(c, np.zeros(self.setup.cells[c], dtype=np.int64))"),
    )),
    (TABLES, "tabular.over_time.baselines", (
        ("Fresh.__init__", "setup.event.structure / setup.picks", "setup.event.structure / 1"),
        ("Fresh.__init__", "setup.event.counts / setup.picks", "setup.event.counts / 1"),
        ("Fresh.advance", "score_sensitivity(setup.workload.weights)", "min(setup.workload.weights)"),
        ("Fresh.advance", "setup.noise.discrete_laplace(self.scale, batch[choice].size)", "setup.noise.discrete_laplace(self.scale, 1)"),
    )),
    (MARGINALS, "tabular.workload", (
        ("score_sensitivity", "max(weights)", "min(weights)"),
        ("l1_scores", "np.abs(counts[c] - expected[c]).sum()", "(np.abs(counts[c] - expected[c]) ** 2).sum()"),
    )),
    (MARGINALS, "tabular.marginals", (
        ("MarginalIndex.keys", "np.bincount(cell, weights=signs, minlength=self.cells[clique])", "np.bincount(cell, minlength=self.cells[clique])"),
        ("MarginalIndex.cell_of", "cell * size", "cell"),
    )),
    (ONCE, "tabular.measuring", (
        ("measure_by_scores", "np.rint(columns.independent(c, total)).astype(np.int64)", "exact[c].reshape(columns.independent(c, total).shape)"),
        ("measure_by_scores", "spending.measure_interaction(counts, fraction)", "spending.measure_interaction(counts, fraction) * 0 + counts"),
        ("measure_by_choice", "max(importance[clique] for clique in candidates)", "min(importance[clique] for clique in candidates) / 2"),
        ("measure_by_choice", "WIDE_CHOICE_SHARE / picks", "WIDE_CHOICE_SHARE"),
        ("MeasuredColumns.hidden", "math.floor(0.5 * _LAST_BITS", "math.floor(1.0 * _LAST_BITS"),
        ("MeasuredColumns.find_finer", "                self.noisy[name],", "                self.exact[name,].astype(np.float64),"),
        ("MeasuredColumns.measure", "self.spending.measure(self.exact[name,], fraction)", "self.spending.measure(self.exact[name,], fraction) * 0 + self.exact[name,]"),
        ("MeasuredColumns.total", "max(float(np.average(sums, weights=weights)), 1.0)", "float(next(iter(self.exact.values())).sum())"),
    )),
    (BINS, "tabular.bins", (
        ("tree_edges", "SplitRule(epsilon, grid=WHOLE)", "SplitRule(2 * epsilon, grid=WHOLE)"),
        ("tree_edges", "rule.decide(inside, level, noise)", "rule.decide(inside, 0, noise)"),
        ("tree_edges", "rule.decide(inside, level, noise)", "(inside > 3)"),
    )),
    (ONCE, "tabular.once", (
        ("TabularSynthesizer._budget", "[BIN_SHARE / max(bins, 1)] * bins", "[BIN_SHARE] * bins", "the filter adds up what the bins of each column take, and less is left for the rest"),
    )),
    (HOMES, "tabular.households", (
        ("HouseholdSynthesizer._found", "[epsilon / k for epsilon in own]", "list(own)"),
        ("HouseholdSynthesizer._found", "VALUE_SHARE / values, bound=k", "VALUE_SHARE / values, bound=1"),
        ("HouseholdSynthesizer._filter", "pure=each)", "pure=())"),
        ("HouseholdSynthesizer._households", "first[above] != np.arange(len(above))", "np.zeros(len(above), bool)"),
        ("HouseholdSynthesizer._households", "if not self.reading.unattended:", "if True:"),
        ("HouseholdSynthesizer._households", "rank = np.cumsum(~checks[0][0]) - 1", "rank = np.arange(len(above))"),
        ("HouseholdSynthesizer._filter", "for_lists / max(lists, 1)", "for_lists"),
        ("HouseholdSynthesizer._filter", "self.budget.delta - for_lists", "self.budget.delta"),
        ("HouseholdSynthesizer._privatise", "spending.part(spending.left, bound=self.max_children)", "spending.part(spending.left)"),
        ("_Private.codes", "tables.child.encode(self.children.chunk)[self.children.kept]", "tables.child.encode(self.children.chunk)[np.ones_like(self.children.kept)]"),
    )),
    (PANELS, "tabular.panel", (
        ("PanelStream.__init__", "(FIND_SHARE, 1 - FIND_SHARE)", "(FIND_SHARE, 1)"),
        ("PanelStream._found", "each = share.epsilon / unknown.columns", "each = share.epsilon"),
        ("PanelStream._found", "share.delta / max(unknown.lists(self._given_schema), 1)", "self.budget.delta"),
        ("PanelStream._know", "schema, False", "schema, True"),
    )),
    (BASE, "streams.scalar.base", (
        ("NumericMechanism.__init__", "math.ceil(self.sensitivity * self.grid.one)", "math.floor(self.sensitivity * self.grid.one)"),
        ("NumericMechanism.update", "steps = math.floor(scaled)", "steps = round(scaled)"),
        ("NumericMechanism._to_grid", "floors = np.floor(scaled)", "floors = np.rint(scaled)"),
        ("SeriesMechanism.load", 'mechanism.step = int(values["step"])', "pass"),
        ("SeriesMechanism.load", 'if values.get("layout") != cls.VERSION:', "if False:"),
        ("OfflineMechanism.run", "self._queries = 1", "pass"),
    )),
    (WINDOWS, "streams.scalar.window", (
        ("_WindowMechanism.__init__", "self._step_sensitivity += others", "pass"),
        ("_WindowMechanism._release", "scale = self._step_sensitivity / affordable", "scale = self.sensitivity / affordable"),
        ("_WindowMechanism._release", "noise = self._step_sensitivity / self._account", "noise = self.sensitivity / self._account"),
        ("_WindowMechanism._release", "int(self.noise.discrete_laplace(noise, 1)[0])", "0"),
        ("_WindowMechanism._release", "sum(np.abs(np.atleast_1d(steps - self._published)).tolist())", "int(np.abs(steps - self._published).sum())"),
        ("WindowBudget.__init__", "epsilon / (2 * window)", "epsilon / window"),
        ("WindowBudget.note", "sum(self._compared) + sum(self._published)", "sum(self._published)"),
        ("WindowBudget.restore", 'self._published.extend(float(v) for v in arrays["publishing"])', "pass"),
        ("DistributedBudget.affordable", "(self.epsilon / 2 - recent) / 2", "(self.epsilon - recent) / 2"),
        ("DistributedBudget.affordable", "sum(self._published) - self._published[0]", "0.0"),
        ("AbsorbedBudget.affordable", "min(step - self._free_from + 1, self.window)", "step - self._free_from + 1"),
        ("AbsorbedBudget.note", "round(published * 2 * self.window / self.epsilon)", "1"),
        ("AbsorbedBudget.restore", 'self._free_from = int(values["free_from"])', "pass"),
    )),
    (AR1, "streams.scalar.autoregressive", (
        ("AR1Release._release", "t = self.step + 1", "t = self._queries + 1"),
        ("AR1Release._release", "self._read_shifts[shift] += 1", "self._read_shifts[shift] = 1"),
        ("AR1Release._require", "self.step + steps > self.horizon", "self._queries + queries > self.horizon"),
        ("AR1Release._shift", "self.sensitivity[t - 1]", "self.sensitivity[0]"),
        ("AR1Release._sum_of_squares", "first + (self.horizon - first) * self.weights**2", "self.horizon * self.weights**2"),
        ("AR1Release._whole_weight", "math.floor(", "1 + math.floor("),
        ("AR1Release._geometric", "weight * change + reach + (reach * reach < rest * change)", "weight * change"),
        ("AR1Release._restore", 'Counter({int(shift): int(count) for shift, count in values["read"]})', "Counter()"),
    )),
    (AR1, "streams.scalar.accounting", (
        ("draw_binomial", "words = half // _WORD", "words = half // _WORD - 1"),
        ("calibrate", "> epsilon:", "> 2 * epsilon:"),
        ("epsilon_of", "one.self_compose(count)", "one"),
    )),
    (PERTURBED, "streams.scalar.perturbation", (
        ("IndependentLaplace._scale", "self._step_sensitivity * self._shares", "self._step_sensitivity"),
        ("IndependentLaplace._scale", "self._step_sensitivity * self._shares", "self.sensitivity * self._shares"),
        ("Gaussian.__init__", "math.sqrt(self._shares / (2 * self._rho))", "math.sqrt(1 / (2 * self._rho))"),
        ("Gaussian.spent", "self._rho * used / self._shares", "self._rho * used / self._shares / 4"),
        ("_Independent.run", "self._draw(known.size)", "self._draw(1)"),
        ("_Independent.run", "self._queries += known.size", "pass"),
        ("_Independent._require", "self._queries + queries > self.horizon", "queries > self.horizon"),
    )),
    (PERTURBED, "streams.scalar.perturbation", (
        ("Uniform.__init__", "super().__init__(budget, None, self.window,", "super().__init__(budget, None, 1,"),
        ("Sampling.__init__", "math.ceil((", "math.floor(("),
        ("Sampling._release", "if self.step % self.interval:", "if False:"),
        ("Sampling._require", "self._queries + due > self._shares", "due > self._shares"),
    )),
    (COUNTING, "streams.scalar.perturbation", (
        ("ContinualCounter._make_bank", "self.max_steps * self._step_sensitivity", "self._step_sensitivity"),
        ("ContinualCounter._make_bank", "self.max_steps * self._step_sensitivity", "self.max_steps * self.sensitivity"),
        ("ContinualCounter._make_bank", "zcdp_of(self.budget) / group**2", "zcdp_of(self.budget) / group"),
    )),
    (FOURIER, "streams.scalar.fourier", (
        ("DFT.l1_sensitivity", "math.sqrt(coordinate_count(length, self.coefficients)) * ", ""),
        ("DFT.l2_sensitivity", "math.sqrt(d * length)) * math.sqrt(most)", "math.sqrt(d * length))"),
        ("DFT._block_sensitivity", "math.sqrt(steps * min(blocks, steps))", "math.sqrt(steps)"),
        ("DFT._release_all", "draw(scale, d)", "draw(scale / 2, d)"),
        ("DFT.run", "left = self.horizon - self.step", "left = self.horizon"),
        ("DFT.spent", "self._block_sensitivity(self._queries, bits)", "self._block_sensitivity(1, bits)"),
    )),
    (SAMPLED, "streams.scalar.subsampling", (
        ("SubsampledRelease.__init__", "self._exact_rate, self.max_steps\n", "self._exact_rate, 1\n"),
        ("_Subsampled._draw_steps", "< self._rate_steps", "< 2 * self._rate_steps"),
        ("FilteredRelease._release_all", "largest_singular_value(sampled) * reach", "reach"),
        ("largest_singular_value", "float(np.max(image / v))", "float(np.min(image / v))"),
    )),
    (SAMPLED, "streams.scalar.accounting", (
        ("subsampled_epsilon", "one.self_compose(max_steps)", "one"),
        ("_renyi_epsilon", "max_steps * log_mean", "log_mean"),
    )),
    (FAST, "streams.scalar.fast", (
        ("FAST._scale_of", "return self._step_sensitivity / cost", "return self.sensitivity / cost"),
        ("FAST._scale_of", "math.sqrt(2 * cost)", "math.sqrt(8 * cost)"),
        ("FAST.__init__", "self._shares.total / (count or 1)", "self._shares.total"),
        ("FAST._second_scale", "self._shares.take_part(_FIRST_SHARE)", "_FIRST_SHARE * self._shares.total"),
        ("FAST._sample_scale", "self._queries >= self._most", "False"),
        ("FAST._restore", 'self._shares.restore(arrays["shares"])', "pass"),
    )),
    (FAST, "streams.scalar.filters", (
        ("EqualShares.spent", "self.total * min(self.taken, self.count) / self.count", "self.total / self.count"),
        ("HorizonShares.take_part", "self.left -= cost", "pass"),
        ("WindowShares.take", "self.total - before)", "self.total)"),
        ("WindowShares.take", "<= step - self.window:", "<= step - self.window + 1:"),
        ("WindowShares.restore", "self.recent = deque((int(step), float(cost)) for step, cost in values[1:].reshape(-1, 2))", "pass"),
    )),
    (LOCAL, "streams.scalar.local", (
        ("respond", "0.0, epsilon)", "0.0, 2 * epsilon)"),
        ("encode_unary", "2, epsilon, noise)", "2, 2 * epsilon, noise)"),
        ("_Response.__init__", "budget.epsilon / self.horizon", "budget.epsilon"),
        ("_Response._done", "self._spent_steps += known", "pass"),
    )),
    (LOCAL, "streams.scalar.local", (
        ("LocalMechanism._require", "self._spent_steps + steps > self.horizon", "steps > self.horizon"),
        ("LocalMechanism._restore", 'self._spent_steps = int(values["spent_steps"])', "pass"),
    )),
    (LOCAL, "streams.scalar.local_baselines", (
        ("WindowResponse._differs", "reach / self._account.comparing", "reach / (2 * self._account.comparing)"),
        ("WindowResponse._differs", "int(steps.max() - steps.min())", "1"),
        ("WindowResponse._release", "respond(one, self.size, affordable, self.noise)", "respond(one, self.size, 2 * affordable, self.noise)"),
        ("WindowResponse._release", "encode_unary(one, self.size, affordable, self.noise)", "encode_unary(one, self.size, 2 * affordable, self.noise)"),
        ("WindowResponse._release", "published=affordable if worth else 0.0", "published=0.0"),
        ("TemporalResponse._release", "respond(truth, likely.size, self.step_epsilon", "respond(truth, likely.size, self.budget.epsilon"),
        ("TemporalResponse.__init__", "budget.epsilon / self.horizon", "budget.epsilon"),
        ("ToPS._perturbed", "top / self.step_epsilon", "0.5 * top / self.step_epsilon"),
        ("ToPS._perturbed", "min(int(self._grid[rank]), top)", "int(self._grid[rank])"),
        ("ToPS._wave", "0.0 if near else self.step_epsilon", "0.0 if near else 2 * self.step_epsilon"),
    )),
    (SIP, "streams.scalar.sip", (
        ("_SIP._share", "self.budget.epsilon * min(batch, values) / values", "self.budget.epsilon"),
        ("_SIP._release", "self._spent_steps += length", "pass"),
        ("composed_leakage", "return above + math.exp(-((total / spread) ** 2))", "return above / 9"),
    )),
    (SIP, "streams.scalar.channels", (
        ("design", "if leakage(rounded, belief) <= epsilon:", "if True:", "the programme has a margin below ε and the closed form is used where it holds: the check is a second lock"),
        ("closed_form_holds", "1 / (math.exp(epsilon) + 1)", "0", "the leakage of the rounded channel is checked, so that a wrong form only adds noise"),
        ("draw", "channel[value]", "channel[0]"),
    )),
    (SIP, "streams.scalar.channels", (
        ("MarkovBelief.learn", "self.move_on(posterior / posterior.sum(), length)", "self.move_on(joint, length)"),
    )),
    (CHOICE, "streams.scalar.release", (
        ("_who", "max_steps = unit.max_contributions", "max_steps = 1"),
        ("_totals", '"max_steps": most,', '"max_steps": 1,'),
    )),
    (TIMES, "streams.slots", (
        ("SlotTotals.__init__", "laplace_scale(budget)", "laplace_scale(budget) / 2"),
        ("SlotTotals.advanced", "(exact + self.noise.discrete_laplace(self.scale, exact.size))", "exact"),
        ("SlotTotals.advanced", "SlotShares.of(edges, estimate)", "SlotShares.of(edges, exact.astype(np.float64))"),
        ("with_slots", "slots[came]", "slots"),
        ("with_slots", "ones[:, 0] = 1", "ones[:, 0] = 2"),
        ("without_slots", "Histogram(counts.keys[:border], counts.weights[:border]),", "counts,"),
        ("check_times", "return float(share)", "return float(share) / 2"),
    )),
    (AGES, "streams.ages", (
        ("InsertionAges.steps", "& (number <= step)", ""),
        ("InsertionAges.group", "deleted & (inserted >= 0)", "(inserted >= 0)"),
        ("InsertionAges.group", "(group < edges.size)", "(group <= edges.size)"),
        ("InsertionAges.group", "self.clock.step - inserted", "inserted"),
        ("InsertionAges.born", "np.where(deleted, self.periods.of_steps(inserted, self.clock), self.clock.period)", "np.full(inserted.size, self.clock.period)"),
        ("check_deletions", "(lifetime is None and unit.per is None) or inserted is not None", "True"),
    )),
    (EXPIRING, "tabular.over_time.expiring_marginals", (
        ("ExpiringMarginals._release", "slot.gone = tuple(np.zeros_like(counts) for counts in slot.gone)", "pass"),
        ("ExpiringMarginals._release", "slot.pending = np.zeros_like(slot.pending)", "pass"),
        ("ExpiringMarginals._measured", "scale = 1 / slot.share", "scale = 0.5 / slot.share"),
        ("ExpiringMarginals._measured", "self.setup.noise.discrete_laplace(scale, counts.size)", "self.setup.noise.discrete_laplace(scale, 1)"),
        ("ExpiringMarginals._collect", "old + new[clique]", "old + 2 * new[clique]"),
        ("ExpiringMarginals._count_rows", "{self.step: float(noisy)}", "{self.step: float(exact[0])}"),
        ("ExpiringMarginals._count_rows", "self.setup.noise.discrete_laplace(self.rows_scale, exact.size)", "self.setup.noise.discrete_laplace(self.rows_scale / 2, exact.size)"),
        ("ExpiringMarginals.restore_own", 'arrays[f"slot/{i}/gone/{j}"] for j', 'np.zeros_like(slot.pending) for j'),
    )),
    (PANELS, "tabular.over_time.panel", (
        ("", "BORDER = {True: 2, False: 4}", "BORDER = {True: 1, False: 4}"),
        ("", "BORDER = {True: 2, False: 4}", "BORDER = {True: 2, False: 1}"),
        ("PanelMechanism.__init__", "unit.max_contributions + border", "unit.max_contributions"),
        ("PanelMechanism.__init__", "unit.max_contributions + border", "1 + border"),
        ("PanelMechanism._next", "spending.measure(exact[before(name),], share)", "exact[before(name),].astype(np.float64)"),
        ("PanelMechanism._next", "share = STAY_SHARE / len(names)", "share = STAY_SHARE"),
        ("PanelMechanism.advance", "spending = copy(self._wave)", "spending = PrivacyFilter(PrivacyBudget(50.0), PrivacyUnit.event(), self.noise)"),
        ("_epsilon_of", "return spending.whole", "return spending.whole / 2"),
    )),
    (PARTS, "synthgeo.privacy.filter", (
        ("PrivacyFilter.part", "amount = self._take(fraction)", "amount = fraction * self.whole"),
        ("PrivacyFilter.part", "bound**2", "bound"),
        ("PrivacyFilter.part", "bound if self.kind", "1 if self.kind"),
        ("PrivacyFilter.part", "made.left = 1.0", "made.left = 2.0"),
    )),
    (ROUNDS, "tabular.rounds", (
        ("_Rounds._round", "score_sensitivity(list(self.weights.values()))", "min(self.weights.values())"),
        ("_Rounds._round", "spending.measure(self.counts[clique], fraction)", "self.counts[clique].astype(float)"),
    )),
    (HOMES, "tabular.counting", (
        ("UserRows.words", "self.kept & (found.codes >= 0)", "found.codes >= 0"),
        ("UserRows.words", "np.unique(pairs, axis=0)[:, 2]", "pairs[:, 2]"),
        ("UserRows.values", "steps[self.kept & ~absent]", "steps[~absent]"),
    )),
    (TRIPS, "trajectories.measure.ends", (
        ("weighted_places", "GRID.floor(at_ends / 2)", "GRID.floor(at_ends)"),
        ("weighted_places", "GRID.floor(1 - at_ends)", "GRID.floor(1)"),
        ("measure_cells", "bits - base + 1", "0"),
    )),
    (TRIPS, "trajectories.measure.ends", (
        ("count_ends", "by_part = counted(cut, for_parts)", "by_part = counted(cut, 1e6)"),
        ("count_ends", "np.maximum(by_cell / enough, 1.0)", "np.maximum(np.bincount(np.maximum(partition.cell_of(origin, bits), 0), minlength=partition.size) / enough, 1.0)"),
    )),
    (TRIPS, "trajectories.measure.ends", (
        ("measure_lengths", "noise.discrete_laplace(1 / epsilon, exact.size)", "noise.discrete_laplace(0.5 / epsilon, exact.size)"),
        ("measure_lengths", "exact + noise.discrete_laplace(1 / epsilon, exact.size)", "np.where(exact > 0, exact + noise.discrete_laplace(1 / epsilon, exact.size), 0)"),
    )),
    (TRIPS, "trajectories.measure.pairs", (
        ("measure_pairs", "for _, _, counts in done])\n    noisy = exact + noise.discrete_laplace(1 /", "for _, _, counts in done])\n    noisy = exact + noise.discrete_laplace(0.5 /"),
        ("measure_pairs", "np.cumsum(non_negative(ends))", "np.cumsum(np.bincount(origin[origin >= 0], minlength=partition.size).astype(float))"),
    )),
    (TRIPS, "trajectories.measure.measured", (
        ("Shares.of", "per_trip.split(list(used.values()))", "[per_trip] * len(used)"),
    )),
    (TRIPS, "trajectories.measure.times", (
        ("measure_times", "GRID.one / for_hours", "1 / for_hours"),
        ("count_by_hour", "GRID.one - slow", "GRID.one + slow"),
        ("count_by_hour", "0.5 + 0.5 * clipped(", "0.5 + 2.0 * clipped("),
        ("clipped", "np.clip(octaves / CLIP, -1.0, 1.0)", "np.clip(octaves / CLIP, -4.0, 4.0)"),
        ("_noisy", "noise.discrete_laplace(1 / epsilon, exact.size)", "0"),
    )),
    (TRIPS, "trajectories.measure.times", (
        ("measure_zones", "noise.discrete_laplace(1 / epsilon, exact.size)", "noise.discrete_laplace(0.5 / epsilon, exact.size)"),
    )),
    (TRIPS, "trajectories.measure.times", (
        ("measure_recording", "else epsilon / 2", "else epsilon"),
    )),
    (TRIPS, "trajectories.measure.pairs", (
        ("crossing_shares", "GRID.one // count", "GRID.one // np.maximum(count - 1, 1)"),
        ("crossing_shares", "total[trip] * (1 - 1e-12)", "total[trip] * 2"),
        ("measure_links", "GRID.one / epsilon", "1 / epsilon"),
        ("measure_links", "exact.size)", "1)"),
        ("count_links", "np.minimum((along[at] * number).astype(np.int64), number - 1)", "(along[at] * number).astype(np.int64)"),
    )),
    (TRIPS, "trajectories.ground.roads", (
        ("RoadGround.place", "length / whole[matched.trip] * (1 - 1e-12)", "2 * length / whole[matched.trip]"),
    )),
    (TRIPS, "trajectories.ground.plane", (
        ("PlaneGround.place", "_GRID.one // np.diff(trips.start)[trips.trip]", "_GRID.one"),
    )),
    (("tests/trajectories/test_plane.py",), "trajectories.ground.plane", (
        ("PlaneGround.shapes_of_trips", "return metres, diameter", "return metres / metres.mean(), diameter"),
        ("PlaneGround.fastest", "/ clock.shortest_pace", "* clock.shortest_pace"),
    )),
    (TRIP_POINTS, "trajectories.reading.points", (
        ("_keep", "trips.take(ContributionBounder(unit).admit(users, rank))", "trips"),
        ("_keep", "rank[order] = ranks_of(np.bincount(owner))", "rank[:] = np.arange(len(owner))"),
    )),
    (READING, "synthgeo.sources.values", (
        ("_ids_of_text", "UserIds.of_integers(np.where(found, whole, 0))", "UserIds.of_integers(np.where(found, whole % 1000, 0))"),
        ("_localised", "first_of_two = np.ones(len(stamps), dtype=bool)", "first_of_two = np.arange(len(stamps)) % 2 == 0"),
        ("numbers", "refuse(state > 1, column, _NOT_A_NUMBER)", "pass"),
        ("_checked_times", "refuse(has_offset, column, _HAS_OFFSET)", "pass"),
        ("_numbers_of_objects", "TextColumn.of(values[text], reading).numbers()", "TextColumn.of(values[text], reading if len(text) % 2 else reading.but(decimal=',')).numbers()"),
        ("operations", "np.where(found == -1, -1, 1)", "np.where(found == -1, -1, 2)"),
    )),
    (READING, "synthgeo.sources.files", (
        ("_scan", "hive_partitioning=false", "hive_partitioning=true"),
        ("_literal", 'f"[{c}]" if c in "*?[" else c', "c"),
        ("expand", "if seen.setdefault((stat.st_dev, stat.st_ino), path) is not path:", "if False:"),
    )),
    (("tests/audit/test_hostile.py -k nest",), "synthgeo.sources.geometry", (
        ("points_of_wkb", "cell if cell is not None and cell[:5] in _POINTS else None", "cell"),
    )),
    (("tests/audit/test_hostile.py -k nest",), "synthgeo.domain.polygon", (
        ("_holds_polygons", "return False", "pass"),
    )),
    (("tests/audit/test_hostile.py -k parts_of_a_file",), "synthgeo.sources.files", (
        ("_without_long", "MAX_LINE)", "2 * MAX_LINE)"),
        ("ParquetSource.chunks_of", "read_dictionary=texts", "read_dictionary=[]"),
        ("_check_sizes", "raise _too_much(path)", "pass"),
    )),
    (IDENTITY, "synthgeo.sources.fingerprint", (
        ("RecordHash.__call__", "mix(seed.astype(np.uint64), *columns).sum(dtype=np.uint64)", "seed.astype(np.uint64)"),
        ("RecordHash.__call__", "hashlib.blake2b(self.key, digest_size=8 * _LANES)", "hashlib.blake2b(digest_size=8 * _LANES)"),
        ("identity", "None if crs is None else crs.to_string()", "None"),
    )),
    (("tests/synthgeo/test_user_table.py",), "synthgeo.sources.source", (
        ("count_in_parts", "bounder.join(parts)", "pass"),
        ("count_in_parts", "bucket_of(events.users, len(parts))", "bucket_of(UserIds(events.keys, events.keys), len(parts))"),
    )),
    (("tests/synthgeo/test_user_table.py",), "synthgeo.sources.spill", (
        ("", "MOST_OF_A_USER = AT_ONCE", "MOST_OF_A_USER = AT_ONCE // 2"),
        ("_Buckets._first_of_each", "(rows[:, _KEY], mix(rows[:, _KEY]), code)", "(np.arange(len(rows)), code)"),
        ("_count_by_bucket", "bounder.join(parts)", "pass"),
        ("_Buckets.add", "bucket_of(events.users, len(self._rows))", "bucket_of(UserIds(events.keys, events.keys), len(self._rows))"),
        ("_Buckets.__iter__", "rows = np.concatenate(parts)", "rows = np.concatenate([*parts, *parts])"),
    )),
    (READING, "synthgeo.sources.windows", (
        ("events_by_window_of_chunk", "events = events_of_chunk(key_fn, chunk, user, weights)", "events = events_of_chunk(key_fn, chunk, time, weights)"),
        ("cut_chunk", "(at >= low) & (at < high)", "(at >= low) & (at <= high)"),
    )),
    (JOURNAL, "streams.runs.journal", (
        ("Journal.salted", "hmac.new(self._salt,", 'hmac.new(b"",'),
        ("Journal.start", '"salt": secrets.token_hex(32)', '"salt": 64 * "0"'),
    )),
    (JOURNAL, "streams.runs.run", (
        ("StreamRun._salted_content", "return self._journal.salted(given)", "return given"),
    )),
    (("tests/contract/test_travel.py -k curator",), "synthgeo.sources.declared", (
        ("", "CURATOR.propagate = False", "CURATOR.propagate = True"),
    )),
    (PUBLISHED, "synthgeo.publishing.folder", (
        ("publish", "for release in releases:", "for release in releases[-1:]:"),
        ("_fill", '"statements": [release.provenance for release in releases]', '"statements": [last.provenance]'),
    )),
    (RUNS, "streams.runs.run", (
        ("StreamRun._check_ledger", "known > self.steps", "known > self.steps + 1", "the reservation refuses it too"),
        ("StreamRun._check_ledger", "known < self.steps - unfinished", "False"),
        ("StreamRun._check_ledger", "if known is None and paid is not None:", "if False:"),
        ("StreamRun._check_ledger", "if owed is not None:", "if False:"),
        ("StreamRun._reserve", "self._ledger.reserve(", "self._ledger.charge("),
        ("StreamRun._commit", "self._ledger.commit(reservation)", "pass"),
        ("StreamRun.step", "self._commit(reservation)", "pass"),
        ("StreamRun._commit_again", "self._commit(self._reserve(", "(self._reserve("),
        ("StreamRun._write", "keep_in_run(state)", "pass"),
        ("StreamRun._recover", "self._commit_again(row)", "pass"),
        ("StreamRun.step", "self._journal.check_head()", "pass"),
        ("StreamRun.step", "if marks_of(batch) != marks:", "if False:"),
        ("StreamRun._check_same", 'if known["content"] != self._salted_content(batch, given):', "if False:"),
        ("StreamRun._look_for_repeats", "before = self._journal.of_content(content)", "before = None"),
        ("StreamRun._recover", "if newer:", "if False:"),
        ("StreamRun._check_spend", "not self.budget.covers(budget)", "False"),
    )),
    (RUNS, "streams.runs.view", (
        ("RunView._committed", "self._owed is not None", "False"),
    )),
    (STATE, "synthgeo.state", (
        ("parse_state", "if hashlib.sha256(payload).digest() != content[len(_MAGIC) : len(_MAGIC) + 32]:", "if False:"),
        ("_array", "dtype.hasobject or ", "", "numpy refuses to make objects of bytes, too"),
        ("_members", "part.compress_type != zipfile.ZIP_STORED or ", ""),
    )),
    (UNCHANGED, "synthgeo.sources.unchanged", (
        ("Unchanged.check", "if _state(path) != state:", "if False:"),
        ("Unchanged.while_read", "        self.check()\n        yield\n", "        yield\n"),
        ("Unchanged.while_read", "        yield\n        self.check()\n", "        yield\n"),
        ("_state", "found.st_ino, ", "0, "),
        ("_state", "found.st_size, ", "0, "),
        ("_state", "found.st_mtime_ns", "found.st_mtime_ns // 10**9"),
        ("_state", "return (-1, -1, -1, -1)", "raise"),
    )),
    (SCHEMA, "synthgeo.sources.values", (
        ("looked_up", "np.where(mask, -1, found)", "found"),
        ("looked_up", "bool if plain.dtype.kind == \"b\" else int", "int"),
        ("looked_up", "table.get(word_of(kind(value)), unknown)", "table.get(word_of(kind(value)), 0)"),
        ("looked_up", " - plain.min().astype(np.int64)", ""),
    )),
    (SCHEMA, "synthgeo.schema.columns", (
        ("Categorical.encode", "refuse(codes == unknown, name, problem)", "pass"),
    )),
    (("tests/contract/test_travel.py",), "trajectories.synthesizer", (
        ("TrajectorySynthesizer._fit_placed", "ends_only=ends_only, tz=self.tz,", "ends_only=ends_only, tz=self.tz, trips=int(placed.size),"),
    )),
    (("tests/tabular/test_spending.py",), "tabular.counting", (
        ("RowPlaces.wrong", "if bad and not good", "if False"),
    )),
    (COPIES, "tabular.once", (
        ("TabularSynthesizer.__getstate__", '{**self.__dict__, "_identity": secrets.token_hex(16)}', "self.__dict__"),
    )),
    (COPIES, "tabular.households", (
        ("HouseholdSynthesizer.__getstate__", '{**self.__dict__, "_identity": secrets.token_hex(16)}', "self.__dict__"),
    )),
    (TRIP_SPENDING, "trajectories.synthesizer", (
        ("TrajectorySynthesizer.__getstate__", "None if self._model is None else self._charge", "self._charge"),
        ("TrajectorySynthesizer._fit_placed", "self._pay(content)", "warn_of_noise(model.measured, self._counts), self._pay(content)"),
    )),
    (ONCE_ONLY, "tabular.once", (
        ("TabularSynthesizer.fit", "if self._fitted is not None:", "if False:"),
    )),
    (BOUNDED, "tabular.counting", (
        ("UserRows.marginals", "schema.encode(self.chunk)[self.kept]", "schema.encode(self.chunk)"),
    )),
    (TRIPS, "trajectories.measure.ends", (
        ("measure_cells", "fractional=True", "fractional=False"),
    )),
    (TRIP_AUDITS, "trajectories.measure.ends", (
        ("measure_ends", "noise.discrete_laplace(2 / epsilon, cells)", "noise.discrete_laplace(1 / epsilon, cells)"),
        ("count_ends", "epsilon * _FIRST, epsilon - epsilon * _FIRST", "epsilon, epsilon"),
    )),
    (TRIP_AUDITS, "trajectories.measure.pairs", (
        ("measure_pairs", "rule = SplitRule(epsilon_tree, fanout=_FANOUT", "rule = SplitRule(2 * epsilon_tree, fanout=_FANOUT"),
        ("measure_pairs", "counts[asked] * GRID.one", "2 * counts[asked] * GRID.one"),
    )),
    (TRIPS, "trajectories.measure.measured", (
        ("Shares.pair_counts", "self.pairs - self.ends - self.pair_tree", "self.pairs - self.ends"),
        ("Shares.pair_counts", "self.pairs - self.ends - self.pair_tree", "self.pairs"),
    )),
    (TRIP_AUDITS, "trajectories.measure.times", (
        ("measure_times", "hour), for_departures, noise)", "hour), 2 * for_departures, noise)"),
    )),
    (TRIPS, "trajectories.measure.measured", (
        ("measure", "epsilon=shares.ends, noise", "epsilon=shares.pairs, noise"),
        ("measure", "epsilon=shares.cells", "epsilon=2 * shares.cells"),
    )),
    (VALUES, "tabular.values", (
        ("LaplaceCounts.noisy", "self.bound / self.epsilon", "1 / self.epsilon"),
        ("LaplaceCounts.threshold", "delta / self.bound", "delta"),
        ("GaussianCounts.noisy", "self.sigma", "0.5 * self.sigma"),
        ("GaussianCounts.threshold", "delta / self.bound", "delta"),
        ("frequent_words", "counts.threshold(delta)", "counts.threshold(0.1)"),
    )),
    (VALUES, "tabular.discovery", (
        ("word_counts", "math.sqrt(bound) / rows", "1 / rows"),
        ("word_counts", "rows * spending.pure_epsilon(share), bound", "rows * spending.pure_epsilon(share), 1"),
    )),
    (VALUES, "synthgeo.privacy.filter", (
        ("PrivacyFilter.deviation", "2 * amount", "4 * amount"),
        ("PrivacyFilter.deviation", "length / math.sqrt", "0.5 * length / math.sqrt"),
    )),
    (VALUES, "synthgeo.privacy.gaussian", (
        ("noisy_counts", "math.hypot(sigma * 2.0**bits, TAU)", "sigma * 2.0**bits"),
        ("noisy_counts", "grid_bits(sigma, (1,))", "grid_bits(sigma, counts.shape)"),
        ("noise_tail", "float(ndtri(chance))", "0.5 * float(ndtri(chance))"),
    )),
    (TRIP_ADMISSION, "trajectories.over_time.admission", (
        ("TripBounder.admit", "admitted[order] = ~held", "admitted[order] = True"),
        ("TripBounder.admit", "admitted[new[~kept]] = False", "pass"),
        ("TripBounder.admit", "[new], period=period", "[new], period=0"),
        ("TripBounder.admit", "self._seen[:0] if self.unit.per is not None and period > self._period else self._seen", "self._seen"),
        ("TripBounder.admit", "self.unit.per is not None and period > self._period", "True"),
        ("TripBounder.admit", "self._period = period", "pass"),
        ("TripBounder.from_state", 'int(values["period"])', "0"),
        ("TripBounder.__copy__", "copy(self._users)", "self._users"),
        ("packed_ids", "(users, ids)", "(ids, ids)"),
        ("packed_ids", "(part.low, part.high)", "(part.low, part.low)"),
        ("find_ids", "found[found] = table[at[found]] == trips[found]", "pass"),
    )),
    (("tests/trajectories/test_parts.py -k window",), "trajectories.parts.windows", (
        ("WindowOfParts._taken", "find_ids(self._trips, packed_ids(trips, users)[first])[1]", "np.ones(len(first), dtype=bool)"),
        ("InWindow.keeps", "(last >= self.low) & (last < self.high)", "(last >= self.low) & (last <= self.high)"),
    )),
    (TRIP_STREAMS, "trajectories.over_time.counting", (
        ("TripCounting.advance", "shares = self.shares[structure]", "shares = self.shares[True]"),
        ("TripCounting.advance", "(*self.batches, Batch(fresh, noise))[-self.lifetime :]", "(*self.batches, Batch(fresh, noise))"),
        ("TripCounting.to_state", 'arrays |= prefixed("left", self.left)', "pass"),
        ("carried", "total_of(batch) / max(trips, 1)", "total_of(batch)"),
        ("together", "sum(batch.variances[name] for batch in batches)", "batches[-1].variances[name]"),
    )),
    (TRIP_STREAMS, "trajectories.over_time.borrowing", (
        ("combined", "1.0 - variance / spread", "1.0"),
        ("changes", "np.maximum(mean, least)", "mean"),
        ("changes", "np.sqrt(number)", "1.0"),
        ("closed", "likelier > np.log(max(graph.links, 1))", "likelier > 0"),
        ("closed", "np.sum(told, axis=0)", "told[0]"),
        ("turns", "on = enters[two] != leaves[one]", "on = enters[two] >= 0"),
    )),
    (TRIP_CHOICES, "trajectories.measure.measured", (
        ("measure", "zones_of(ground.centres(partition), ends.by_cell,", "zones_of(ground.centres(partition), sum(np.bincount(end[end >= 0], minlength=partition.size) for end in (first, last)),"),
        ("measure", "laplace_variance(1 / shares.pair_counts), ends.by_cell,", "laplace_variance(1 / shares.pair_counts), sum(np.bincount(end[end >= 0], minlength=partition.size) for end in (first, last)).astype(float),"),
        ("measure", "halvings_of(graph, expected,", "halvings_of(graph, expected * (len(walked.start) - 1) / max(float(ends.by_cell.sum()) / 2, 1.0),"),
        ("measure", "float(np.sqrt(link_variance)), finest", "float(np.sqrt(link_variance)), finest * (walked.states.size < 2400)"),
    )),
    (TRIP_CHOICES, "trajectories.measure.times", (
        ("measure_times", "usual_paces(paces,", "usual_paces(total(count_paces, duration, usual).reshape(GROUPS, PACES).astype(float),"),
    )),
    (MODEL_FILE, "trajectories.synthesizer", (
        ("TrajectorySynthesizer._fit_placed", "ends_only=ends_only, tz=self.tz,", "ends_only=ends_only, tz=self.tz, content=content,"),
        ("TrajectorySynthesizer._pay", "secrets.token_hex(16)", "content[:32]"),
    )),
    (("tests/trajectories/test_spending.py -k hands",), "trajectories.synthesizer", (
        ("TrajectorySynthesizer.fit_trips", "trips = bounded(trips, self.unit)", "pass"),
    )),
    (("tests/trajectories/test_parts.py -k folders",), "trajectories.parts.folder", (
        ("PrivateFolder.__init__", "weakref.finalize(", "os.chmod(self.name, 0o755); weakref.finalize("),
        ("PrivateFolder.__init__", "weakref.finalize(self, shutil.rmtree, self.name, ignore_errors=True)", "pass"),
    )),
    (IN_PARTS, "trajectories.parts.placing", (
        ("Placing.__call__", ".bounded(self.unit)", ".trips"),
        ("PlacingEnds.__call__", ".bounded(self.unit)", ".trips"),
        ("PlacingSome.__call__", ".trips.take(admitted)", ".trips"),
    )),
    (IN_PARTS, "trajectories.parts.shuffle", (
        ("bucket_of", '"user" if "user_low" in rows else "trip"', '"trip" if "trip_low" in rows else "user"'),
    )),
    (MATCHING, "trajectories.matching.match", (
        ("match", "method, sigma, beta,", "method, sigma * trips.size, beta,"),
        ("_match_block", "settings.beta + settings.stretch * usual", "settings.beta + settings.stretch * usual.sum()"),
        ("_match_block", "places.apart / settings.sigma", "places.apart / (settings.sigma + places.apart.mean())"),
        ("_candidates", "apart <= apart[begin[point]] + _SAME_ROAD", "apart <= apart[begin[point]] + apart.sum() / max(len(apart), 1)"),
    )),
    (MATCHING, "trajectories.matching.match", (
        ("best_rows", "/ spread[i - 1]", "/ spread[0]"),
        ("_move_costs", "settled[target] == turn and distance[target] <= limit[point[a]]", "settled[target] == turn"),
    )),
    (TRIP_SETUP, "trajectories.setup", (
        ("TripSetup.per_trip", "self.budget / self.unit.max_contributions", "self.budget"),
        ("TripSetup.per_trip", "return trip, attributes", "return whole, attributes"),
        ("TripSetup.per_trip", "return trip, attributes", "return trip, whole"),
        ("TripSetup.shares", "Shares.of(self.per_trip[0], weights", "Shares.of(self.budget, weights"),
        ("TripSetup.of", 'if unit.of != "trajectory":', "if False:"),
        ("TripSettings.__post_init__", "if self.partition is not None and (self.partition.stop[:-1] > self.partition.start[1:]).any():", "if False:"),
        ("TripSetup.of", "setup.shares(timed=timed, ends_only=ends_only).check()", "pass"),
    )),
    (ATTRIBUTES, "trajectories.attributes", (
        ("measure_attributes", "PrivacyBudget(epsilon), noise", "PrivacyBudget(2 * epsilon), noise"),
        ("measure_attributes", "float(measured.pairs.count.sum())", "float(records.trips.size)"),
        ("measure_attributes", "zone_borders(measured) if borders is None else borders", "np.unique(ground.hierarchy.locate(records.trips.ends().xy, ground.bits)[0])[:11] << np.uint64(62 - ground.bits)"),
        ("_RecordTable", "_takes_no_rows = True", "_takes_no_rows = False"),
        ("AttributeModel.joined", "tables[keep], weights[keep]", "tables, weights"),
        ("attribute_schema", "if taken:", "if False:"),
    )),
    (("tests/cli/test_cli_reading.py -k unattended",), "synthgeo.sources.declared", (
        ("Reading.remark", "if not self.unattended:", "if True:"),
        ("Reading.__post_init__", 'object.__setattr__(self, "bad_rows", "drop")', "pass"),
    )),
    (("tests/streams/test_durable_content.py",), "streams.runs.run", (
        ("StreamRun._look_for_repeats", "if not self._unattended:", "if True:"),
        ("StreamRun._check_same", "if not self._unattended:", "if True:"),
        ("StreamRun._look_for_repeats", "if share <= REPEATED:", "if True:"),
        ("StreamRun._count", "and not self.unit.unique", ""),
        ("StreamRun._decide", "self._journal.decide(row, notes)", "self._journal.decide(row)"),
        ("StreamRun._undo", "self._samples, self._clean = None, True", "self._clean = True", "a run that is opened again looks for repeats in all of them"),
        ("StreamRun._remember", "if len(known) > 2 * _COMPARED:", "if False:"),
        ("StreamRun._rows_key", 'self._journal.salted("rows").encode()', 'b"rows"'),
    )),
    (("tests/streams/test_durable_content.py",), "synthgeo.sources.fingerprint", (
        ("RowSample.repeated", "if chance > _CHANCE:", "if False:"),
        ("RowSample.repeated", "limit = min(self.limit, other.limit)", "limit = self.limit"),
        ("RowSample.together", "limit = min((sample.limit for sample in samples), default=_HASHES)", "limit = _HASHES"),
        ("_least", "if len(distinct) < _SAMPLE and len(some) < len(hashes):", "if False:"),
    )),
    (("tests/cli/test_cli_run_settings.py -k repeat",), "synthgeo.cli.runs", (
        ("_check_further_files", "if arrivals.time is None or arrivals.cluster is not None or len(arrivals.files) < 2:", "if True:"),
        ("_report", "all_files or arrivals.time is not None or", "all_files or"),
    )),
    (("tests/cli/test_cli_reading.py -k unattended",), "synthgeo.cli.check", (
        ("skipped", "no_check or (reading.unattended and not sys.stdin.isatty())", "no_check"),
    )),
    (("tests/synthgeo/test_sources_coupling.py -k seconds",), "synthgeo.sources.values", (
        ("_times_of_objects", "if counted and state[row] == _BAD:", "if False:"),
    )),
    (("tests/synthgeo/test_sources_coupling.py -k stops_an",), "synthgeo.sources.values", (
        ("_checked_times", "_readable(micros, _SHIFT)", "_readable(micros)"),
        ("_texts_of_objects", "bad[row] = not is_unicode(value)", "bad[row] = False"),
    )),
    (("tests/synthgeo/test_contribution.py -k white_space",), "synthgeo.canonical", (
        ("id_of", 'unicodedata.normalize("NFC", text.strip())', "text.strip()"),
    )),
    (("tests/synthgeo/test_contribution.py -k text_file",), "synthgeo.sources.values", (
        ("_ids_of_text", "[id_of(text, alike) for text in encoded.dictionary.to_pylist()]", "encoded.dictionary.to_pylist()"),
    )),
    (("tests/synthgeo/test_contribution.py",), "synthgeo.privacy.users", (
        ("_id_of_object", "return id_of(value, alike) if", "return value if"),
        ("_id_of_object", "return word_of(value) if finite", "return str(value) if finite"),
        ("_hashed", "if whole:", "if False:"),
        ("_hashed", "digest_size=16", "digest_size=16, key=bytes([len(texts) % 2])"),
    )),
    (BY_HAND, "tabular.over_time.rotating_marginals", (
        ("Rotating._select_by_scores", "len(candidates) / budget.epsilon", "1 / budget.epsilon"),
    )),
    (BY_HAND, "tabular.measuring", (
        ("measure_by_scores", "spending.measure_scores(errors, score_share)", "errors.astype(float)"),
    )),
)  # fmt: skip

MUTANTS: tuple[Mutant, ...] = tuple(
    Mutant(f"{module}:{function}", old, new, tests, harmless[0] if harmless else "")
    for tests, module, changes in _LISTED
    for function, old, new, *harmless in changes
)
