// Connections of clients, and their channels.

import { h, heading, section, facts, button, link, replace } from "./dom.js";
import { ApiError, find, get, path, request } from "./api.js";
import { bytes, count, date, rate, value, yes } from "./format.js";
import { growth, note } from "./history.js";
import { ask } from "./form.js";
import { PagedList, Table } from "./list.js";

const href = (name) => `#/connection/${encodeURIComponent(name)}`;
const stateOf = (state) => (state === "running" ? "good" : state === "blocked" || state === "flow" ? "warn" : "");

// Bytes a second: the server's, else those of its counter.
function flow(one, field) {
  const known = one[`${field}_details`]?.rate;
  const grown = known ?? growth(note(`connection ${one.name} ${field}`, one[field]));
  return grown === undefined ? "–" : `${bytes(Math.max(0, grown))}/s`;
}

export async function open(context) {
  const list = new PagedList(context, {
    caption: "Connections",
    at: () => "connections",
    key: (one) => one.name,
    empty: "No client is connected.",
    columns: [
      { title: "Name", head: true, sort: "name", text: (one) => one.name, href: (one) => href(one.name) },
      { title: "Called", text: (one) => one.client_properties?.connection_name ?? "" },
      { title: "Virtual host", sort: "vhost", text: (one) => one.vhost },
      { title: "User", sort: "user", text: (one) => one.user },
      { title: "State", sort: "state", text: (one) => one.state, state: (one) => stateOf(one.state) },
      { title: "TLS", sort: "ssl", text: (one) => yes(one.ssl) },
      { title: "Channels", num: true, sort: "channels", text: (one) => count(one.channels) },
      { title: "From client", num: true, sort: "recv_oct", text: (one) => flow(one, "recv_oct") },
      { title: "To client", num: true, sort: "send_oct", text: (one) => flow(one, "send_oct") },
      { title: "Since, UTC", sort: "connected_at", text: (one) => date(one.connected_at) },
      { title: "Node", sort: "node", text: (one) => one.node },
    ],
  });
  await context.poll(() => list.load());
  return [heading("Connections"), list.element];
}

const channelColumns = (of) => [
  { title: "Channel", head: true, sort: "name", text: (one) => one.name, href: of ? (one) => href(one.connection_details?.name ?? "") : undefined },
  { title: "User", sort: "user", text: (one) => one.user },
  { title: "Virtual host", sort: "vhost", text: (one) => one.vhost },
  { title: "Mode", text: (one) => (one.confirm ? "confirms" : one.transactional ? "transactions" : "") },
  { title: "Consumers", num: true, sort: "consumer_count", text: (one) => count(one.consumer_count) },
  { title: "Prefetch", num: true, sort: "prefetch_count", text: (one) => count(one.prefetch_count) },
  { title: "Unacked", num: true, sort: "messages_unacknowledged", text: (one) => count(one.messages_unacknowledged) },
  { title: "Unconfirmed", num: true, sort: "messages_unconfirmed", text: (one) => count(one.messages_unconfirmed) },
  { title: "Publish", num: true, optional: true, text: (one) => rate(one.message_stats?.publish_details?.rate) },
  { title: "Deliver", num: true, optional: true, text: (one) => rate(one.message_stats?.deliver_get_details?.rate) },
  { title: "Node", sort: "node", text: (one) => one.node },
];

export async function openChannels(context) {
  const list = new PagedList(context, {
    caption: "Channels", at: () => "channels", key: (one) => one.name, columns: channelColumns(true), empty: "No channel is open.",
  });
  await context.poll(() => list.load());
  return [heading("Channels"), list.element];
}

export async function openOne(context) {
  const [name] = context.segments;
  const at = path("connections", name);
  if ((await find(at, { columns: "name" }, context.signal)) === null) throw new ApiError(404, `there is no connection ${name}`, true);
  const summary = h("div");
  const properties = new Table({
    caption: "Client properties",
    key: ([property]) => property,
    columns: [
      { title: "Property", head: true, text: ([property]) => property },
      { title: "Value", text: ([, given]) => value(given) },
    ],
  });
  const channels = new Table({ caption: "Channels", key: (one) => one.name, columns: channelColumns(false), empty: "No channel." });
  const close = () => ask({
    title: "Close the connection",
    intro: `${name} is closed. Clients mostly connect again by themselves.`,
    submit: "Close the connection",
    danger: true,
    specs: [{ name: "reason", label: "Why, for the client", value: "closed by an operator" }],
    action: async (given) => {
      await request("DELETE", at, { reason: given.reason });
      location.hash = "#/connections";
      return "Connection closed.";
    },
  });
  await context.poll(async () => {
    const [one, of] = await Promise.all([get(at, null, context.signal), get(`${at}/channels`, null, context.signal)]);
    replace(summary, facts([
      ["State", h("span", { class: "state", "data-state": stateOf(one.state) }, one.state)],
      ["User", one.user], ["Virtual host", one.vhost], ["Node", one.node], ["Protocol", one.protocol],
      ["Login", one.auth_mechanism], ["TLS", one.ssl ? `${one.ssl_protocol} ${one.ssl_cipher}` : "no"],
      ["Certificate", one.peer_cert_subject], ["Since, UTC", date(one.connected_at)],
      ["Heartbeat", `${one.timeout} s`], ["Largest frame", bytes(one.frame_max)], ["Channels, at most", count(one.channel_max)],
      ["From client", `${bytes(one.recv_oct)}, ${flow(one, "recv_oct")}`], ["To client", `${bytes(one.send_oct)}, ${flow(one, "send_oct")}`],
      ["Waits to be sent", bytes(one.send_pend)],
    ]));
    properties.update(Object.entries(one.client_properties ?? {}));
    channels.update(of);
  });
  return [
    heading(`Connection ${name}`),
    h("p", null, link("#/connections", "All connections")),
    h("div", { class: "buttons" }, button("Close the connection", close, { class: "danger" })),
    section("Connection", summary),
    section("Channels", channels.element),
    section("Client properties", properties.element),
  ];
}
