// Exchanges, and what one of them leads to.

import { h, heading, section, facts, button, link, replace } from "./dom.js";
import { ApiError, find, get, path, request } from "./api.js";
import { exchangeName, rate, value, yes } from "./format.js";
import { rateOf } from "./history.js";
import { ask, objectOf } from "./form.js";
import { PagedList } from "./list.js";
import { bind, bindingTable } from "./view_queue.js";
import { publishDialog } from "./view_messages.js";

const TYPES = ["direct", "fanout", "topic", "headers", "x-consistent-hash", "x-modulus-hash", "x-random", "x-local-random", "x-delayed-message"];
// The default exchange in a path.
const DEFAULT = "amq.default";

export const exchangeHref = (vhost, name) => `#/exchange/${encodeURIComponent(vhost)}/${encodeURIComponent(name || DEFAULT)}`;

function declareExchange(context, vhosts) {
  ask({
    title: "Add an exchange",
    submit: "Add",
    specs: [
      { name: "vhost", label: "Virtual host", options: vhosts },
      { name: "name", label: "Name", required: true },
      { name: "type", label: "Type", options: TYPES },
      { name: "durable", label: "Durable", type: "check", value: true },
      { name: "auto_delete", label: "Deleted when its last binding goes", type: "check" },
      { name: "internal", label: "Internal: clients may not publish to it", type: "check" },
      { name: "arguments", label: "Arguments", type: "text", rows: 3, placeholder: "{\"alternate-exchange\": \"other\"}", hint: "A JSON object, or nothing." },
    ],
    action: async ({ vhost, name, arguments: text, ...rest }) => {
      await request("PUT", path("exchanges", vhost, name), { body: { ...rest, arguments: objectOf(text, "Arguments") } });
      await context.refresh();
      return `Exchange ${name} added.`;
    },
  });
}

export async function open(context) {
  const vhosts = await context.vhosts();
  const name = (one) => `${one.vhost} ${one.name}`;
  const list = new PagedList(context, {
    caption: "Exchanges",
    at: (vhost) => (vhost ? path("exchanges", vhost) : "exchanges"),
    key: name,
    vhosts,
    columns: [
      { title: "Name", head: true, sort: "name", text: (one) => exchangeName(one.name), href: (one) => exchangeHref(one.vhost, one.name) },
      vhosts.length > 1 ? { title: "Virtual host", sort: "vhost", text: (one) => one.vhost } : null,
      { title: "Type", sort: "type", text: (one) => one.type },
      { title: "Durable", sort: "durable", text: (one) => yes(one.durable) },
      { title: "Auto-delete", sort: "auto_delete", text: (one) => yes(one.auto_delete) },
      { title: "Internal", sort: "internal", text: (one) => yes(one.internal) },
      { title: "Policy", sort: "policy", text: (one) => one.policy ?? "" },
      { title: "In", num: true, optional: true, text: (one) => rate(rateOf(one.message_stats, "publish_in", `exchange ${name(one)}`)), help: "Messages published to it a second" },
      { title: "Out", num: true, optional: true, text: (one) => rate(rateOf(one.message_stats, "publish_out", `exchange ${name(one)}`)), help: "Messages routed to queues a second" },
      { title: "Arguments", text: (one) => (Object.keys(one.arguments ?? {}).length ? value(one.arguments) : "") },
    ],
  });
  await context.poll(() => list.load());
  return [heading("Exchanges", button("Add an exchange", () => declareExchange(context, vhosts), { class: "main" })), list.element];
}

export async function openOne(context) {
  const [vhost, named] = context.segments;
  const name = named === DEFAULT ? "" : named;
  const at = path("exchanges", vhost, named);
  if ((await find(at, { columns: "name" }, context.signal)) === null) {
    throw new ApiError(404, `there is no exchange ${named} in virtual host ${vhost}`, true);
  }
  const summary = h("div");
  const from = bindingTable(context, { caption: "Bindings from this exchange", ends: "to" });
  const to = bindingTable(context, { caption: "Bindings to this exchange", ends: "from" });
  const remove = () => ask({
    title: "Delete the exchange",
    intro: `${name} is deleted with all its bindings.`,
    submit: "Delete",
    danger: true,
    specs: [{ name: "unused", label: "Only if it has no bindings", type: "check" }],
    action: async (given) => {
      await request("DELETE", at, { parameters: { "if-unused": given.unused ? "true" : "" } });
      location.hash = "#/exchanges";
      return "Exchange deleted.";
    },
  });
  await context.poll(async () => {
    const [exchange, outgoing, incoming] = await Promise.all([
      get(at, null, context.signal),
      // Every queue is bound to the default exchange.
      name === "" ? [] : get(`${at}/bindings/source`, null, context.signal),
      name === "" ? [] : get(`${at}/bindings/destination`, null, context.signal),
    ]);
    replace(summary, facts([
      ["Type", exchange.type],
      ["Durable", yes(exchange.durable)],
      ["Auto-delete", yes(exchange.auto_delete)],
      ["Internal", yes(exchange.internal)],
      ["Policy", exchange.policy],
      ["Policy's definition", exchange.effective_policy_definition ? value(exchange.effective_policy_definition) : null],
      ["Arguments", Object.keys(exchange.arguments ?? {}).length ? value(exchange.arguments) : null],
    ]));
    from.update(outgoing);
    to.update(incoming);
  });
  const isOwn = name === "" || name.startsWith("amq.");
  return [
    heading(`Exchange ${exchangeName(name)}`, h("span", { class: "muted" }, `virtual host ${vhost}`)),
    h("p", null, link("#/exchanges", "All exchanges")),
    h("div", { class: "buttons" },
      button("Publish", () => publishDialog(context, { vhost, exchange: name })),
      isOwn ? null : button("Delete the exchange", remove, { class: "danger" })),
    section("Exchange", summary),
    name === "" ? h("p", null, "Every queue is bound to the default exchange by its name.") : [
      section("Leads to", from.element, h("p", null, button("Add a binding", () => bind(context, { vhost, source: name })))),
      section("Is led to by", to.element),
    ],
  ];
}
