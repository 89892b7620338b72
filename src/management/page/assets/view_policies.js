// Policies and operator policies, with a look at what one would change before it is set.

import { h, heading, section, button } from "./dom.js";
import { get, path, request, see } from "./api.js";
import { count, value } from "./format.js";
import { ask, objectOf } from "./form.js";
import { Table } from "./list.js";

const APPLY_TO = ["all", "queues", "classic_queues", "quorum_queues", "exchanges"];
const ROWS_MAX = 100;

const bodyOf = (given) => ({
  pattern: given.pattern,
  "apply-to": given.apply,
  priority: Number(given.priority || 0),
  definition: objectOf(given.definition, "Definition"),
});

// Which queues would change, and how.
export function effects(found) {
  const queues = found.queues ?? [];
  const lost = (field) => queues.reduce((sum, queue) => sum + (queue[field] ?? 0), 0);
  const table = new Table({
    caption: "Queues that would change",
    key: (queue) => `${queue.vhost} ${queue.name}`,
    empty: "No queue would change.",
    columns: [
      { title: "Queue", head: true, text: (queue) => queue.name },
      { title: "Changes", text: (queue) => (queue.changes ?? []).map((one) => `${one.setting}: ${value(one.before ?? "unset")} → ${value(one.after ?? "unset")}`).join("; ") },
      { title: "Dropped at once", num: true, text: (queue) => count(queue.dropped ?? 0), state: (queue) => (queue.dropped ? "bad" : "") },
      { title: "Dead-lettered at once", num: true, text: (queue) => count(queue.dead_lettered ?? 0), state: (queue) => (queue.dead_lettered ? "warn" : "") },
    ],
  });
  table.update(queues.slice(0, ROWS_MAX));
  const more = queues.length > ROWS_MAX ? `, of which ${ROWS_MAX} are shown` : "";
  return h("div", null, h("p", null, `${count(queues.length)} queues would change${more}. ${count(lost("dropped"))} messages would be dropped and `,
    `${count(lost("dead_lettered"))} dead-lettered at once. Nothing was changed.`), table.element);
}

// `kind`: policies or operator-policies. `policy`: one that is there, or nothing for a new one.
function setPolicy(context, { kind, vhosts, policy, hasDryRun }) {
  const at = (given) => [policy?.vhost ?? given.vhost, policy?.name ?? given.name];
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
    extra: hasDryRun ? [["Dry run", async (given) => {
      const found = await request("POST", path("quorate", "dry-run", kind, ...at(given)), { body: bodyOf(given) });
      return effects(found);
    }]] : [],
    action: async (given) => {
      await request("PUT", path(kind, ...at(given)), { body: bodyOf(given) });
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

// True if the server has dry runs: it knows the path, and says so of a method that it does not take.
async function dryRuns(context, vhosts) {
  if (vhosts.length === 0 || !context.may.setPolicies) return false;
  try {
    return (await see(path("quorate", "dry-run", "policies", vhosts[0], "x"), null, context.signal)) !== null;
  } catch (error) {
    return error.status === 405;
  }
}

export async function open(context) {
  const vhosts = await context.vhosts();
  const hasDryRun = await dryRuns(context, vhosts);
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
