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
  const axis = plot.layout.meta.axes[value];
  const relayout = Object.fromEntries(Object.keys(axis).map((name) => ["xaxis." + name, axis[name]]));
  return Plotly.update(plot, restyle, relayout);
}

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
  const restyle = { "line.color": [], "marker.color": [] };
  plot.data.forEach((trace) => {
    const colour = trace.meta && trace.meta.colours ? trace.meta.colours[isDark ? 1 : 0] : undefined;
    restyle["line.color"].push(Array.isArray(colour) ? undefined : colour);
    restyle["marker.color"].push(colour);
  });
  return Plotly.update(plot, restyle, relayout);
}
const paintAll = (isDark) => plotsIn(document).forEach((plot) => paint(plot, isDark));

if (dark.matches) paintAll(true);
dark.addEventListener("change", (event) => paintAll(event.matches));
window.addEventListener("beforeprint", () => {
  if (dark.matches) paintAll(false);
  plotsIn(document).forEach((plot) => Plotly.Plots.resize(plot));
});
window.addEventListener("afterprint", () => { if (dark.matches) paintAll(true); });

/* A finger is to scroll the page, not to zoom a plot. */
if (window.matchMedia("(pointer: coarse)").matches) {
  plotsIn(document).forEach((plot) => Plotly.relayout(plot, { dragmode: false }));
}

/* The first of two plots side by side was drawn when it had the whole width. */
[...plotsIn(document)].filter((plot) => plot.offsetParent).forEach((plot) => Plotly.Plots.resize(plot));

/* What was folded away had no width to be drawn in. */
document.querySelectorAll("details").forEach((box) => {
  box.addEventListener("toggle", () => {
    if (box.open) plotsIn(box).forEach((plot) => Plotly.Plots.resize(plot));
  });
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
