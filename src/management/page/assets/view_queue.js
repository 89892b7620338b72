// One queue: its counts, where each of its settings comes from, who consumes from it, what leads to it, its messages.

import { h, heading, section, facts, button, link, replace } from "./dom.js";
import { ApiError, find, get, path, request, see } from "./api.js";
import { bytes, count, duration, exchangeName, rate, value, yes, UNKNOWN } from "./format.js";
import { knowsRates, note, rateOf, timeToDrain } from "./history.js";
import { Chart } from "./chart.js";
import { ask, objectOf } from "./form.js";
import { Table } from "./list.js";
import { stateOf } from "./view_queues.js";
import { Browser, getMessages, publishDialog } from "./view_messages.js";
import { startTask } from "./view_tasks.js";

const RATES = [["publish", "Published"], ["deliver_get", "Delivered"], ["ack", "Acknowledged"], ["redeliver", "Redelivered"]];
const SOURCES = { argument: "argument", policy: "policy", operator_policy: "operator policy", default: "default" };

// Where settings come from, as far as it is known without the server's word: arguments, and both policies together.
function roughSettings(queue) {
  const policies = [queue.policy, queue.operator_policy].filter(Boolean).join(" and ");
  const ofPolicies = Object.entries(queue.effective_policy_definition ?? {})
    .map(([setting, given]) => ({ setting, value: given, source: "policy", name: policies }));
  const ofArguments = Object.entries(queue.arguments ?? {})
    .map(([setting, given]) => ({ setting, value: given, source: "argument", name: setting }));
  return [...ofArguments, ...ofPolicies];
}

function settingsTable() {
  return new Table({
    caption: "Effective settings",
    key: (one) => `${one.setting} ${one.source}`,
    empty: "No settings but the defaults.",
    columns: [
      { title: "Setting", head: true, text: (one) => one.setting },
      { title: "Value", text: (one) => (one.value === null ? "not set" : value(one.value)) },
      { title: "From", text: (one) => `${SOURCES[one.source] ?? one.source}${one.name && one.name !== one.setting ? ` ${one.name}` : ""}` },
    ],
  });
}

function consumerTable() {
  return new Table({
    caption: "Consumers",
    key: (one) => `${one.channel_details?.name} ${one.consumer_tag}`,
    empty: "No consumer.",
    columns: [
      { title: "Consumer tag", head: true, text: (one) => one.consumer_tag },
      { title: "Channel", text: (one) => one.channel_details?.name ?? UNKNOWN,
        href: (one) => (one.channel_details?.connection_name ? `#/connection/${encodeURIComponent(one.channel_details.connection_name)}` : "") },
      { title: "Node", text: (one) => one.channel_details?.node ?? "" },
      { title: "Acknowledges", text: (one) => yes(one.ack_required) },
      { title: "Exclusive", text: (one) => yes(one.exclusive) },
      { title: "Prefetch", num: true, text: (one) => count(one.prefetch_count) },
      { title: "Status", text: (one) => one.activity_status, state: (one) => (one.active ? "good" : "") },
      { title: "Arguments", text: (one) => (Object.keys(one.arguments ?? {}).length ? value(one.arguments) : "") },
    ],
  });
}

export function bindingTable(context, { caption, ends }) {
  const destination = (one) => `#/${one.destination_type}/${encodeURIComponent(one.vhost)}/${encodeURIComponent(one.destination)}`;
  const source = (one) => `#/exchange/${encodeURIComponent(one.vhost)}/${encodeURIComponent(one.source || "amq.default")}`;
  const remove = (one) => {
    const kind = one.destination_type === "queue" ? "q" : "e";
    ask({
      title: "Remove a binding",
      intro: `From ${exchangeName(one.source)} to ${one.destination} with the key "${one.routing_key}".`,
      submit: "Remove",
      danger: true,
      action: async () => {
        await request("DELETE", path("bindings", one.vhost, "e", one.source, kind, one.destination, one.properties_key));
        await context.refresh();
        return "Binding removed.";
      },
    });
  };
  return new Table({
    caption,
    key: (one) => `${one.source} ${one.destination_type} ${one.destination} ${one.properties_key}`,
    empty: "No binding.",
    columns: [
      ends !== "to" ? { title: "From", head: true, text: (one) => exchangeName(one.source), href: source } : null,
      ends !== "from" ? { title: "To", head: true, text: (one) => `${one.destination_type} ${one.destination}`, href: destination } : null,
      { title: "Routing key", text: (one) => one.routing_key },
      { title: "Arguments", text: (one) => (Object.keys(one.arguments ?? {}).length ? value(one.arguments) : "") },
      { title: "Remove", text: (one) => (one.source === "" ? "implicit" : "Remove"), make: (one) => (one.source === "" ? null
        : button("Remove", () => remove(one), { "aria-label": `Remove the binding of ${one.source} with the key ${one.routing_key}` })) },
    ],
  });
}

// Binds a queue or an exchange.
export function bind(context, { vhost, kind, destination, source }) {
  ask({
    title: "Add a binding",
    submit: "Bind",
    specs: [
      source === undefined ? { name: "source", label: "From exchange", required: true } : null,
      destination === undefined ? { name: "kind", label: "To", options: [["q", "queue"], ["e", "exchange"]] } : null,
      destination === undefined ? { name: "destination", label: "Name of the destination", required: true } : null,
      { name: "key", label: "Routing key" },
      { name: "arguments", label: "Arguments", type: "text", rows: 3, hint: "A JSON object, or nothing." },
    ],
    action: async (given) => {
      const at = path("bindings", vhost, "e", source ?? given.source, kind ?? given.kind, destination ?? given.destination);
      await request("POST", at, { body: { routing_key: given.key, arguments: objectOf(given.arguments, "Arguments") } });
      await context.refresh();
      return "Bound.";
    },
  });
}

function actions(context, vhost, name, hasTasks) {
  const at = path("queues", vhost, name);
  const confirmed = (title, intro, submit, work) => () => ask({ title, intro, submit, danger: true, action: work });
  const purge = confirmed("Purge the queue", `All ready messages of ${name} are removed for good.`, "Purge", async () => {
    await request("DELETE", `${at}/contents`);
    await context.refresh();
    return "Queue purged.";
  });
  const remove = () => ask({
    title: "Delete the queue",
    intro: `${name} is deleted with all its messages.`,
    submit: "Delete",
    danger: true,
    specs: [
      { name: "unused", label: "Only if it has no consumers", type: "check" },
      { name: "empty", label: "Only if it is empty", type: "check" },
    ],
    action: async (given) => {
      const parameters = { "if-unused": given.unused ? "true" : "", "if-empty": given.empty ? "true" : "" };
      await request("DELETE", at, { parameters });
      location.hash = "#/queues";
      return "Queue deleted.";
    },
  });
  const task = (kind) => () => startTask(context, { kind, vhost, queue: name });
  return h("div", { class: "buttons" },
    button("Publish", () => publishDialog(context, { vhost, exchange: "", key: name })),
    button("Get messages", () => getMessages(context, vhost, name)),
    hasTasks ? button("Redrive", task("redrive")) : null,
    hasTasks ? button("Move", task("move")) : null,
    hasTasks ? button("Delete messages", task("delete"), { class: "danger" }) : null,
    button("Purge", purge, { class: "danger" }),
    button("Delete the queue", remove, { class: "danger" }));
}

export async function open(context) {
  const [vhost, name] = context.segments;
  const at = path("queues", vhost, name);
  if ((await find(at, { columns: "name" }, context.signal)) === null) {
    throw new ApiError(404, `there is no queue ${name} in virtual host ${vhost}`, true);
  }
  const quorate = `quorate/${at}`;
  const [settings, messages] = await Promise.all([
    see(`${quorate}/settings`, null, context.signal),
    see(`${quorate}/messages`, { count: 1 }, context.signal),
  ]);
  const summary = h("div");
  const settingsList = settingsTable();
  const consumers = consumerTable();
  const bindings = bindingTable(context, { caption: "Bindings to this queue", ends: "from" });
  const lengths = new Chart("Messages", count);
  const passing = new Chart("Messages a second", rate);
  const series = `queue ${vhost} ${name}`;
  let drawn = [[], []];
  const draw = () => {
    lengths.update(drawn[0]);
    passing.update(drawn[1]);
  };

  await context.poll(async () => {
    const [queue, bound, effective] = await Promise.all([
      get(at, null, context.signal),
      get(`${at}/bindings`, null, context.signal),
      settings === null ? null : get(`${quorate}/settings`, null, context.signal),
    ]);
    replace(summary, facts([
      ["State", h("span", { class: "state", "data-state": stateOf(queue.state) }, queue.state)],
      ["Ready", count(queue.messages_ready)],
      ["Unacknowledged", count(queue.messages_unacknowledged)],
      ["Waiting for a retry", queue.messages_delayed ? count(queue.messages_delayed) : null],
      ["Dead letters waiting", count(queue.messages_dlx)],
      ["Bodies", bytes(queue.message_bytes)],
      ["Oldest message", queue.oldest_message_age_seconds == null ? null : duration(queue.oldest_message_age_seconds)],
      ["Empty in", queue.messages ? duration(timeToDrain(queue, series)) : null],
      ["Consumers", count(queue.consumers)],
      ["Type", queue.type],
      ["Durable", yes(queue.durable)],
      ["Auto-delete", queue.auto_delete ? "yes" : null],
      ["Exclusive", queue.exclusive ? "yes" : null],
      ["Leader", queue.leader],
      ["Replicas", (queue.members ?? []).map((node) => `${node}${queue.online?.includes(node) ? "" : " (away)"}`).join(", ")],
      ["Policy", queue.policy],
      ["Operator policy", queue.operator_policy],
      ["Declared arguments", Object.keys(queue.arguments ?? {}).length ? value(queue.arguments) : null],
    ]));
    settingsList.update(effective ?? roughSettings(queue));
    consumers.update(queue.consumer_details ?? []);
    bindings.update(bound);
    passing.element.hidden = !knowsRates(queue.message_stats);
    drawn = [
      [["messages_ready", "Ready"], ["messages_unacknowledged", "Unacknowledged"]]
        .map(([field, title]) => ({ name: title, points: note(`${series} ${field}`, queue[field]) })),
      RATES.map(([kind, title]) => ({ name: title, points: note(`${series} rate ${kind}`, rateOf(queue.message_stats, kind, series)) })),
    ];
    draw();
  });
  document.addEventListener("view-shown", draw, { once: true, signal: context.signal });
  window.addEventListener("resize", draw, { signal: context.signal });

  return [
    heading(`Queue ${name}`, h("span", { class: "muted" }, `virtual host ${vhost}`)),
    h("p", null, link("#/queues", "All queues")),
    actions(context, vhost, name, context.may.tasks),
    section("Now", summary, h("div", { class: "charts" }, lengths.element, passing.element)),
    section("Effective settings", settingsList.element),
    section("Consumers", consumers.element),
    section("Bindings", bindings.element, h("p", null, button("Add a binding", () => bind(context, { vhost, kind: "q", destination: name })))),
    messages === null ? null : section("Messages", new Browser(context, vhost, name).element),
  ];
}
