// Messages: published, got, and looked at without being got.

import { h, button, code, facts, replace } from "./dom.js";
import { get, path, request } from "./api.js";
import { bytes, count, duration, exchangeName, value } from "./format.js";
import { ask, fields, objectOf, show, values } from "./form.js";
import { Table } from "./list.js";

const PREVIEW = 120;

export function publishDialog(context, { vhost, exchange, key }) {
  ask({
    title: `Publish to ${exchangeName(exchange)}`,
    intro: "The answer comes when the message is safe on a majority of the replicas.",
    submit: "Publish",
    specs: [
      { name: "key", label: "Routing key", value: key ?? "" },
      { name: "persistent", label: "Persistent", type: "check", value: true },
      { name: "headers", label: "Headers", type: "text", rows: 2, placeholder: "{\"tenant\": \"a\"}", hint: "A JSON object, or nothing." },
      { name: "properties", label: "Other properties", type: "text", rows: 2, placeholder: "{\"content_type\": \"text/plain\"}", hint: "A JSON object, or nothing." },
      { name: "payload", label: "Payload", type: "text" },
      { name: "encoding", label: "The payload is given as", options: [["string", "text"], ["base64", "base64"]] },
    ],
    action: async (given) => {
      const properties = objectOf(given.properties, "Other properties");
      const headers = objectOf(given.headers, "Headers");
      if (Object.keys(headers).length) properties.headers = headers;
      if (given.persistent) properties.delivery_mode ??= 2;
      const body = { routing_key: given.key, properties, payload: given.payload, payload_encoding: given.encoding };
      const done = await request("POST", path("exchanges", vhost, exchange || "amq.default", "publish"), { body });
      if (!done.routed) throw new Error("The message was published, and no queue took it.");
      await context.refresh();
      return "Message published.";
    },
  });
}

function messageFacts(message) {
  return facts([
    ["Position", message.position],
    ["State", message.state?.replace("_", " ")],
    ["Exchange", exchangeName(message.exchange)],
    ["Routing key", message.routing_key],
    ["Redelivered", message.redelivered ? "yes" : null],
    ["Delivery count", message.delivery_count],
    ["Age", message.age_ms === undefined ? null : duration(message.age_ms / 1000)],
    ["Waits for", message.dead_letter?.waits_for],
    ["Targets", message.dead_letter?.targets.map((one) => `${one.queue ?? "a queue that is gone"}${one.full ? " (full)" : ""}`).join(", ")],
    ["Size", bytes(message.payload_bytes)],
    ["Encoding", message.payload_encoding],
  ]);
}

function deathsOf(deaths) {
  if (!deaths?.length) return null;
  return [h("h3", null, "Deaths, the latest first"), h("ol", null, deaths.map((death) => h("li", null, value(death))))];
}

function whole(message) {
  return [
    messageFacts(message),
    deathsOf(message.deaths),
    Object.keys(message.properties ?? {}).length ? [h("h3", null, "Properties"), code(message.properties)] : null,
    h("h3", null, "Payload"), code(message.payload ?? ""),
  ];
}

// Gets messages as a client would.
export function getMessages(context, vhost, name) {
  ask({
    title: `Get messages of ${name}`,
    submit: "Get",
    specs: [
      { name: "count", label: "How many", type: "number", value: "1", min: 1, max: 1000, required: true },
      { name: "mode", label: "Then", options: [["ack_requeue_true", "put them back, as redelivered"], ["ack_requeue_false", "remove them"],
        ["reject_requeue_true", "reject them and put them back"], ["reject_requeue_false", "reject them: drop or dead-letter"]] },
      { name: "encoding", label: "Payload", options: [["auto", "as text where it is text"], ["base64", "in base64"]] },
      { name: "truncate", label: "Bytes of each payload, at most", type: "number", value: "50000", min: 0 },
    ],
    action: async (given) => {
      const body = { count: Number(given.count), ackmode: given.mode, encoding: given.encoding, truncate: Number(given.truncate) };
      const got = await request("POST", `${path("queues", vhost, name)}/get`, { body });
      await context.refresh();
      // When the dialog before has closed.
      setTimeout(() => show(got.length ? `${count(got.length)} messages got` : "The queue is empty",
        got.map((message, at) => h("article", { class: "message" }, h("h3", null, `Message ${at + 1}`), whole(message)))));
      return `${got.length} messages got.`;
    },
  });
}

export const FILTERS = [
  { name: "routing_key", label: "Routing key" },
  { name: "header", label: "Header", placeholder: "name=value" },
  { name: "reason", label: "Died of", options: [["", "anything"], "rejected", "expired", "maxlen", "delivery_limit"] },
  { name: "death_queue", label: "Died in queue" },
  { name: "min_age", label: "At least this old", placeholder: "90s, 15m, 2h, 1d" },
];

// Looks at messages without counting or marking them, page by page.
export class Browser {
  constructor(context, vhost, name) {
    this.context = context;
    this.at = `quorate/${path("queues", vhost, name)}/messages`;
    this.next = null;
    this.more = button("Next messages", () => this.load(this.next));
    this.more.disabled = true;
    this.error = h("p", { class: "error", role: "alert" });
    this.told = h("span", { class: "muted", role: "status" });
    this.form = h("form", { class: "controls", on: { submit: (event) => {
      event.preventDefault();
      this.load(null);
    } } }, fields(FILTERS), h("p", { class: "field" }, h("button", { type: "submit" }, "Browse")));
    this.table = new Table({
      caption: "Messages",
      key: (message) => message.position,
      empty: "No such message.",
      columns: [
        { title: "Position", head: true, text: (message) => message.position },
        { title: "State", text: (message) => message.state?.replace("_", " ") },
        { title: "Routing key", text: (message) => message.routing_key },
        { title: "Age", num: true, text: (message) => (message.age_ms === undefined ? "" : duration(message.age_ms / 1000)) },
        { title: "Died", text: (message) => (message.deaths?.[0] ? `${message.deaths[0].reason} in ${message.deaths[0].queue}` : "") },
        { title: "Size", num: true, text: (message) => bytes(message.payload_bytes) },
        { title: "Payload", text: (message) => (message.payload ?? "").slice(0, PREVIEW) },
        { title: "More", text: () => "Show", make: (message) => h("div", { class: "buttons" },
          button("Show", () => show(`Message ${message.position}`, whole(message)), { "aria-label": `Show message ${message.position}` }),
          button("Explain", () => this.explain(message.position), { "aria-label": `Explain message ${message.position}` })) },
      ],
    });
    this.element = h("div", null, h("p", { class: "muted" }, "Looking at messages changes nothing: they are not delivered, counted or marked."),
      this.form, this.error, this.table.element, h("p", { class: "pager" }, this.more, this.told));
  }

  async load(from) {
    const given = values(this.form);
    try {
      const found = await get(this.at, { ...given, from, count: 50, truncate: 4096 }, this.context.signal);
      this.error.textContent = "";
      this.table.update(found.messages);
      this.next = found.next;
      this.more.disabled = found.next === null || found.next === undefined;
      const parts = [`${count(found.messages.length)} messages`];
      if (found.looked_at > found.messages.length) parts.push(`of ${count(found.looked_at)} that were looked at`);
      if (found.unreadable) parts.push(`${count(found.unreadable)} could not be read`);
      if (found.stale) parts.push("as of a replica that does not hear its leader");
      parts.push(this.more.disabled ? "these are the last ones" : "there may be more");
      this.told.textContent = parts.join(", ");
    } catch (error) {
      if (error.name !== "AbortError") this.error.textContent = error.message;
    }
  }

  async explain(position) {
    try {
      const found = await get(`${this.at}/${encodeURIComponent(position)}/explain`, null, this.context.signal);
      const text = h("div");
      replace(text, code(found.text));
      show(`Message ${position} explained`, text);
    } catch (error) {
      if (error.name !== "AbortError") this.error.textContent = error.message;
    }
  }
}
