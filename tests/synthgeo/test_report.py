"""The report page in a real browser, and what it may and may not hold."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import synthgeo as sg

BOX = sg.BoxDomain(0, 0, 1, 1)
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def history():
    """Releases of a stream at several steps, with the truth at each."""
    events = sg.simulate.circles(10, 300, deletion=True, seed=1)
    stream = sg.PHDStream(domain=BOX, budget=sg.PrivacyBudget(2.0))
    releases, truths = [], []
    for step, batch in events.groupby("step"):
        releases.append(stream.update(batch))
        there = events[events["step"] <= step].groupby(["x", "y"])["op"].sum()
        truths.append(np.array(there[there > 0].index.to_list()))
    return truths, releases


@pytest.fixture(scope="module")
def pages(history, tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    truths, releases = history
    sg.report(truths, releases, folder / "curator.html", repeats=2)
    sg.report(None, releases, folder / "public.html", public=True)
    return folder


def test_the_public_page_holds_nothing_of_the_truth(history, pages):
    text = (pages / "public.html").read_text()
    assert "May be published" in text
    assert "true points" not in text
    assert "Error against the private data" not in text
    assert '"kind": "true"' not in text
    curator = (pages / "curator.html").read_text()
    assert "For the curator only" in curator
    assert '"kind": "true"' in curator


def test_the_public_page_does_not_depend_on_the_truth(history, tmp_path):
    truths, releases = history
    sg.report(truths, releases, tmp_path / "a.html", public=True)
    sg.report(None, releases, tmp_path / "b.html", public=True)
    assert (tmp_path / "a.html").read_text() == (tmp_path / "b.html").read_text()


def test_a_public_page_of_what_may_not_be_released_is_refused(tmp_path):
    seeded = sg.PHDStream(domain=BOX, budget=sg.PrivacyBudget(1.0), noise=sg.SeededNoise(1))
    release = seeded.update(np.full((10, 2), 0.5))
    with pytest.raises(sg.ConfigError, match="may be published"):
        sg.report(None, release, tmp_path / "page.html", public=True)
    assert not (tmp_path / "page.html").exists()
    sg.report(None, release, tmp_path / "curator.html")
    assert "Not releasable" in (tmp_path / "curator.html").read_text()


def test_no_address_outside_the_page(pages):
    for name in ("curator.html", "public.html"):
        text = (pages / name).read_text()
        assert not re.search(r"""(src|href)=["']?https?:""", text)
        assert "@import" not in text


def test_names_are_escaped(history, tmp_path):
    truths, releases = history
    page = sg.report(
        {"<b>x</b>": truths[-1]}, {"<b>x</b>": releases[-1]}, tmp_path / "p.html", title="<script>1</script>"
    )
    assert "<script>1</script>" not in page.read_text()
    assert "<b>x</b>" not in page.read_text()


def test_products_must_match(history, tmp_path):
    truths, releases = history
    with pytest.raises(sg.ConfigError, match="different products"):
        sg.report({"a": truths[-1]}, {"b": releases[-1]}, tmp_path / "p.html")


def test_the_ledger_is_shown(history, tmp_path):
    class Entries:
        def show(self):
            return pd.DataFrame({"product": ["PHDStream"], "epsilon": [2.0]})

    page = sg.report(history[0][-1], history[1][-1], tmp_path / "p.html", ledger=Entries())
    assert "Spent so far" in page.read_text()


def test_the_public_page_does_not_say_which_fit_was_repeated(history, tmp_path):
    """One record more in the second table, and the entry would not be a repeat: an exact answer."""
    ledger = sg.Ledger.open(tmp_path / "ledger.sqlite", dataset="d", cap=sg.PrivacyBudget(9.0))
    pages = {}
    with ledger:
        for content in ("same", "same"):
            ledger.charge("table", sg.PrivacyBudget(1.0), sg.PrivacyUnit.event(), content_hash=content)
        for public in (True, False):
            page = sg.report(None, history[1][-1], tmp_path / f"{public}.html", public=public, ledger=ledger)
            pages[public] = page.read_text()
    assert "repeats" in pages[False]
    assert "repeats" not in pages[True]
    assert "Spent so far" in pages[True]


def test_every_release_of_a_public_page_must_be_releasable(history, tmp_path):
    seeded = sg.PHDStream(domain=BOX, budget=sg.PrivacyBudget(1.0), noise=sg.SeededNoise(1))
    mixed = [seeded.update(np.full((10, 2), 0.5)), history[1][-1]]
    with pytest.raises(sg.ConfigError, match="may be published"):
        sg.report(None, mixed, tmp_path / "page.html", public=True)
    with pytest.raises(sg.ConfigError, match="may be published"):
        sg.report(None, {"a": history[1][-1], "b": mixed}, tmp_path / "page.html", public=True)
    assert not (tmp_path / "page.html").exists()


def test_the_curators_page_is_for_its_owner_only(history, tmp_path):
    path = tmp_path / "page.html"
    path.write_text("an older page that everybody could read")
    path.chmod(0o644)
    sg.report(history[0][-1], history[1][-1], path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert "For the curator only" in path.read_text()


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: no browser tests"
    )
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine (Debian: apt-get install chromium): no browser tests")
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield found
        found.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["curator.html", "public.html"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [(1280, 900), (390, 800)], ids=["laptop", "phone"])
def test_the_page_works_in_a_browser(browser, pages, name, scheme, size):
    page = browser.new_page(color_scheme=scheme, viewport={"width": size[0], "height": size[1]})
    complaints, requests = [], []
    page.on(
        "console",
        lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None,
    )
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto((pages / name).as_uri())
    page.wait_for_function("window.synthgeoMaps && window.synthgeoMaps.map0.canvases.length > 0")
    assert complaints == []
    assert [url for url in requests if not url.startswith("file:")] == []
    # nothing sticks out sideways on a phone
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth + 1")
    ink = """canvas => {
        const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
        let drawn = 0;
        for (let i = 3; i < data.length; i += 4) drawn += data[i] > 0;
        return drawn;
    }"""
    canvas = page.locator("canvas").first
    assert canvas.evaluate(ink) > 500
    box = canvas.bounding_box()
    before = page.evaluate("JSON.stringify(window.synthgeoMaps.map0.view)")
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2 + 60, box["y"] + box["height"] / 2 + 20, steps=4)
    page.mouse.up()
    panned = page.evaluate("JSON.stringify(window.synthgeoMaps.map0.view)")
    assert panned != before
    page.mouse.wheel(0, -300)
    page.wait_for_function("window.synthgeoMaps.map0.view.k > 1")
    page.get_by_role("button", name="Partition").click()
    assert page.evaluate("window.synthgeoMaps.map0.showCells")
    page.get_by_role("button", name="Reset view").click()
    assert page.evaluate("window.synthgeoMaps.map0.view.k") == 1
    paper = "getComputedStyle(document.body).backgroundColor"
    first = page.evaluate(paper)
    page.get_by_role("button", name="Light / dark").click()
    assert page.evaluate(paper) != first
    if os.environ.get("SYNTHGEO_SCREENSHOTS"):
        target = Path(os.environ["SYNTHGEO_SCREENSHOTS"]) / f"{name[:-5]}-{scheme}-{size[0]}.png"
        page.get_by_role("button", name="Light / dark").click()
        page.screenshot(path=target, full_page=True)
    page.close()


@pytest.mark.slow
def test_time_can_be_moved_and_played(browser, pages):
    page = browser.new_page()
    page.goto((pages / "curator.html").as_uri())
    page.wait_for_function("window.synthgeoMaps && window.synthgeoMaps.map0.canvases.length > 0")
    slider = page.get_by_role("slider")
    assert slider.get_attribute("max") == "9"
    picture = "document.querySelector('canvas').toDataURL()"
    last = page.evaluate(picture)
    slider.focus()
    page.keyboard.press("Home")
    assert page.locator("output").inner_text() == "step 1"
    assert slider.get_attribute("aria-valuetext") == "step 1"
    assert page.evaluate(picture) != last
    page.get_by_role("button", name="Play").click()
    page.wait_for_function("window.synthgeoMaps.map0.step >= 2")
    page.get_by_role("button", name="Pause").click()
    page.close()


@pytest.mark.slow
def test_every_column_is_there_and_can_be_found(browser, tmp_path):
    columns = {f"column {number}": sg.Categorical([1, 2, 4]) for number in range(14)}
    schema = sg.Schema({**columns, "when": sg.DateTime("2026-01-01", "2026-02-01", parts=("date",))})
    rng = np.random.default_rng(1)
    data = {name: rng.choice([1.0, 2.0, 4.0], 200) for name in columns}
    data["when"] = np.datetime64("2026-01-01") + rng.integers(0, 30, 200).astype("timedelta64[D]")
    real = pd.DataFrame(data)
    release = sg.TabularSynthesizer(schema=schema, budget=sg.PrivacyBudget(5.0)).fit(real).sample(200)
    sg.report(real, release, tmp_path / "table.html", repeats=1)
    text = (tmp_path / "table.html").read_text()
    assert text.count("data-name=") == 15
    days = [int(day) for day in re.findall(r"<title>(\d\d) Jan: synthetic", text)]
    assert days == sorted(days)  # dates in order of time, named by how long they last
    assert len(days) > 8
    apart = [float(found) for found in re.findall(r": ([\d.]+)% apart; bars", text)]
    assert apart == sorted(apart, reverse=True)
    assert apart[0] < 50  # 4.0 of the data and 4 of the schema are one value
    page = browser.new_page()
    page.goto((tmp_path / "table.html").as_uri())
    page.get_by_role("searchbox").fill("WHEN")
    assert page.locator("figure[data-name]:visible").count() == 1
    page.close()


@pytest.mark.slow
def test_a_million_points_are_quick_to_see(browser, tmp_path):
    stream = sg.PHDStream(domain=BOX, budget=sg.PrivacyBudget(1.0))
    release = stream.update(np.random.default_rng(1).beta(2, 5, (1_000_000, 2)))
    sg.report(None, release, tmp_path / "many.html", public=True)
    assert (tmp_path / "many.html").stat().st_size < 25e6
    page = browser.new_page()
    page.goto((tmp_path / "many.html").as_uri())
    page.wait_for_function("window.synthgeoMaps && window.synthgeoMaps.map0.canvases.length > 0")
    drawn = page.evaluate(
        """() => {
            const start = performance.now();
            for (let i = 0; i < 5; i++) document.querySelector("[data-zoom]").click();
            const { domContentLoadedEventEnd: ready, fetchStart: asked } = performance.timing;
            return [(performance.now() - start) / 5, ready - asked];
        }"""
    )
    # Seconds, where a page that draws point by point would take minutes: machines are busy.
    assert drawn[1] < 60_000  # first picture
    assert drawn[0] < 20_000  # each frame, without a graphics card
    page.close()


@pytest.fixture(scope="module")
def trips():
    graph = sg.simulate.city_graph(6, 6, seed=1)
    points = sg.simulate.city_trips(graph, trips=150, seed=1)
    model = sg.TrajectorySynthesizer(
        domain=sg.RoadDomain.from_graph(graph), budget=sg.PrivacyBudget(4.0), tz="Europe/Zurich"
    )
    return points, model.fit(points).sample(200)


def test_trips_are_told_by_the_local_hour(trips, tmp_path):
    points, release = trips
    public = sg.report(None, release, tmp_path / "public.html", public=True).read_text()
    curator = sg.report(points, release, tmp_path / "curator.html", repeats=1).read_text()
    assert "hour of departure (Europe/Zurich)" in public
    assert "(UTC)" not in curator
    words = re.sub(r"<(style|script).*?</\1>", "", public, flags=re.DOTALL)
    assert "pair should" not in words
    assert "of the synthetic trips" in words
    assert "bars of a pair" in curator


@pytest.mark.slow
def test_trips_drive(browser, trips, tmp_path):
    points, release = trips
    sg.report(points, release, tmp_path / "trips.html", repeats=1)
    page = browser.new_page()
    complaints = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto((tmp_path / "trips.html").as_uri())
    page.wait_for_function("window.synthgeoMaps && window.synthgeoMaps.map0.canvases.length > 0")
    clocks = release.lines["departure"].dt
    minute = clocks.hour * 60 + clocks.minute + clocks.second / 60
    lasting = (release.lines["arrival"] - release.lines["departure"]).dt.total_seconds() / 60
    driven = [int(((at - minute) % (24 * 60) <= lasting).sum()) for at in range(24 * 60 - 5)]
    busiest = int(np.argmax(driven))
    page.get_by_role("slider").evaluate(
        "(slider, value) => { slider.value = value; slider.dispatchEvent(new Event('input')); }", busiest
    )
    driving = page.evaluate("window.synthgeoMaps.map0.panels[1].driving")
    since = (busiest - minute) % (24 * 60)
    assert abs(driving - int((since <= lasting).sum())) <= 2
    assert driven[busiest] > 0
    assert page.locator("output").inner_text() == f"{busiest // 60:02d}:{busiest % 60:02d}"
    picture = "document.querySelectorAll('canvas')[1].toDataURL()"
    before = page.evaluate(picture)
    page.get_by_role("button", name="Drive").click()
    page.wait_for_function(f"window.synthgeoMaps.map0.step > {busiest + 2}")
    page.get_by_role("button", name="Pause").click()
    page.wait_for_function(f"before => {picture} !== before", arg=before)  # a busy machine draws later
    page.get_by_role("button", name="Reset view").click()
    assert page.evaluate("window.synthgeoMaps.map0.step") is None
    assert complaints == []
    page.close()


@pytest.mark.slow
def test_a_hundred_thousand_trips_are_quick_to_see(browser, trips, tmp_path):
    """The same trips five hundred times over: what the page has to draw, without the time to sample them."""
    _, release = trips
    xy, offsets, seconds = release.vertices
    copies = 500
    many = SimpleNamespace(
        product="trips",
        domain=release.domain,
        lines=pd.concat([release.lines] * copies, ignore_index=True),
        vertices=(
            np.tile(xy, (copies, 1)),
            np.append(
                (offsets[:-1] + offsets[-1] * np.arange(copies)[:, None]).ravel(), copies * offsets[-1]
            ),
            np.tile(seconds, copies),
        ),
        step=1,
        releasable=True,
        provenance=release.provenance,
        expected_error=release.expected_error,
    )
    sg.report(None, many, tmp_path / "many.html", public=True)
    assert (tmp_path / "many.html").stat().st_size < 25e6
    page = browser.new_page()
    page.goto((tmp_path / "many.html").as_uri())
    page.wait_for_function("window.synthgeoMaps && window.synthgeoMaps.map0.canvases.length > 0")
    assert page.evaluate("window.synthgeoMaps.map0.panels[0].lines.runs.length") == 100_000
    frame, ready = page.evaluate(
        """() => {
            const slider = document.querySelector("[data-step]"), start = performance.now();
            for (let i = 0; i < 10; i++) { slider.value = 480 + i; slider.dispatchEvent(new Event("input")); }
            const { domContentLoadedEventEnd: ready, fetchStart: asked } = performance.timing;
            return [(performance.now() - start) / 10, ready - asked];
        }"""
    )
    assert ready < 10_000  # first picture, on a loaded machine
    assert frame < 500  # each frame of the drive
    page.close()


def test_worst_pairs_come_first(tmp_path):
    rng = np.random.default_rng(2)
    a = rng.integers(0, 3, 400)
    real = pd.DataFrame({"a": a, "b": a, "c": rng.integers(0, 3, 400), "when": pd.Timestamp("2026-01-05")})
    real["when"] += pd.to_timedelta(rng.integers(0, 28, 400), unit="D")
    schema = sg.Schema(
        {
            **{name: sg.Categorical([0, 1, 2]) for name in "abc"},
            "when": sg.DateTime("2026-01-01", "2026-02-05", parts=("date",)),
        }
    )
    release = sg.TabularSynthesizer(schema=schema, budget=sg.PrivacyBudget(20.0)).fit(real).sample(400)
    wrong = real.assign(b=rng.permutation(a))  # the truth knows nothing of what the release has: a with b
    text = sg.report(wrong, release, tmp_path / "curator.html", repeats=1).read_text()
    assert "Pairs of columns, worst first" in text
    assert text.index("a with b: ") < text.index(" apart; both pictures should be dark")
    rows = re.search(r"Error of pairs.*?</table>", text, flags=re.DOTALL)[0]
    found = [float(cell) for cell in re.findall(r'<td class="n">([\d.e-]+)</td>', rows)]
    assert len(found) == 6
    assert found == sorted(found, reverse=True)
    public = sg.report(None, release, tmp_path / "public.html", public=True).read_text()
    assert "How columns go together" in public
    assert "a with b" in public
    assert "Error of pairs" not in public
    assert 'class="heat true"' not in public


@pytest.mark.slow
def test_keyboard_and_screen_reader_find_everything(browser, trips, tmp_path):
    """Everything that does something has a name, is reached by Tab, and maps obey the keys."""
    points, release = trips
    sg.report(points, release, tmp_path / "page.html", repeats=1)
    page = browser.new_page()
    page.goto((tmp_path / "page.html").as_uri())
    page.wait_for_function("window.synthgeoMaps && window.synthgeoMaps.map0.canvases.length > 0")
    tree = page.locator("body").aria_snapshot()
    for name in (
        'heading "Release"',
        'button "zoom in"',
        'slider "time of day"',
        'img "Map: synthetic trips',
    ):
        assert name in tree, name
    reached = set()
    for _ in range(30):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.tagName"))
    assert {"BUTTON", "INPUT", "CANVAS", "SUMMARY"} <= reached
    page.locator("canvas").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("+")
    view = page.evaluate("window.synthgeoMaps.map0.view")
    assert view["k"] > 1
    assert view["x"] != 0
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("button, input, canvas, svg[role]")].filter((e) =>
            !(e.textContent.trim() || e.getAttribute("aria-label") || e.closest("label"))).length"""
    )
    assert nameless == 0
    page.close()
