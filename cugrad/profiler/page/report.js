"use strict";
/* Forward ops, their backward, and what both cost on the device: one table. */
const PARTS = [
  ["forward", (row) => row.forward.kernel_us, "#2f6fde"],
  ["backward", (row) => row.backward.kernel_us, "#e0a030"],
  ["double backward", (row) => row.double_backward.kernel_us, "#7c6fd0"],
  ["copies", (row) => row.total.copy_us, "#59b37c"],
  ["stalls", (row) => row.total.stall_us, "#d66a5b"],
];
const rows = data.rows;
const busy = (row) => PARTS.reduce((sum, [, value]) => sum + value(row), 0);
const sum = (value) => rows.reduce((total, row) => total + value(row), 0);
const most = Math.max(...rows.map(busy), 1e-9);
const double = rows.some((row) => Object.keys(row.double_nodes).length);
const names = (nodes) => Object.entries(nodes)
  .map(([name, n]) => n > 1 ? `${name} ×${n}` : name).join(", ");
const times = (count, us) => count ? `${count} / ${microseconds(us)}` : "";

const page = document.getElementById("page");
page.append(figures([
  [microseconds(sum((row) => row.total.kernel_us)),
    data.timed === "kernels" ? `in ${sum((r) => r.total.kernels)} kernels` : data.timed],
  [microseconds(sum((row) => row.total.copy_us)),
    `in ${sum((r) => r.total.copies)} copies of ${bytes(sum((r) => r.total.copy_bytes))}`],
  [microseconds(sum((row) => row.total.stall_us)), `in ${sum((r) => r.total.stalls)} stalls`],
  [String(rows.filter((row) => row.kind === "op").length), "different ops"],
]));
page.append(element("div", { class: "bar-of-controls", id: "keys" },
  ...PARTS.filter(([label]) => double || label !== "double backward").map(([label, , color]) =>
    element("span", {}, element("span", { class: "swatch", style: `background:${color}` }), label))));

const columns = [
  { title: "forward op", value: (row) => row.kind === "node" ? "" : row.name },
  { title: "calls", value: (row) => row.forward.calls, number: true },
  { title: data.timed, value: (row) => row.forward.kernel_us, number: true,
    text: (row) => times(row.forward.kernels, row.forward.kernel_us) },
  { title: "backward", value: (row) => names(row.nodes) },
  { title: data.timed, value: (row) => row.backward.kernel_us, number: true,
    text: (row) => times(row.backward.kernels, row.backward.kernel_us) },
];
if (double) columns.push(
  { title: "double backward", value: (row) => names(row.double_nodes) },
  { title: data.timed, value: (row) => row.double_backward.kernel_us, number: true,
    text: (row) => times(row.double_backward.kernels, row.double_backward.kernel_us) });
columns.push(
  { title: "copies", value: (row) => row.total.copy_us, number: true,
    text: (row) => row.total.copies
      ? `${times(row.total.copies, row.total.copy_us)} / ${bytes(row.total.copy_bytes)}` : "" },
  { title: "stalls", value: (row) => row.total.stall_us, number: true,
    text: (row) => times(row.total.stalls, row.total.stall_us) },
  { title: "all", value: busy, number: true, text: (row) => microseconds(busy(row)) },
  { title: "", value: busy, text: () => "", node: (row) => element("div", { class: "share" },
    ...PARTS.map(([label, value, color]) => element("i", {
      title: `${label}: ${microseconds(value(row))}`,
      style: `width:${100 * value(row) / most}%;background:${color}` }))) });
page.append(table("ops", columns, rows, { by: columns.length - 2 }));
document.body.dataset.ready = "yes";
