"use strict";

const plotsIn = (element) => element.querySelectorAll(".plotly-graph-div");
const dark = window.matchMedia("(prefers-color-scheme: dark)");

/* A switch puts what the traces have in store for its value in place of what is drawn. */
function show(plot, value) {
  const restyle = {};
  plot.data.forEach((trace, place) => {
    const stored = (trace.meta && trace.meta.switch && trace.meta.switch[value]) || {};
    for (const name in stored) {
      restyle[name] = restyle[name] || plot.data.map(() => undefined); // undefined leaves a trace as it is
      restyle[name][place] = stored[name];
    }
  });
  const axis = stretched(plot, plot.layout.meta.axes[value]);
  plot.unit = value;
  const relayout = Object.fromEntries(Object.keys(axis).map((name) => ["xaxis." + name, axis[name]]));
  labelsOf(plot, value).forEach((y, place) => { relayout["annotations[" + place + "].y"] = y; });
  return Plotly.update(plot, restyle, relayout);
}

/* Names stand beside the curves where there is room for them, else in a legend. They are the first annotations. */
const labelsOf = (plot, unit) => ((plot.layout.meta || {}).labels || {})[unit] || [];

const isWide = (plot) => (plot.layout.width || plot.clientWidth) >= 520;

/* Bars are shorter where the page is narrow, to leave room for the texts at their ends. */
const stretched = (plot, axis) =>
  plot.layout.meta.bars && !isWide(plot) ? { ...axis, range: [0, 1.6 * axis.range[1]] } : axis;

function fit(plot) {
  const count = labelsOf(plot, "seconds").length;
  const wide = isWide(plot);
  const before = plot.wide === undefined ? true : plot.wide; // plots are made for a wide page
  plot.wide = wide;
  if (wide === before || !plot.layout.meta) return Promise.resolve();
  if (plot.layout.meta.bars) return show(plot, plot.unit || "seconds");
  if (!count) return Promise.resolve();
  const room = { "margin.r": wide ? plot.layout.meta.room : 16, "margin.b": wide ? 44 : 60 };
  const relayout = { showlegend: !wide, ...room };
  for (let place = 0; place < count; place++) relayout["annotations[" + place + "].visible"] = wide;
  return Plotly.relayout(plot, relayout);
}
const refit = (plot) => Promise.resolve(Plotly.Plots.resize(plot)).then(() => fit(plot));

/* A click on a name hides the curve and its band, or brings them back, as a click on a legend does. */
function toggle(plot, place) {
  const name = plot.layout.annotations[place].name;
  const own = plot.data.map((trace, k) => k).filter((k) => plot.data[k].legendgroup === name);
  const hidden = own.some((k) => plot.data[k].visible === "legendonly");
  return Plotly.update(plot, { visible: hidden ? true : "legendonly" }, { ["annotations[" + place + "].opacity"]: hidden ? 1 : 0.4 }, own);
}
plotsIn(document).forEach((plot) => {
  plot.on("plotly_clickannotation", (event) => {
    if (event.index < labelsOf(plot, "seconds").length) toggle(plot, event.index);
  });
});

document.querySelectorAll("fieldset.switch").forEach((group) => {
  group.addEventListener("change", (event) => {
    plotsIn(group.closest("figure")).forEach((plot) => show(plot, event.target.value));
  });
});

/* Plots cannot see the page's colours: they are told. They are made for a light page. */
function paint(plot, isDark) {
  const ink = isDark ? "#e4e8ec" : "#1b1f24";
  const grid = isDark ? "#343b44" : "#e3e7eb";
  const relayout = {
    "font.color": ink,
    "hoverlabel.bgcolor": isDark ? "#1d2127" : "#ffffff",
    "hoverlabel.font.color": ink,
  };
  Object.keys(plot.layout).filter((name) => /^[xy]axis/.test(name)).forEach((name) => {
    for (const part of ["gridcolor", "linecolor", "zerolinecolor"]) relayout[name + "." + part] = grid;
  });
  const texts = plot.layout.meta && plot.layout.meta.texts ? plot.layout.meta.texts[isDark ? 1 : 0] : [];
  texts.forEach((label, place) => { relayout["annotations[" + place + "].text"] = label; });
  const restyle = { "line.color": [], "marker.color": [] };
  plot.data.forEach((trace) => {
    const colour = trace.meta && trace.meta.colours ? trace.meta.colours[isDark ? 1 : 0] : undefined;
    restyle["line.color"].push(Array.isArray(colour) ? undefined : colour);
    restyle["marker.color"].push(colour);
  });
  return Plotly.update(plot, restyle, relayout);
}
const PAPER = 660; // pixels of a sheet between its margins: the page is laid out for it after the plots are drawn
const visiblePlots = () => [...plotsIn(document)].filter((plot) => plot.offsetParent);
const paintAll = (isDark) => plotsIn(document).forEach((plot) => paint(plot, isDark));

if (dark.matches) paintAll(true);
dark.addEventListener("change", (event) => paintAll(event.matches));
window.addEventListener("beforeprint", () => {
  if (dark.matches) paintAll(false);
  visiblePlots().forEach((plot) => { Plotly.relayout(plot, { width: PAPER }); fit(plot); });
});
window.addEventListener("afterprint", () => {
  if (dark.matches) paintAll(true);
  visiblePlots().forEach((plot) => { Plotly.relayout(plot, { width: null }); refit(plot); });
});

/* A finger is to scroll the page, not to zoom a plot. */
if (window.matchMedia("(pointer: coarse)").matches) {
  plotsIn(document).forEach((plot) => Plotly.relayout(plot, { dragmode: false }));
}

/* The first of two plots side by side was drawn when it had the whole width. */
const refitAll = () => Promise.all(visiblePlots().map(refit));
refitAll().then(() => document.documentElement.classList.add("settled"));
window.addEventListener("resize", refitAll);

/* What was folded away had no width to be drawn in. */
document.querySelectorAll("details").forEach((box) => {
  box.addEventListener("toggle", () => {
    if (box.open) plotsIn(box).forEach(refit);
  });
});

/* A table that is cut off says so, and fades towards its end until that is reached. */
document.querySelectorAll(".scroll").forEach((box) => {
  const look = () => {
    box.classList.toggle("wide", box.scrollWidth > box.clientWidth + 1);
    box.classList.toggle("more", box.scrollLeft + box.clientWidth < box.scrollWidth - 1);
  };
  box.addEventListener("scroll", look, { passive: true });
  new ResizeObserver(look).observe(box);
  look();
});

/* Tables are sorted by their heads; cells without a value come last, whichever way. */
function compare(a, b) {
  const x = Number(a), y = Number(b);
  return Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b) : x - y;
}

function sort(table, column, descending) {
  const body = table.tBodies[0];
  const value = (row) => row.cells[column].dataset.value;
  const rows = Array.from(body.rows);
  rows.sort((a, b) => {
    const x = value(a), y = value(b);
    if (x === "" || y === "") return (x === "") - (y === "");
    return (descending ? -1 : 1) * compare(x, y);
  });
  body.append(...rows);
}

document.querySelectorAll("table.sortable thead th").forEach((head) => {
  head.firstElementChild.addEventListener("click", () => {
    const descending = head.getAttribute("aria-sort") === "ascending";
    for (const other of head.parentElement.cells) other.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", descending ? "descending" : "ascending");
    sort(head.closest("table"), head.cellIndex, descending);
  });
});

document.querySelectorAll("button.copy").forEach((button) => {
  button.addEventListener("click", async () => {
    const code = button.previousElementSibling;
    try {
      await navigator.clipboard.writeText(code.textContent);
    } catch {
      const range = document.createRange();
      range.selectNodeContents(code);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      document.execCommand("copy");
    }
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
});
