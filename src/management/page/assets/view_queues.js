// All queues: paged, sorted and filtered by the server.

import { heading, button, link } from "./dom.js";
import { path, request } from "./api.js";
import { count, duration, rate, UNKNOWN } from "./format.js";
import { rateOf, timeToDrain } from "./history.js";
import { ask, objectOf } from "./form.js";
import { PagedList } from "./list.js";

const FETCHED = ["name", "vhost", "type", "durable", "auto_delete", "exclusive", "arguments", "policy", "operator_policy", "state", "messages",
  "messages_ready", "messages_unacknowledged", "messages_dlx", "messages_delayed", "oldest_message_age_seconds", "consumers", "leader", "message_stats",
  "effective_policy_definition"].join(",");

export const queueHref = (vhost, name) => `#/queue/${encodeURIComponent(vhost)}/${encodeURIComponent(name)}`;

// What is set for a queue, in the abbreviations of RabbitMQ's page.
function features(queue) {
  const has = (name) => queue.arguments?.[`x-${name}`] !== undefined || queue.effective_policy_definition?.[name] !== undefined;
  return [
    queue.durable && "D", queue.auto_delete && "AD", queue.exclusive && "Excl",
    has("message-ttl") && "TTL", has("expires") && "Exp", (has("max-length") || has("max-length-bytes")) && "Lim",
    has("dead-letter-exchange") && "DLX", has("delivery-limit") && "DLim", has("max-priority") && "Pri",
    has("single-active-consumer") && "SAC", queue.policy, queue.operator_policy,
  ].filter(Boolean).join(" ");
}

export const stateOf = (state) => (state === "running" ? "good" : state === "down" || state === "minority" ? "bad" : "warn");

function declareQueue(context, vhosts, done) {
  ask({
    title: "Add a queue",
    submit: "Add",
    specs: [
      { name: "vhost", label: "Virtual host", options: vhosts, value: context.parameters.vhost },
      { name: "name", label: "Name", required: true },
      { name: "type", label: "Type", options: [["quorum", "quorum"], ["classic", "classic"]], value: "quorum" },
      { name: "durable", label: "Durable", type: "check", value: true },
      { name: "arguments", label: "Arguments", type: "text", placeholder: "{\"x-delivery-limit\": 5}", hint: "A JSON object, or nothing." },
    ],
    action: async (given) => {
      const extra = objectOf(given.arguments, "Arguments");
      const body = { durable: given.durable, arguments: { "x-queue-type": given.type, ...extra } };
      await request("PUT", path("queues", given.vhost, given.name), { body });
      await done();
      return `Queue ${given.name} added.`;
    },
  });
}

export async function open(context) {
  const vhosts = await context.vhosts();
  const name = (queue) => `${queue.vhost} ${queue.name}`;
  const of = (kind) => (queue) => rate(rateOf(queue.message_stats, kind, name(queue)));
  const columns = [
    { title: "Name", head: true, sort: "name", text: (queue) => queue.name || "(no name)", href: (queue) => queueHref(queue.vhost, queue.name) },
    vhosts.length > 1 ? { title: "Virtual host", sort: "vhost", text: (queue) => queue.vhost } : null,
    { title: "State", sort: "state", text: (queue) => queue.state, state: (queue) => stateOf(queue.state) },
    { title: "Ready", num: true, sort: "messages_ready", text: (queue) => count(queue.messages_ready) },
    { title: "Unacked", num: true, sort: "messages_unacknowledged", text: (queue) => count(queue.messages_unacknowledged) },
    { title: "Delayed", num: true, optional: true, sort: "messages_delayed", text: (queue) => (queue.messages_delayed ? count(queue.messages_delayed) : UNKNOWN), help: "Returned messages that wait for their retry" },
    { title: "Total", num: true, sort: "messages", text: (queue) => count(queue.messages) },
    { title: "In", num: true, optional: true, sort: "message_stats.publish_details.rate", text: of("publish"), help: "Messages published a second" },
    { title: "Out", num: true, optional: true, sort: "message_stats.deliver_get_details.rate", text: of("deliver_get"), help: "Messages delivered a second" },
    { title: "Ack", num: true, optional: true, sort: "message_stats.ack_details.rate", text: of("ack"), help: "Messages acknowledged a second" },
    { title: "Dead letters waiting", num: true, sort: "messages_dlx", text: (queue) => count(queue.messages_dlx), state: (queue) => (queue.messages_dlx > 0 ? "warn" : ""), help: "Dead letters that have not reached all their targets yet" },
    { title: "Oldest", num: true, optional: true, sort: "oldest_message_age_seconds", text: (queue) => duration(queue.oldest_message_age_seconds), help: "Age of the oldest ready message" },
    { title: "Empty in", num: true, optional: true, text: (queue) => (queue.messages === 0 ? UNKNOWN : duration(timeToDrain(queue, name(queue)))), help: "At the present pace" },
    { title: "Consumers", num: true, sort: "consumers", text: (queue) => count(queue.consumers) },
    { title: "Type", sort: "type", text: (queue) => queue.type },
    { title: "Features", text: features, help: "D durable, AD auto-delete, Excl exclusive, TTL, Exp expires, Lim length limit, DLX dead-letter exchange, DLim delivery limit, Pri priorities, SAC single active consumer, and names of policies" },
    { title: "Leader", sort: "leader", text: (queue) => queue.leader },
  ];
  const list = new PagedList(context, {
    caption: "Queues",
    at: (vhost) => (vhost ? path("queues", vhost) : "queues"),
    fetched: FETCHED,
    key: name,
    columns,
    vhosts,
    empty: "No queue.",
  });
  await context.poll(() => list.load());
  return [
    heading("Queues", button("Add a queue", () => declareQueue(context, vhosts, () => context.refresh()), { class: "main" })),
    list.element,
    link("#/bindings", "See what leads where"),
  ];
}
