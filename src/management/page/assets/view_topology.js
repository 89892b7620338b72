// What leads where in a virtual host: exchanges, alternate exchanges, queues and dead-lettering, as a picture and as a
// list. The picture is bounded, so that a large cluster does not stop the browser: a filter chooses what it shows.

import { h, heading, section, svg, replace, button, link } from "./dom.js";
import { get, path, see } from "./api.js";
import { count, exchangeName } from "./format.js";
import { Table } from "./list.js";
import { bind } from "./view_queue.js";
import { exchangeHref } from "./view_exchanges.js";
import { queueHref } from "./view_queues.js";

const NODES_MAX = 60;
const EDGES_MAX = 200;
const ROWS_MAX = 500;
const COLUMN = 260;
const ROW = 44;
const BOX = { width: 170, height: 30 };
const LETTERS_MAX = 22;

// What a policy or an argument says; arguments count first for queues and exchanges alike.
const setting = (one, name) => one.arguments?.[`x-${name}`] ?? one.arguments?.[name] ?? one.effective_policy_definition?.[name];

// All edges: { from, to, kind, label } between the keys "e NAME" and "q NAME".
function edgesOf(exchanges, queues, bindings) {
  const bound = bindings.filter((one) => one.source !== "").map((one) => ({
    from: `e ${one.source}`,
    to: `${one.destination_type === "queue" ? "q" : "e"} ${one.destination}`,
    kind: "binding",
    label: one.routing_key,
  }));
  const alternates = exchanges.filter((one) => setting(one, "alternate-exchange")).map((one) => (
    { from: `e ${one.name}`, to: `e ${setting(one, "alternate-exchange")}`, kind: "alternate", label: "unroutable" }));
  const letters = queues.filter((one) => setting(one, "dead-letter-exchange") !== undefined).map((one) => {
    const exchange = setting(one, "dead-letter-exchange");
    const key = setting(one, "dead-letter-routing-key");
    // The default exchange leads to the queue of the key's name.
    const to = exchange === "" && key ? `q ${key}` : `e ${exchange}`;
    return { from: `q ${one.name}`, to, kind: "dead-letter", label: key ?? "" };
  });
  return [...bound, ...alternates, ...letters];
}

// The edges near what the filter names, and the nodes at their ends.
function near(edges, filter) {
  const wanted = filter.toLowerCase();
  let chosen = edges;
  if (wanted) {
    const hit = new Set(edges.flatMap((edge) => [edge.from, edge.to]).filter((key) => key.slice(2).toLowerCase().includes(wanted)));
    // And one step further, so that it is seen where a dead letter goes.
    const close = new Set(edges.filter((edge) => hit.has(edge.from) || hit.has(edge.to)).flatMap((edge) => [edge.from, edge.to]));
    chosen = edges.filter((edge) => close.has(edge.from) && close.has(edge.to));
  }
  const nodes = new Set();
  const shown = [];
  for (const edge of chosen) {
    const more = [edge.from, edge.to].filter((key) => !nodes.has(key));
    if (nodes.size + more.length > NODES_MAX || shown.length === EDGES_MAX) continue;
    more.forEach((key) => nodes.add(key));
    shown.push(edge);
  }
  return { nodes: [...nodes], edges: shown, all: chosen, isCut: shown.length < chosen.length };
}

// The column of each node: one more than what leads to it, as far as nothing leads in a circle.
function columns(nodes, edges) {
  const depth = new Map(nodes.map((key) => [key, 0]));
  for (let round = 0; round < Math.min(nodes.length, 8); round += 1) {
    for (const edge of edges) {
      if (edge.from === edge.to) continue;
      const next = Math.min(depth.get(edge.from) + 1, 7);
      // A dead letter goes back to what has been placed already.
      if (edge.kind === "dead-letter" && depth.get(edge.to) > 0) continue;
      if (depth.get(edge.to) < next) depth.set(edge.to, next);
    }
  }
  return depth;
}

const cut = (text) => ([...text].length > LETTERS_MAX ? `${[...text].slice(0, LETTERS_MAX - 1).join("")}…` : text);

function place(nodes, edges) {
  const depth = columns(nodes, edges);
  // Without empty columns.
  const used = [...new Set(depth.values())].sort((a, b) => a - b);
  const filled = used.map(() => 0);
  const places = new Map();
  for (const key of nodes) {
    const column = used.indexOf(depth.get(key));
    places.set(key, { x: 10 + column * COLUMN, y: 10 + filled[column] * ROW });
    filled[column] += 1;
  }
  return { places, width: used.length * COLUMN - COLUMN + BOX.width + 20, height: Math.max(...filled, 1) * ROW + 24 };
}

function curve(from, to) {
  const [y1, y2] = [from.y + BOX.height / 2, to.y + BOX.height / 2];
  if (to.x > from.x) {
    const [x1, x2] = [from.x + BOX.width, to.x - 4];
    const bend = (x2 - x1) / 2;
    return `M${x1} ${y1} C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`;
  }
  if (to.x < from.x) {
    // Back: below the boxes.
    const middle = BOX.width / 2;
    const [b1, b2] = [from.y + BOX.height, to.y + BOX.height + 4];
    const below = Math.max(b1, b2) + 18;
    return `M${from.x + middle} ${b1} C${from.x + middle} ${below} ${to.x + middle} ${below} ${to.x + middle} ${b2}`;
  }
  // Within a column: around the right side.
  const [x1, x2] = [from.x + BOX.width, to.x + BOX.width + 4];
  const out = Math.max(x1, x2) + 50;
  return `M${x1} ${y1} C${out} ${y1} ${out} ${y2} ${x2} ${y2}`;
}

const href = (vhost, key) => (key.startsWith("q ") ? queueHref : exchangeHref)(vhost, key.slice(2));
const nameOf = (key) => (key.startsWith("q ") ? key.slice(2) : exchangeName(key.slice(2)));

function draw(vhost, { nodes, edges }) {
  const { places, width, height } = place(nodes, edges);
  const arrow = (kind) => svg("marker", { id: `arrow-${kind}`, class: kind, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" },
    svg("path", { d: "M0 0L8 4L0 8z" }));
  const lines = edges.map((edge) => svg("path", { class: `edge ${edge.kind}`, d: curve(places.get(edge.from), places.get(edge.to)), "marker-end": `url(#arrow-${edge.kind})` },
    svg("title", null, `${nameOf(edge.from)} to ${nameOf(edge.to)}: ${edge.kind} ${edge.label}`)));
  const boxes = nodes.map((key) => {
    const { x, y } = places.get(key);
    const kind = key.startsWith("q ") ? "queue" : "exchange";
    return svg("a", { class: `box ${kind}`, href: href(vhost, key), tabindex: "-1" },
      svg("title", null, `${kind} ${nameOf(key)}`),
      svg("rect", { x, y, width: BOX.width, height: BOX.height, rx: kind === "queue" ? 3 : 15 }),
      svg("text", { x: x + BOX.width / 2, y: y + 19, "text-anchor": "middle" }, cut(nameOf(key))));
  });
  // What it shows is told by the list.
  return svg("svg", { class: "topology", viewBox: `0 0 ${width + 60} ${height}`, width: width + 60, height, "aria-hidden": "true" },
    svg("defs", null, ["binding", "alternate", "dead-letter"].map(arrow)), lines, boxes);
}

export async function open(context) {
  const vhosts = await context.vhosts();
  if (vhosts.length === 0) throw new Error("You have no permissions in any virtual host.");
  const state = { vhost: vhosts.includes("/") ? "/" : vhosts[0], name: "", ...context.parameters };
  const picture = h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Picture of the topology" });
  const told = h("p", { class: "muted", role: "status" });
  const table = new Table({
    caption: "What leads where",
    key: (edge) => `${edge.kind} ${edge.from} ${edge.to} ${edge.label}`,
    empty: "Nothing leads anywhere. Every queue is bound to the default exchange by its name.",
    columns: [
      { title: "From", head: true, text: (edge) => `${edge.from.startsWith("q ") ? "queue" : "exchange"} ${nameOf(edge.from)}`, href: (edge) => href(state.vhost, edge.from) },
      { title: "How", text: (edge) => ({ binding: "binding", alternate: "alternate exchange", "dead-letter": "dead letters" })[edge.kind] },
      { title: "Key", text: (edge) => edge.label },
      { title: "To", text: (edge) => `${edge.to.startsWith("q ") ? "queue" : "exchange"} ${nameOf(edge.to)}`, href: (edge) => href(state.vhost, edge.to) },
    ],
  });
  let edges = [];
  let drawn = "";
  const show = () => {
    const found = near(edges, state.name);
    const signature = JSON.stringify([state.vhost, found.nodes, found.edges]);
    // Drawn again only when it has changed, so that it can be scrolled.
    if (signature !== drawn) replace(picture, found.nodes.length ? draw(state.vhost, found) : null);
    drawn = signature;
    table.update(found.all.slice(0, ROWS_MAX));
    const cutTo = found.isCut ? ` The picture is cut to ${NODES_MAX} boxes: filter by name to see others.` : "";
    const rows = found.all.length > ROWS_MAX ? ` The list shows the first ${ROWS_MAX}.` : "";
    told.textContent = `${count(found.all.length)} ways.${cutTo}${rows}`;
  };
  const load = async () => {
    const columns = { columns: "name,arguments,effective_policy_definition", disable_stats: "true" };
    const [exchanges, queues, bindings] = await Promise.all([
      get(path("exchanges", state.vhost), columns, context.signal),
      get(path("queues", state.vhost), columns, context.signal),
      see(path("bindings", state.vhost), { columns: "source,destination,destination_type,routing_key" }, context.signal),
    ]);
    edges = edgesOf(exchanges, queues, bindings ?? []);
    show();
  };
  const vhost = h("select", { id: "topology-vhost", on: { change: () => {
    state.vhost = vhost.value;
    context.remember(state);
    context.refresh();
  } } }, vhosts.map((name) => h("option", { value: name, selected: name === state.vhost }, name)));
  const filter = h("input", { type: "search", id: "topology-name", autocomplete: "off", spellcheck: "false", on: { input: () => {
    state.name = filter.value;
    context.remember(state);
    show();
  } } });
  filter.value = state.name;
  // All bindings of a virtual host are read at once, so not too often.
  await context.poll(load, 15_000);
  return [
    heading("Bindings", button("Add a binding", () => bind(context, { vhost: state.vhost }), { class: "main" })),
    h("form", { class: "controls", role: "search", on: { submit: (event) => event.preventDefault() } },
      h("label", { for: "topology-vhost" }, "Virtual host"), vhost, h("label", { for: "topology-name" }, "Filter by name"), filter),
    told,
    section("Picture", h("ul", { class: "legend" },
      h("li", { class: "binding" }, "— binding"), h("li", { class: "alternate" }, "- - alternate exchange"), h("li", { class: "dead-letter" }, "··· dead letters")), picture),
    section("List", table.element),
    h("p", null, link("#/exchanges", "Exchanges"), " and ", link("#/queues", "queues"), " show and remove single bindings."),
  ];
}
