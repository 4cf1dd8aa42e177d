"use strict";
const data = JSON.parse(document.getElementById("data").textContent);

/** An element with attributes (or properties: text, click) and children. */
function element(tag, attributes = {}, ...children) {
  const svg = ["svg", "g", "path", "line", "text", "rect", "circle"].includes(tag);
  const made = svg
    ? document.createElementNS("http://www.w3.org/2000/svg", tag)
    : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "text") made.textContent = value;
    else if (name === "click") made.addEventListener("click", value);
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

/** Bytes as `size` of cugrad/memory/sizes.py writes them. */
function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  while (Math.abs(n) >= 1023.5 && i < units.length - 1) { n /= 1024; i++; }
  return `${Number(n.toPrecision(4))} ${units[i]}`;
}

function microseconds(us) {
  if (us < 1e3) return `${us.toFixed(1)} µs`;
  return us < 1e6 ? `${(us / 1e3).toFixed(3)} ms` : `${(us / 1e6).toFixed(3)} s`;
}

/** Figures in a row: [text, what it is]. */
function figures(pairs) {
  const cards = pairs.map(([value, label]) =>
    element("div", {}, element("b", { text: value }), element("span", { text: label })));
  return element("div", { class: "figures" }, ...cards);
}

/**
 * A table that is sorted by a click on a head, and filtered by a text.
 * columns: {title, value(row), text(row), number, code, node(row), first: "descending"}
 */
function table(id, columns, rows, options = {}) {
  let by = options.by ?? 0, down = options.down ?? true, wanted = "";
  const body = element("tbody");
  const heads = columns.map((column, i) => element("th", {
    text: column.title, scope: "col", class: column.number ? "number" : "", tabindex: "0",
    click: () => { down = by === i ? !down : Boolean(column.number); by = i; draw(); },
  }));
  const text = (column, row) => column.text ? column.text(row) : String(column.value(row));
  function draw() {
    heads.forEach((head, i) => head.setAttribute(
      "aria-sort", i === by ? (down ? "descending" : "ascending") : "none"));
    const value = columns[by].value;
    const sorted = rows.filter((row) => !wanted || columns.some((column) =>
      column.value && text(column, row).toLowerCase().includes(wanted)));
    sorted.sort((a, b) => {
      const x = value(a), y = value(b);
      return (x < y ? -1 : x > y ? 1 : 0) * (down ? -1 : 1);
    });
    body.replaceChildren(...sorted.slice(0, 1000).map((row) => {
      const line = element("tr", { class: row.kind && row.kind !== "op" ? "aside" : "" });
      for (const column of columns) {
        const cell = element("td", {
          class: column.number ? "number" : column.code ? "code" : "",
        });
        if (column.node) cell.append(column.node(row));
        else cell.textContent = text(column, row);
        line.append(cell);
      }
      return line;
    }));
    count.textContent = sorted.length > 1000
      ? `the first 1000 of ${sorted.length} rows` : `${sorted.length} rows`;
  }
  heads.forEach((head) => head.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); head.click(); }
  }));
  const filter = element("input", {
    type: "search", placeholder: "filter", "aria-label": "filter the rows",
  });
  filter.addEventListener("input", () => { wanted = filter.value.toLowerCase(); draw(); });
  const count = element("span", { class: "count" });
  draw();
  return element("section", { id },
    element("div", { class: "bar-of-controls" }, filter, count),
    element("div", { class: "scroll" },
      element("table", {}, element("thead", {}, element("tr", {}, ...heads)), body)));
}
