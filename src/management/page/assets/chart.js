// Charts of a few lines over time, drawn as SVG. Lines differ by their dashes too, not by colour only.

import { h, svg, replace } from "./dom.js";

const HEIGHT = 190;
const LEFT = 52;
const RIGHT = 8;
const TOP = 8;
const BOTTOM = 22;
const SPAN_MS = 10 * 60_000;

// A round number above the value, so that the axis has even steps.
function ceiling(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 5, 10].map((factor) => factor * power).find((top) => top >= value);
}

const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 2 });

export class Chart {
  constructor(title, format) {
    this.format = format;
    this.picture = svg("svg", { role: "img", height: HEIGHT, width: "100%" });
    this.legend = h("ul", { class: "legend" });
    this.element = h("figure", { class: "chart" }, h("figcaption", null, title), this.picture, this.legend);
    this.title = title;
  }

  // lines: [{ name, points: [{ t, v }] }], of times up to now.
  update(lines, now = Date.now()) {
    const width = Math.max(this.picture.clientWidth || 480, 200);
    const from = Math.min(now - 60_000, Math.max(now - SPAN_MS, ...lines.map((line) => line.points[0]?.t ?? now)));
    const shown = lines.map((line) => ({ ...line, points: line.points.filter((point) => point.t >= from) }));
    const top = ceiling(Math.max(0, ...shown.flatMap((line) => line.points.map((point) => point.v))));
    const x = (t) => LEFT + ((t - from) / (now - from)) * (width - LEFT - RIGHT);
    const y = (v) => TOP + (1 - v / top) * (HEIGHT - TOP - BOTTOM);
    const latest = shown.map((line) => `${line.name} ${this.format(line.points.at(-1)?.v)}`);
    this.picture.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.picture.setAttribute("aria-label", `${this.title}: ${latest.join(", ")}`);
    replace(this.picture, this.axes(width, from, now, top, y), shown.map((line, at) => this.line(line, at, x, y)));
    replace(this.legend, shown.map((line, at) => h("li", null, key(at), latest[at])));
  }

  axes(width, from, now, top, y) {
    const steps = [0, 0.25, 0.5, 0.75, 1].map((part) => part * top);
    const minutes = (now - from) / 60_000;
    const ago = minutes >= 1.5 ? `${Math.round(minutes)} min ago` : `${Math.round(minutes * 60)} s ago`;
    return [
      steps.map((step) => svg("g", { class: "grid" },
        svg("line", { x1: LEFT, x2: width - RIGHT, y1: y(step), y2: y(step) }),
        svg("text", { x: LEFT - 6, y: y(step) + 4, "text-anchor": "end" }, short.format(step)))),
      svg("g", { class: "grid" },
        svg("text", { x: LEFT, y: HEIGHT - 5 }, ago),
        svg("text", { x: width - RIGHT, y: HEIGHT - 5, "text-anchor": "end" }, "now")),
    ];
  }

  line(line, at, x, y) {
    const points = line.points.map((point) => `${x(point.t).toFixed(1)},${y(point.v).toFixed(1)}`);
    // One value is a dot, as a line of one point is not drawn.
    if (line.points.length === 1) {
      const [px, py] = points[0].split(",");
      return svg("circle", { class: `dot line-${at}`, cx: px, cy: py, r: 2.5 });
    }
    return svg("polyline", { class: `line line-${at}`, points: points.join(" ") });
  }
}

function key(at) {
  return svg("svg", { class: "key", width: 26, height: 10, "aria-hidden": "true" },
    svg("line", { class: `line line-${at}`, x1: 1, x2: 25, y1: 5, y2: 5 }));
}
