"""The report: what is in the page, and that it works in a browser."""

from __future__ import annotations

import itertools
import json
import re
import statistics
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from chromium import FOUND, Chromium, chromium
from records_sample import CIFAR, MNIST, analytic, config, rows, write_run, write_study

from vcsg.study import report
from vcsg.study.methods import reduces_variance
from vcsg.study.report.layout import log_values
from vcsg.study.report.markup import Markup, tag, text
from vcsg.study.report.searches import chosen
from vcsg.study.view.findings import findings, listed
from vcsg.study.view.markdown_page import write_page
from vcsg.study.view.sections import sections
from vcsg.study.view.tables import title

HOSTILE = "<script>alert(1)</script>\"' & </pre><b>$title"
VOID = {"meta", "input", "br", "img", "link"}


class Reader(HTMLParser):
    """The elements of a page, and whether each is closed where it should be."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        inside = self.open[-1] if self.open else ""
        (self.scripts if inside == "script" else self.text).append(data)

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())


def write(folders: list[Path], path: Path) -> Path:
    return report.write(sections(folders), folders, path)


def page_of(*folders: Path, out: Path) -> str:
    return write(list(folders), out / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def studies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of the paper's kind with all that can go wrong in it, and an analytic problem."""
    folder = tmp_path_factory.mktemp("studies")
    write_study(folder / "mnist", passes=15, seeds=2, every=0.5)
    broken = config("mnist/lenet-300-100", "svrg", "SVRG", seed=7, protocol="tuned", options={"lr": 2.9, "b": 64})
    found = rows(MNIST["tuned"]["svrg"], 7, passes=3, every=0.5, n=60_000)
    write_run(
        folder / "mnist/runs/tuned/svrg/seed-7", broken, found, status="failed", message="diverged: the loss is inf"
    )
    stopped = config("mnist/lenet-300-100", "sgd", "SGD", seed=7, protocol="tuned")
    write_run(folder / "mnist/runs/tuned/sgd/seed-7", stopped, found, status="interrupted")
    hostile = config("mnist/lenet-300-100", "hostile", HOSTILE, protocol="tuned", command=HOSTILE)
    write_run(folder / "mnist/runs/tuned/hostile/seed-0", hostile, found, notes={"said": HOSTILE}, message=HOSTILE)
    analytic(folder / "logistic", seeds=1)
    return folder


@pytest.fixture(scope="module")
def page(studies: Path) -> str:
    return page_of(studies, out=studies)


@pytest.fixture(scope="module")
def path(studies: Path, page: str) -> Path:
    """Of the file with the page."""
    return studies / "report.html"


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with chromium() as found:
        yield found


def _settled(browser: Chromium, path: Path, width: int) -> Chromium:
    """The page in a window of this width; it is loaded anew only after another test had it in another one."""
    if browser.shown != (path, width, False):
        browser.open(path, width=width)
        browser.until("document.documentElement.classList.contains('settled')")
    return browser


@pytest.fixture
def desktop(browser: Chromium, path: Path) -> Chromium:
    return _settled(browser, path, 1280)


@pytest.fixture
def phone(browser: Chromium, path: Path) -> Chromium:
    return _settled(browser, path, 390)


class TestPage:
    def test_is_well_formed(self, page: str) -> None:
        reader = Reader(page)
        assert reader.open == []
        names = [name for name, _ in reader.tags]
        assert [names.count(name) for name in ("html", "head", "body", "title", "h1")] == [1] * 5
        ids = [attributes["id"] for _, attributes in reader.tags if "id" in attributes]
        assert len(ids) == len(set(ids))

    def test_needs_nothing_from_elsewhere(self, page: str) -> None:
        reader = Reader(page)
        for name, attributes in reader.tags:
            assert name not in ("link", "iframe", "object", "embed", "base")
            for attribute in ("src", "href", "srcset", "action", "poster", "data"):
                assert (attributes.get(attribute) or "#").startswith(("#", "data:image/png;base64,"))
        style = page[page.index("<style>") : page.index("</style>")]
        assert not re.search(r"@import|url\(|//", style)
        own = [script for script in reader.scripts if "plotly.js v" not in script]
        assert not any(re.search(r"https?:|['\"]//", script) for script in own)

    def test_has_plotly_once(self, page: str) -> None:
        assert page.count("plotly.js v") == 1

    def test_sections_are_in_order(self, page: str) -> None:
        ids = [a["id"] for name, a in Reader(page).tags if name == "section"]
        assert ids == ["findings", "claims", "workload-1", "workload-2", "environment"]
        heads = re.findall(r"<h3>(.*?)</h3>", page[page.index('id="workload-2"') :])
        assert heads[:4] == ["Test error", "Training loss", "To a test error of 2.5\u00a0%", "Inside VCSG"]
        assert heads[-3:] == ["The search for step sizes", "Settings", "Runs that did not finish"]

    def test_what_a_record_says_is_no_markup(self, page: str) -> None:
        assert "<script>alert" not in page
        assert "</pre><b>" not in page
        assert HOSTILE in " ".join(Reader(page).text)

    def test_commands_stand_once(self, page: str, studies: Path) -> None:
        assert page.count(f"vcsg report {studies}") == 1
        assert page.count("vcsg compare mnist/lenet-300-100 --seeds 2 --passes 15") == 1
        assert page.count('class="copy"') == 1

    def test_the_verdict_comes_first(self, page: str, studies: Path) -> None:
        top = page[page.index('id="findings"') : page.index("</section>")]
        for section in sections([studies]):
            verdict, *more = findings(section)
            assert tag("strong", verdict) in top
            assert all(tag("li", sentence) in top for sentence in more)

    def test_final_columns_have_ranges(self, tmp_path: Path) -> None:
        """Two seeds that end far apart are not shown as their mean alone."""
        for seed, error in enumerate((0.1275, 0.6515)):
            ended = {"ifo": 100, "passes": 1.0, "seconds": 2.0 + seed, "epoch": 1, "train_loss": 1.5 + seed}
            write_run(tmp_path / f"{seed}", config("w", "sgd", "SGD", seed=seed), [ended | {"test_error": error}])
        words = Reader(page_of(tmp_path, out=tmp_path)).words
        assert "38.95 % 12.75–65.15 %" in words
        assert "2 1.5–2.5" in words
        assert "2.5 s 2.0–3.0 s" in words

    def test_every_chart_has_a_role_and_says_what_it_shows(self, page: str) -> None:
        charts = [attributes for _, attributes in Reader(page).tags if attributes.get("role") == "img"]
        assert len(charts) == page.count('class="plotly-graph-div"')
        said = [str(chart["aria-label"]) for chart in charts]
        assert any(
            re.match(r"Test error, tuned\. Curves of the test error.* VCSG [\d.]+\u00a0%", text) for text in said
        )
        assert any(re.match(r"To a test error of 2\.5\u00a0%, paper\. Bars .*VCSG: ", text) for text in said)
        assert any(text.startswith("Inside VCSG") and "epochs" in text for text in said)

    def test_values_under_the_pointer_have_units_and_ranges(self, page: str) -> None:
        assert re.search(r'"text":\["[\d.]+\\u00a0% \([\d.]+\\u2013[\d.]+\\u00a0%, 2 seeds\)"', page)
        for unit in ("after %{x:.3~g} s", "after %{x:.2f} passes", "after %{x:,} gradients"):
            assert unit in page

    def test_pictures_are_shown_without_javascript(self, studies: Path, tmp_path: Path) -> None:
        pytest.importorskip("matplotlib")
        picture = tmp_path / "fig2-tuned.png"
        picture.write_bytes(b"\x89PNG...")
        folders = [studies / "mnist"]
        page = report.write(sections(folders), folders, tmp_path / "r.html", [picture]).read_text(encoding="utf-8")
        stills = re.findall(r"<noscript>(.*?)</noscript>", page[page.index("<body>") :], re.DOTALL)
        assert len(stills) == page.count("<figure>")
        assert 'src="data:image/png;base64,iVBORy4uLg=="' in stills[0]
        assert 'alt="Test error, as in fig2-tuned.png"' in stills[0]
        assert all("drawn by JavaScript; the table above has its numbers" in still for still in stills[1:])

    def test_failed_and_interrupted_runs_are_named(self, page: str) -> None:
        words = Reader(page).words
        assert "diverged: the loss is inf" in words
        assert "2 runs did not finish; the reasons are listed." in words

    def test_search_settings_and_machines(self, page: str) -> None:
        words = Reader(page).words
        assert "20 short runs chose the step sizes of the protocol “tuned”" in words
        assert "at the edge of what was tried" in words
        assert "b_min = 16" in words
        assert "a processor" in words
        assert "estimated as vcsg does, at the initial weights of seed 1" in words

    def test_figures_are_compact(self, page: str) -> None:
        for script in Reader(page).scripts:
            if "Plotly.newPlot" in script and "plotly.js v" not in script:
                assert len(script) < 300_000
                assert "bdata" not in script

    def test_tables_sort_by_values(self, page: str) -> None:
        claims = page[page.index('id="claims"') : page.index('id="workload-1"')]
        assert claims.count("aria-sort=") == claims.count("<button")
        assert re.search(r'class="number">\s*4×', claims)


class TestFolders:
    def test_a_single_run_without_a_study(self, tmp_path: Path) -> None:
        write_run(
            tmp_path / "r", config("w/net", "sgd", "SGD"), rows(MNIST["tuned"]["sgd"], 0, passes=3, every=1, n=100)
        )
        words = Reader(page_of(tmp_path / "r", out=tmp_path)).words
        assert re.search(r"SGD ended at a test error of [\d.]+\s%", words)
        write_run(tmp_path / "s", config("w/net", "gd", "GD"), rows(MNIST["tuned"]["sgd"], 0, passes=3, every=1, n=100))
        words = Reader(page_of(tmp_path / "r", tmp_path / "s", out=tmp_path)).words
        assert "Lowest test error at the end: " in words
        assert "Every method ran with one seed: this is a demonstration, not a study." in words

    def test_no_runs(self, tmp_path: Path) -> None:
        assert "There are no runs in the folders." in Reader(page_of(tmp_path, out=tmp_path)).words

    def test_a_study_that_has_not_begun(self, tmp_path: Path) -> None:
        write_study(tmp_path, shapes={"paper": {}})
        assert "No run has been made yet." in Reader(page_of(tmp_path, out=tmp_path)).words

    def test_runs_that_say_nothing(self, tmp_path: Path) -> None:
        write_run(tmp_path / "a", config("w", "vcsg", "VCSG"), [], status="failed", message="out of memory")
        write_run(tmp_path / "b", config("w", "sgd", "SGD"), [], status="running")
        empty = {"ifo": 0, "passes": 0.0, "seconds": 0.0, "epoch": 1, "train_loss": None}
        write_run(tmp_path / "c", config("w", "gd", "GD"), [empty])
        study = {"format": 1, "workload": "w", "targets": [{"metric": "test_error", "value": 0.1}]}
        (tmp_path / "study.json").write_text(json.dumps(study))
        words = Reader(page_of(tmp_path, out=tmp_path)).words
        assert "out of memory" in words
        assert "No method reached a test error of 10\u00a0% within its budget." in " ".join(
            findings(sections([tmp_path])[0])
        )

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            ("{", "is not the file of a study"),
            ('{"format": 99, "workload": "w"}', "has format 99, this version reads up to 1: upgrade"),
            ('{"format": 1}', "is not the file of a study"),
            ('{"format": 1, "workload": "w", "targets": [{"metric": "speed", "value": 1}]}', "metrics are train_loss"),
        ],
    )
    def test_a_bad_study_is_named(self, content: str, words: str, tmp_path: Path) -> None:
        (tmp_path / "study.json").write_text(content)
        with pytest.raises(ValueError, match=words) as caught:
            write([tmp_path], tmp_path / "r.html")
        assert "study.json" in str(caught.value)
        assert not (tmp_path / "r.html").exists()

    def test_without_plotly_the_remedy_is_named(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "plotly", None)
        with pytest.raises(ModuleNotFoundError, match=r"the report needs plotly: pip install 'vcsg\[study\]'"):
            write([tmp_path], tmp_path / "r.html")


class TestFindings:
    def said(self, folder: Path) -> str:
        return " ".join(findings(sections([folder])[0])).replace("\u00a0", " ")

    def test_the_sample(self, studies: Path) -> None:
        said = self.said(studies / "mnist")
        assert re.search(r"SGD, momentum 0\.9 \(step size tuned\) came first to a test error of 2\.5 %: \d", said)
        assert re.search(r"VCSG took [\d.]+ s, [\d.]+ times as long \(step size tuned\) and took", said)
        assert "to a test error of 2.5 % (protocol tuned), variance reduction did not pay: VCSG took" in said
        assert "The paper's order (VCSG, SCSG, SVRG, SGD) is confirmed as far as it can be seen." in said

    def times(self, folder: Path, seconds: dict[tuple[str, str], float], seeds: int = 1) -> str:
        """Methods that reach the target after so many seconds, or never."""
        for (protocol, method), needed in seconds.items():
            for seed in range(seeds):
                made = config("mnist/lenet-300-100", method, method.upper(), protocol=protocol, seed=seed)
                found = [
                    {
                        "ifo": 60_000 * k,
                        "passes": float(k),
                        "seconds": s,
                        "epoch": k,
                        "train_loss": 1.0,
                        "test_error": e,
                    }
                    for k, (s, e) in enumerate(((0.0, 0.9), (needed if needed else 50.0, 0.01 if needed else 0.5)))
                ]
                write_run(folder / "runs" / protocol / method / f"seed-{seed}", made, found)
        write_study(folder, shapes={"paper": {}})
        return self.said(folder)

    def test_order_confirmed(self, tmp_path: Path) -> None:
        paper = {("paper", m): s for m, s in (("vcsg", 1.0), ("scsg", 2.0), ("paper-svrg", 3.0), ("paper-sgd", 4.0))}
        said = self.times(tmp_path, paper)
        assert (
            "is confirmed. With its own baselines, VCSG took 1.0 s, SCSG took 2.0 s, PAPER-SVRG took 3.0 s and" in said
        )

    def test_order_not_confirmed(self, tmp_path: Path) -> None:
        paper = {("paper", m): s for m, s in (("vcsg", 3.0), ("scsg", 2.0), ("paper-svrg", 5.0), ("paper-sgd", 0.0))}
        said = self.times(tmp_path, paper)
        assert "is not confirmed: SCSG was faster than VCSG. With" in said
        assert "PAPER-SGD did not reach it." in said

    def test_variance_reduction_paid(self, tmp_path: Path) -> None:
        said = self.times(tmp_path, {("tuned", "svrg"): 1.0, ("tuned", "sgd"): 3.0, ("tuned", "gd"): 4.0})
        assert "variance reduction paid: SVRG took 1.0 s (1.0 passes), SGD took 3.0 s (1.0 passes)." in said

    def test_seeds_that_overlap_decide_nothing(self, tmp_path: Path) -> None:
        said = self.times(tmp_path, {("tuned", "svrg"): 1.0, ("tuned", "sgd"): 1.0}, seeds=2)
        assert "neither paid nor cost clearly, for the times of the seeds overlap" in said

    def test_nobody(self, tmp_path: Path) -> None:
        said = self.times(tmp_path, {("tuned", "svrg"): 0.0, ("tuned", "sgd"): 0.0})
        assert said.startswith("No method reached a test error of 2.5 % within its budget.")
        assert "whether variance reduction pays is not decided" in said

    def test_which_methods_reduce_variance(self) -> None:
        reducing = ("vcsg", "scsg", "svrg", "alpha-svrg", "storm", "saga", "page", "spider", "snvrg")
        assert [reduces_variance(name) for name in reducing] == [True] * len(reducing)
        plain = ("gd", "sgd", "paper-sgd", "adamw", "sgd-momentum")
        assert [reduces_variance(name) for name in plain] == [False] * len(plain)
        assert reduces_variance("unknown") is None

    def test_lists(self) -> None:
        assert [listed(list(words)) for words in ("a", "ab", "abc")] == ["a", "a and b", "a, b and c"]


@pytest.mark.parametrize(("low", "high"), [(0.011, 70.0), (0.5, 8.0), (3.0, 19.0), (1.0, 1e9), (2.1, 2.4), (0.9, 1.2)])
def test_ticks_of_a_logarithmic_axis_are_few_and_round(low: float, high: float) -> None:
    ticks = log_values(low, high)
    assert 1 <= len(ticks) <= 7
    assert ticks == sorted(set(ticks))
    assert all(low * 0.95 <= tick <= high * 1.05 for tick in ticks)
    assert min((b / a for a, b in itertools.pairwise(ticks)), default=2) >= 1.1


def test_markup_escapes_what_is_not_markup() -> None:
    assert tag("p", "a<b", tag("b", "&"), class_='"x"', hidden=True, id=False) == (
        '<p class="&quot;x&quot;" hidden>a&lt;b<b>&amp;</b></p>'
    )
    assert text(["a", ["<", Markup("<i>")]]) == "a&lt;<i>"


@pytest.mark.skipif(FOUND is None, reason="no Chromium is installed")
class TestBrowser:
    @pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
    def test_renders_without_complaint_or_request(self, browser: Chromium, path: Path, dark: bool) -> None:
        browser.open(path, dark=dark)
        assert browser.complaints() == []
        assert {address.split("?")[0] for address in browser.requests()} == {path.resolve().as_uri()}
        drawn = browser.evaluate(
            "[...document.querySelectorAll('.plotly-graph-div')].map(p => !!p.querySelector('svg'))"
        )
        assert len(drawn) >= 14
        assert all(drawn)
        ink = browser.evaluate("document.querySelector('.plotly-graph-div').layout.font.color")
        assert ink == ("#e4e8ec" if dark else "#1b1f24")

    def test_a_name_beside_a_curve_toggles_it_with_its_band(self, desktop: Chromium) -> None:
        plot = "document.querySelector('#workload-2 .plotly-graph-div')"
        own = f"{plot}.data.filter(t => t.legendgroup === 'VCSG')"
        assert desktop.evaluate(f"{own}.length") >= 2
        name = f"[...{plot}.querySelectorAll('.annotation-text')].find(e => e.textContent.endsWith(' VCSG'))"
        for state in ("legendonly", "true"):
            desktop.click(name)
            desktop.until(f"{own}.every(t => String(t.visible) === '{state}')")

    def test_names_stand_in_order_and_apart(self, desktop: Chromium) -> None:
        plot = "document.querySelector('#workload-2 .plotly-graph-div')"
        places = desktop.evaluate(
            f"[...{plot}.querySelectorAll('.annotation-text')].map(e => e.getBoundingClientRect().toJSON())"
            ".filter(box => box.x > 300).map(box => box.y)"
        )
        assert len(places) == 4
        assert min(b - a for a, b in itertools.pairwise(sorted(places))) > 14

    def test_a_switch_changes_the_axis_and_keeps_what_is_hidden(self, desktop: Chromium) -> None:
        figure = "document.querySelector('#workload-2 figure')"
        plot = f"{figure}.querySelector('.plotly-graph-div')"
        desktop.evaluate(f"Plotly.restyle({plot}, {{visible: 'legendonly'}}, [1]).then(() => 0)")
        assert desktop.evaluate(f"{plot}.layout.xaxis.title.text") == "training time (s)"
        assert desktop.evaluate(f"{plot}._fullLayout.xaxis.range[1]") == pytest.approx(17, rel=0.2)
        before = desktop.evaluate(f"{plot}.data[1].x")
        desktop.click(f"{figure}.querySelector('input[value=passes] + span')")
        desktop.until(f"{plot}.layout.xaxis.title.text === 'passes (n gradients each)'")
        after = desktop.evaluate(f"{plot}.data[1].x")
        assert after != before
        assert desktop.evaluate(f"{plot}.data[1].visible") == "legendonly"
        assert desktop.evaluate(f"{plot}._fullLayout.xaxis.range[1]") == pytest.approx(15, rel=0.1)

    def test_no_plot_is_wider_than_its_place(self, desktop: Chromium) -> None:
        plots = "[...document.querySelectorAll('.plotly-graph-div')].filter(p => p.offsetParent)"
        assert desktop.evaluate(f"{plots}.length") > 4
        desktop.until(f"{plots}.every(p => p.querySelector('.main-svg').clientWidth <= p.clientWidth)")

    def test_bars_switch_too(self, desktop: Chromium) -> None:
        figure = "[...document.querySelectorAll('#workload-2 figure')].find(f => f.textContent.includes('hatched'))"
        plot = f"{figure}.querySelector('.plotly-graph-div')"
        seconds = desktop.evaluate(f"{plot}.data[0].x")
        desktop.click(f"{figure}.querySelector('input[value=ifo] + span')")
        desktop.until(f"{plot}.layout.xaxis.title.text === 'gradients of single samples'")
        assert desktop.evaluate(f"{plot}.data[0].x") != seconds
        assert desktop.evaluate(f"{plot}.data[1].text[0]").strip().endswith("k")

    def test_a_table_sorts_by_mouse_and_keyboard(self, desktop: Chromium) -> None:
        head = "document.querySelectorAll('#workload-2 table thead th')[3]"
        column = (
            "[...document.querySelectorAll('#workload-2 table')[0].tBodies[0].rows].map(r => r.cells[3].dataset.value)"
        )
        desktop.click(f"{head}.querySelector('button')")
        assert desktop.evaluate(f"{head}.ariaSort") == "ascending"
        rising = desktop.evaluate(column)
        known = [float(value) for value in rising if value]
        assert known == sorted(known)
        assert all(not value for value in rising[len(known) :])
        assert len(known) < len(rising)
        desktop.evaluate(f"{head}.querySelector('button').focus()")
        desktop.press("Enter", "\r")
        assert desktop.evaluate(f"{head}.ariaSort") == "descending"
        falling = desktop.evaluate(column)
        assert [float(value) for value in falling if value] == known[::-1]
        assert not falling[-1]

    def test_commands_are_copied(self, desktop: Chromium) -> None:
        desktop.click("document.querySelector('button.copy')")
        desktop.until("document.querySelector('button.copy').textContent === 'Copied'")

    def test_hostile_text_is_shown_as_it_is(self, desktop: Chromium) -> None:
        names = "[...document.querySelectorAll('.annotation-text')].map(e => e.textContent)"
        assert any("<script>alert(1)</script>" in name for name in desktop.evaluate(names))

    def test_plots_fit_on_paper_and_come_back(self, desktop: Chromium) -> None:
        plot = "document.querySelector('#workload-2 .plotly-graph-div')"
        desktop.evaluate("window.dispatchEvent(new Event('beforeprint'))")
        desktop.until(f"{plot}._fullLayout.width === 660")
        desktop.evaluate("window.dispatchEvent(new Event('afterprint'))")
        desktop.until(f"{plot}._fullLayout.width !== 660")

    def test_without_javascript_there_are_pictures_and_no_holes(self, browser: Chromium, path: Path) -> None:
        browser.call("Emulation.setScriptExecutionDisabled", value=True)
        try:
            browser.open(path)
            found = browser.call("DOM.getDocument", depth=0)["root"]["nodeId"]
            still = browser.call("DOM.querySelector", nodeId=found, selector="figure noscript p")["nodeId"]
            assert browser.call("DOM.getBoxModel", nodeId=still)["model"]["height"] > 10
            plots = browser.call("DOM.querySelector", nodeId=found, selector="figure .plots")["nodeId"]
            with pytest.raises(AssertionError, match="box model"):
                browser.call("DOM.getBoxModel", nodeId=plots)
        finally:
            browser.call("Emulation.setScriptExecutionDisabled", value=False)
            browser.shown = None

    def test_a_phone_has_a_legend_instead(self, phone: Chromium) -> None:
        plot = "document.querySelector('#workload-2 .plotly-graph-div')"
        phone.until(f"{plot}.layout.showlegend === true")
        assert phone.evaluate(f"{plot}.layout.annotations.filter(a => a.visible !== false).length") == 1
        shown = f"{plot}.data.filter(t => t.legendgroup === 'VCSG')"
        phone.click(f"{plot}.querySelector('.legendtoggle')")
        phone.until(f"{shown}.every(t => t.visible === 'legendonly')")

    def test_fits_a_phone(self, phone: Chromium) -> None:
        assert phone.evaluate("document.documentElement.scrollWidth") == 390
        phone.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
        phone.until("[...document.querySelectorAll('.plotly-graph-div svg')].every(s => s.clientWidth <= 390)")
        assert phone.evaluate("document.documentElement.scrollWidth") == 390
        assert phone.evaluate("document.querySelector('.scroll').scrollWidth > 390")

    def test_a_table_that_is_cut_off_says_so_and_shows_the_error(self, phone: Chromium) -> None:
        box = "document.querySelector('#workload-2 .scroll')"
        phone.until(f"{box}.classList.contains('more')")
        hint = phone.evaluate(f"getComputedStyle({box}.querySelector('caption span'), '::after').content")
        assert "scroll sideways" in hint
        heads = phone.evaluate(f"[...{box}.querySelectorAll('th[scope=col]')].slice(0, 3).map(h => h.textContent)")
        assert heads == ["method", "protocol", "final test error"]
        right = phone.evaluate(f"{box}.querySelector('tbody tr').cells[2].getBoundingClientRect().right")
        assert right <= 390
        phone.evaluate(f"{box}.scrollLeft = 10000")
        phone.until(f"!{box}.classList.contains('more')")
        left = phone.evaluate(f"{box}.querySelector('tbody th').getBoundingClientRect().left")
        assert left < 40  # the names stay


def test_the_page_in_markdown_has_the_numbers_of_the_records(studies: Path, tmp_path: Path) -> None:
    """Medians of what the runs say, computed here by hand; the findings of the terminal; links to pictures."""
    picture = tmp_path / "figures" / "fig1.png"
    found = sections([studies / "mnist"])
    page = write_page(found, tmp_path / "page.md", [picture, picture.with_suffix(".pdf")]).read_text(encoding="utf-8")
    (section,) = found
    runs = [run for run in section.runs if (run.config.protocol, run.config.method) == ("paper", "vcsg")]
    seconds = [row["seconds"] for run in runs if (row := run.reach("test_error", 0.025))]
    assert len(seconds) == len(runs) == 2
    (line,) = (line for line in page.splitlines() if line.startswith("| VCSG | paper | 2 of 2 seeds |"))
    assert f"{statistics.median(seconds):.1f} ({min(seconds):.1f}–{max(seconds):.1f})" in line
    for sentence in findings(section):
        assert f"- {sentence}".replace("\u00a0", " ") in page
    assert "| paper | SCSG | 2 × |" in page
    assert page.endswith("![fig1](figures/fig1.png)\n")
    assert HOSTILE.replace("|", "\\|") in page
    assert all(line.count(" | ") == page.splitlines()[k - 1].count(" | ") for k, line in enumerate(page.splitlines())
               if line.startswith("| ") and page.splitlines()[k - 1].startswith("| "))  # fmt: skip


def test_findings_where_nothing_is_decided(tmp_path: Path) -> None:
    """Where none of the paper's four comes to the target, its order is neither confirmed nor not."""
    write_study(tmp_path, passes=0.5, seeds=1, every=0.5)
    said = " ".join(findings(sections([tmp_path])[0])).replace("\u00a0", " ")
    assert (
        "The paper's order (VCSG, SCSG, SVRG, SGD) is not decided: none of them came to a test error of 2.5 %." in said
    )


def test_parts_of_a_data_set_are_different_problems(tmp_path: Path) -> None:
    """Runs on other numbers of samples are never seeds of one line, and each study belongs to its own runs."""
    for n in (30_000, 60_000):
        write_study(tmp_path / f"n{n}", passes=2, seeds=1, n=n)
    found = sections([tmp_path])
    assert [section.workload for section in found] == [f"mnist/lenet-300-100, n = {n}" for n in ("30,000", "60,000")]
    for section, n in zip(found, (30_000, 60_000), strict=True):
        assert {run.config.n for run in (*section.runs, *section.search)} == {n}
        assert section.claim is not None
        assert not section.repeated
        assert title(section.workload, section.runs) == f"mnist/lenet-300-100, n = {n:,}, seed 0"
    assert [section.workload for section in sections([tmp_path / "n30000"])] == ["mnist/lenet-300-100"]


def test_a_study_inside_another_has_targets_of_its_own(tmp_path: Path) -> None:
    write_study(tmp_path, passes=2, seeds=1)
    write_study(tmp_path / "cifar", "cifar10/lenet-5", CIFAR, passes=2, seeds=1, n=50_000)
    found = {section.workload: section for section in sections([tmp_path])}
    asked = {name: [(target.metric, target.value) for target in section.asked] for name, section in found.items()}
    assert asked == {"mnist/lenet-300-100": [("test_error", 0.025)], "cifar10/lenet-5": [("test_error", 0.3)]}
    assert [len(section.commands) for section in found.values()] == [1, 1]


def test_a_study_with_parts_of_a_data_set_belongs_to_all_of_them(tmp_path: Path) -> None:
    """As where files were added between two calls."""
    write_study(tmp_path, passes=2, seeds=1)
    for head in sorted(tmp_path.rglob("run.json"))[::2]:
        head.write_text(head.read_text(encoding="utf-8").replace('"n": 60000', '"n": 30000'), encoding="utf-8")
    found = sections([tmp_path])
    assert len(found) == 2
    assert all(section.claim and section.commands for section in found)


def test_the_searches_of_two_studies_are_two_rows(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_study(tmp_path / name, passes=2, seeds=1)
    (section,) = sections([tmp_path])
    (alone,) = sections([tmp_path / "a"])
    rows = [str(chosen(one)).count("<tr>") - 1 for one in (alone, section)]
    assert rows[0] > 1
    assert rows[1] == 2 * rows[0]
    assert "VCSG" in str(chosen(section))
    assert all(f"({name})" in str(chosen(section)) and f"({name})" not in str(chosen(alone)) for name in ("a", "b"))


def test_the_trials_of_a_search_are_read_from_beside_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The place of the study is found from a folder inside it too."""
    write_study(tmp_path, passes=2, seeds=1)
    monkeypatch.chdir(tmp_path / "search")
    (section,) = sections([Path(), Path("../runs")])
    (whole,) = sections([tmp_path])
    assert str(chosen(section)) == str(chosen(whole))


def test_one_mini_batch_size_is_no_search_for_one(tmp_path: Path) -> None:
    write_study(tmp_path, passes=2, seeds=1)
    for head in tmp_path.rglob("run.json"):
        found = json.loads(head.read_text(encoding="utf-8"))
        if found["config"]["role"] == "search":
            found["notes"]["b"] = 64
        elif "search" in found["notes"]:
            found["notes"]["search"] |= {"b": 64, "b_tried": [64, 64], "b_at_edge": True}
        head.write_text(json.dumps(found), encoding="utf-8")
    page = write([tmp_path], tmp_path / "r.html").read_text(encoding="utf-8")
    assert "short runs chose the step sizes of the protocol" in page
    assert "the largest that was tried" not in page
    assert "at the edge of those tried" not in page
