"use strict";
/* Memory over time: a stack of areas by category, what is elsewhere, and tables of the peak. */
const HERE = [
  ["before", "in use on entry", "#9aa5b8"],
  ["parameters", "parameters", "#7c6fd0"],
  ["inputs", "inputs", "#4c9fd6"],
  ["gradients", "gradients", "#e0a030"],
  ["activations", "activations", "#59b37c"],
  ["saved", "saved for backward", "#2f6fde"],
  ["other", "other: temporary, under way", "#d66a5b"],
];
const ELSEWHERE = [
  ["offloaded", "offloaded", "#2f6fde"],
  ["in_flight", "in flight", "#e0a030"],
  ["pinned", "pinned", "#7c6fd0"],
  ["disk", "on disk", "#59b37c"],
];
const samples = data.samples;
const hidden = new Set();
let axis = "op";

const WIDTH = 1200, LEFT = 76, RIGHT = 12, TOP = 14, FOOT = 26;
const xOf = (i) => {
  const part = axis === "op" ? i / samples.length
    : (samples[i].t - samples[0].t) / (samples[samples.length - 1].t - samples[0].t || 1);
  return LEFT + part * (WIDTH - LEFT - RIGHT);
};

/** At most `most` of the samples, of each bucket the one with the largest value. */
function thinned(most, value) {
  if (samples.length <= most) return samples.map((_, i) => i);
  const kept = [];
  for (let b = 0; b < most; b++) {
    const from = Math.floor(b * samples.length / most);
    const to = Math.floor((b + 1) * samples.length / most);
    let best = from;
    for (let i = from; i < to; i++) if (value(samples[i]) > value(samples[best])) best = i;
    kept.push(best);
  }
  return kept;
}

/** A round distance between the lines of an axis, so that there are two to five. */
function step(top) {
  const unit = 2 ** (10 * Math.floor(Math.log2(Math.max(top, 1)) / 10));
  const sizes = [0.25, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500].map((n) => n * unit);
  return sizes.find((size) => top / size <= 5) ?? top / 4;
}

function axes(svg, top, height) {
  const y = (value) => TOP + (1 - value / top) * (height - TOP - FOOT);
  const every = step(top);
  for (let value = 0; value <= top * 1.0001; value += every) {
    svg.append(element("line", {
      x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value), stroke: "var(--line)",
    }));
    svg.append(element("text", {
      x: LEFT - 8, y: y(value) + 4, "text-anchor": "end", text: bytes(value),
    }));
  }
  const ends = axis === "op" ? ["1", `${samples.length} ops and nodes`]
    : ["0 ms", `${((samples[samples.length - 1].t - samples[0].t) * 1e3).toFixed(2)} ms`];
  svg.append(element("text", { x: LEFT, y: height - 6, text: ends[0] }));
  svg.append(element("text", {
    x: WIDTH - RIGHT, y: height - 6, "text-anchor": "end", text: ends[1],
  }));
  const turn = samples.findIndex((each) => each.phase === "backward");
  if (turn > 0) {
    svg.append(element("line", {
      class: "turn", x1: xOf(turn), x2: xOf(turn), y1: TOP, y2: height - FOOT,
      stroke: "var(--faint)", "stroke-dasharray": "3 4",
    }));
    if (height > 300)
      svg.append(element("text", { x: xOf(turn) + 5, y: TOP + 10, text: "backward" }));
  }
  return y;
}

function stack(height) {
  const svg = element("svg", { viewBox: `0 0 ${WIDTH} ${height}`, role: "img", id: "stack" });
  svg.setAttribute("aria-label", "memory on the device by category");
  const shown = HERE.filter(([key]) => !hidden.has(key));
  const total = (each) => shown.reduce((sum, [key]) => sum + each[key], 0);
  const top = Math.max(...samples.map(total), 1) * 1.04;
  const y = axes(svg, top, height), kept = thinned(1500, total);
  const floor = new Map(kept.map((i) => [i, 0]));
  for (const [key, label, color] of shown) {
    const upper = [], lower = [];
    kept.forEach((i, n) => {
      const low = floor.get(i), high = low + samples[i][key];
      const x = xOf(i), next = n + 1 < kept.length ? xOf(kept[n + 1]) : WIDTH - RIGHT;
      upper.push(`${x},${y(high)} ${next},${y(high)}`);
      lower.push(`${next},${y(low)} ${x},${y(low)}`);  // walked backwards
      floor.set(i, high);
    });
    const path = element("path", {
      d: `M${upper.join(" ")} ${lower.reverse().join(" ")}Z`, fill: color, "data-category": key,
      "fill-opacity": "0.85",
    });
    svg.append(path);
  }
  const peak = data.peak_sample;
  svg.append(element("circle", {
    class: "peak", cx: xOf(peak), cy: y(total(samples[peak])), r: 5, fill: "none",
    stroke: "var(--text)", "stroke-width": 2,
  }));
  return svg;
}

function lines(height) {
  const shown = ELSEWHERE.filter(([key]) => samples.some((each) => each[key] > 0));
  if (!shown.length) return null;
  const svg = element("svg", { viewBox: `0 0 ${WIDTH} ${height}`, role: "img", id: "elsewhere" });
  svg.setAttribute("aria-label", "bytes elsewhere");
  const top = Math.max(...samples.map((s) => Math.max(...shown.map(([k]) => s[k]))), 1) * 1.04;
  const y = axes(svg, top, height);
  for (const [key, label, color] of shown) {
    const kept = thinned(1500, (each) => each[key]);
    const points = kept.map((i, n) => {
      const next = n + 1 < kept.length ? xOf(kept[n + 1]) : WIDTH - RIGHT;
      return `${xOf(i)},${y(samples[i][key])} ${next},${y(samples[i][key])}`;
    });
    svg.append(element("path", {
      d: `M${points.join(" ")}`, fill: "none", stroke: color, "stroke-width": 1.8,
      "data-category": key,
    }));
  }
  return svg;
}

const tip = element("div", { class: "tip", role: "status" });
const cursor = element("line", {
  id: "cursor", y1: TOP, y2: 320, stroke: "var(--text)", visibility: "hidden",
});
const chart = element("div", { class: "chart", id: "chart" });
const second = element("div", { class: "chart" });

function name(each) {
  const number = each.seq < data.seq_limit ? `, seq ${each.seq}` : "";
  return `${each.name} (${each.phase}${number})`;
}

/** Shows sample i: the line in the picture, and the box. */
function point(i) {
  const each = samples[i], box = chart.getBoundingClientRect();
  const shown = [...HERE, ...ELSEWHERE].filter(([key]) => each[key] > 0);
  const rows = shown.map(([key, label, color]) => element("tr", {},
    element("td", {}, element("span", { class: "swatch", style: `background:${color}` }), label),
    element("td", { class: "number", text: bytes(each[key]) })));
  tip.replaceChildren(
    element("b", { text: name(each) }),
    element("span", { text: `${bytes(each.bytes)} in use, ${(each.t * 1e3).toFixed(2)} ms` }),
    element("table", {}, element("tbody", {}, ...rows)));
  const x = xOf(i) / WIDTH * box.width;
  tip.style.left = `${Math.min(x + 14, box.width - 330)}px`;
  tip.style.top = "20px";
  tip.style.visibility = "visible";
  cursor.setAttribute("x1", xOf(i));
  cursor.setAttribute("x2", xOf(i));
  cursor.setAttribute("visibility", "visible");
}

function nearest(x) {
  let low = 0, high = samples.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (xOf(middle) < x) low = middle; else high = middle;
  }
  return x - xOf(low) < xOf(high) - x ? low : high;
}
chart.addEventListener("mousemove", (event) => {
  const box = chart.getBoundingClientRect();
  point(nearest((event.clientX - box.left) / box.width * WIDTH));
});
chart.addEventListener("mouseleave", () => {
  tip.style.visibility = "hidden";
  cursor.setAttribute("visibility", "hidden");
});

function draw() {
  const svg = stack(346);
  svg.append(cursor);
  chart.replaceChildren(svg, tip);
  const more = lines(200);
  second.replaceChildren(...(more ? [more] : []));
  for (const button of document.querySelectorAll("button[data-axis]"))
    button.setAttribute("aria-pressed", String(button.dataset.axis === axis));
}

const page = document.getElementById("page");
if (!samples.length) {
  page.append(element("p", { class: "note", text: "No op ran inside the timeline." }));
} else {
  const peak = samples[data.peak_sample];
  page.append(figures([
    [bytes(data.peak), `peak on ${data.device}`], [name(peak), "ended with the most"],
    [bytes(peak.saved), "saved for backward then"], [bytes(data.start), "in use on entry"],
    [String(samples.length), "ops and nodes"],
  ]));
  const keys = HERE.map(([key, label, color]) => {
    const button = element("button", { class: "key", "aria-pressed": "true", "data-key": key },
      element("span", { class: "swatch", style: `background:${color}` }), label);
    button.addEventListener("click", () => {
      if (hidden.has(key)) hidden.delete(key); else hidden.add(key);
      button.setAttribute("aria-pressed", String(!hidden.has(key)));
      draw();
    });
    return button;
  });
  const choose = (what, label) => element("button", {
    "data-axis": what, "aria-pressed": "false", text: label,
    click: () => { axis = what; draw(); },
  });
  page.append(element("div", { class: "bar-of-controls" },
    choose("op", "by op"), choose("time", "by time"),
    element("button", { id: "to-peak", text: "show the peak", click: () => point(data.peak_sample) }),
    ...keys));
  page.append(chart);
  draw();
  if (lines(200)) {
    page.append(element("h2", { text: "Elsewhere" }));
    page.append(element("div", { class: "bar-of-controls" },
      ...ELSEWHERE.map(([key, label, color]) => element("span", {},
        element("span", { class: "swatch", style: `background:${color}` }), label))));
    page.append(second);
  }
  page.append(element("h2", { text: "Alive at the peak, by op and line" }));
  const colors = new Map([["parameter", HERE[1][2]], ["input", HERE[2][2]],
    ["gradient", HERE[3][2]], ["activation", HERE[4][2]], ["saved", HERE[5][2]]]);
  const largest = Math.max(...data.alive_at_peak.map((row) => row.bytes), 1);
  page.append(table("alive", [
    { title: "op", value: (row) => row.op },
    { title: "line", value: (row) => row.line, code: true },
    { title: "category", value: (row) => row.category },
    { title: "tensors", value: (row) => row.tensors, number: true },
    { title: "bytes", value: (row) => row.bytes, text: (row) => bytes(row.bytes), number: true },
    { title: "", value: (row) => row.bytes, text: () => "", node: (row) => element("div",
      { class: "share" }, element("i", {
        style: `width:${100 * row.bytes / largest}%;background:${colors.get(row.category)}` })) },
  ], data.alive_at_peak, { by: 4 }));
  page.append(element("h2", { text: "What each op made" }));
  page.append(table("by-op", [
    { title: "op or node", value: (row) => row.op },
    { title: "calls", value: (row) => row.calls, number: true },
    { title: "made", value: (row) => row.bytes, text: (row) => bytes(row.bytes), number: true },
    { title: "alive at the peak", value: (row) => row.at_peak,
      text: (row) => bytes(row.at_peak), number: true },
    { title: "of it saved", value: (row) => row.saved_at_peak,
      text: (row) => bytes(row.saved_at_peak), number: true },
  ], data.by_op, { by: 2 }));
}
document.body.dataset.ready = "yes";
