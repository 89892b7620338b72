// Policies and operator policies, with a look at what one would change before it is set.

import { h, heading, section, button } from "./dom.js";
import { get, isPosted, path, request } from "./api.js";
import { count, value } from "./format.js";
import { ask, objectOf } from "./form.js";
import { Table } from "./list.js";

const APPLY_TO = ["all", "queues", "classic_queues", "quorum_queues", "exchanges"];
const ROWS_MAX = 100;

const bodyOf = (fields) => ({
  pattern: fields.pattern,
  "apply-to": fields.apply,
  priority: Number(fields.priority || 0),
  definition: objectOf(fields.definition, "Definition"),
});

const given = (one) => (one === null || one === undefined ? "not set" : value(one));
const source = (one) => (one.source && one.source !== "default" ? ` (${one.source.replace("_", " ")} ${one.name ?? ""})` : "");
const changes = (queue) => (queue.changes ?? []).map((one) => `${one.setting}: ${given(one.before)} → ${given(one.after)}${source(one)}`).join("; ");

// How many messages of a queue would go at once: its leader has looked at so many of them, or has not answered.
function lost(queue, field) {
  const messages = queue[field];
  if (messages === null || messages === undefined) return "unknown";
  return `${queue.at_least && messages ? "at least " : ""}${count(messages)}`;
}

// What a dry run has found: which queues would change, and how; of definitions, also what would be made.
export function effects(found) {
  const queues = found.queues ?? [];
  const all = found.queue_count ?? queues.length;
  const sum = (field) => queues.reduce((total, queue) => total + (queue[field] ?? 0), 0);
  const table = new Table({
    caption: "Queues that would change",
    key: (queue) => `${queue.vhost} ${queue.name}`,
    empty: "No queue would change.",
    columns: [
      { title: "Queue", head: true, text: (queue) => queue.name },
      { title: "Changes", text: (queue) => (queue.deleted ? "would be deleted" : changes(queue)), state: (queue) => (queue.deleted ? "bad" : "") },
      { title: "Dropped at once", num: true, text: (queue) => lost(queue, "dropped"), state: (queue) => (queue.dropped ? "bad" : "") },
      { title: "Dead-lettered at once", num: true, text: (queue) => lost(queue, "dead_lettered"), state: (queue) => (queue.dead_lettered ? "warn" : "") },
    ],
  });
  table.update(queues.slice(0, ROWS_MAX));
  const atLeast = queues.some((queue) => queue.at_least);
  const total = (field) => `${atLeast && sum(field) ? "at least " : ""}${count(sum(field))}`;
  const list = (title, names) => (names?.length ? [h("h3", null, title), h("ul", null, names.slice(0, ROWS_MAX).map((name) => h("li", null, value(name))),
    names.length > ROWS_MAX ? h("li", null, `and ${count(names.length - ROWS_MAX)} more`) : null)] : null);
  return h("div", null,
    h("p", null, `${count(all)} queues would change${all > ROWS_MAX ? `, of which ${ROWS_MAX} are shown` : ""}. `,
      `Messages that would go at once: ${total("dropped")} dropped, ${total("dead_lettered")} dead-lettered. Nothing was changed.`),
    table.element, list("Would be made", found.made), list("Would be changed", found.changed), list("Would be left out", found.left_out));
}

// `kind`: policies or operator-policies. `policy`: one that is there, or nothing for a new one.
function setPolicy(context, { kind, vhosts, policy, hasDryRun }) {
  const at = (fields) => [policy?.vhost ?? fields.vhost, policy?.name ?? fields.name];
  const what = kind === "policies" ? "policy" : "operator policy";
  ask({
    title: policy ? `Change the ${what} ${policy.name}` : `Add a ${what}`,
    submit: "Set",
    specs: [
      policy ? null : { name: "vhost", label: "Virtual host", options: vhosts },
      policy ? null : { name: "name", label: "Name", required: true },
      { name: "pattern", label: "Pattern of names", required: true, value: policy?.pattern ?? "", placeholder: "^orders\\." },
      { name: "apply", label: "Applies to", options: kind === "policies" ? APPLY_TO : APPLY_TO.filter((one) => one !== "exchanges"), value: policy?.["apply-to"] ?? (kind === "policies" ? "all" : "queues") },
      { name: "priority", label: "Priority", type: "number", value: policy?.priority ?? 0 },
      { name: "definition", label: "Definition", type: "text", required: true, value: policy ? JSON.stringify(policy.definition, null, 2) : "", placeholder: "{\"message-ttl\": 60000, \"dead-letter-exchange\": \"dlx\"}", hint: "A JSON object." },
    ],
    extra: hasDryRun ? [["Dry run", async (fields) => {
      const found = await request("POST", path("quorate", "dry-run", kind, ...at(fields)), { body: bodyOf(fields) });
      return effects(found);
    }]] : [],
    action: async (fields) => {
      await request("PUT", path(kind, ...at(fields)), { body: bodyOf(fields) });
      await context.refresh();
      return "Set.";
    },
  });
}

function policyTable(context, { kind, may, hasDryRun }) {
  const remove = (policy) => ask({
    title: `Delete ${policy.name}`,
    intro: `The settings of ${policy.name} no longer apply to what its pattern names.`,
    submit: "Delete",
    danger: true,
    action: async () => {
      await request("DELETE", path(kind, policy.vhost, policy.name));
      await context.refresh();
      return "Deleted.";
    },
  });
  return new Table({
    caption: kind === "policies" ? "Policies" : "Operator policies",
    key: (policy) => `${policy.vhost} ${policy.name}`,
    empty: "None.",
    columns: [
      { title: "Name", head: true, text: (policy) => policy.name },
      { title: "Virtual host", text: (policy) => policy.vhost },
      { title: "Pattern", text: (policy) => policy.pattern },
      { title: "Applies to", text: (policy) => policy["apply-to"] },
      { title: "Priority", num: true, text: (policy) => policy.priority },
      { title: "Definition", text: (policy) => value(policy.definition) },
      may ? { title: "Change", text: value, make: (policy) => h("div", { class: "buttons" },
        button("Change", () => setPolicy(context, { kind, policy, hasDryRun }), { "aria-label": `Change ${policy.name}` }),
        button("Delete", () => remove(policy), { class: "danger", "aria-label": `Delete ${policy.name}` })) } : null,
    ],
  });
}

export async function open(context) {
  const vhosts = await context.vhosts();
  const hasDryRun = context.may.setPolicies && vhosts.length > 0
    && await isPosted(path("quorate", "dry-run", "policies", vhosts[0], "any"), context.signal);
  const kinds = [["policies", "Policies", context.may.setPolicies], ["operator-policies", "Operator policies", context.may.administer]]
    .map(([kind, title, may]) => ({ kind, title, may, table: policyTable(context, { kind, may, hasDryRun }) }));
  await context.poll(() => Promise.all(kinds.map(async ({ kind, table }) => table.update(await get(kind, null, context.signal)))));
  const add = ({ kind, may }) => (may ? h("p", null, button(kind === "policies" ? "Add a policy" : "Add an operator policy",
    () => setPolicy(context, { kind, vhosts, hasDryRun }), { class: "main" })) : null);
  return [
    heading("Policies"),
    section(kinds[0].title, kinds[0].table.element, add(kinds[0])),
    section(kinds[1].title, h("p", { class: "muted" }, "They bound what policies and arguments may set, by the smaller value."), kinds[1].table.element, add(kinds[1])),
  ];
}
