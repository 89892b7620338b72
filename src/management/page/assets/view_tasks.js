// Tasks: dead letters that are put back, moved or deleted, while the cluster goes on.

import { h, heading, button } from "./dom.js";
import { get, path, request } from "./api.js";
import { ask } from "./form.js";
import { Table } from "./list.js";
import { FILTERS } from "./view_messages.js";

const TITLES = { redrive: "Redrive", move: "Move", delete: "Delete messages" };

// What the form of a task says, as the API takes it.
function bodyOf({ kind, vhost, queue }, given, dryRun) {
  const filter = {};
  for (const { name } of FILTERS) {
    if (given[name]) filter[name] = given[name];
  }
  const body = { kind, vhost, queue, filter, dry_run: dryRun };
  if (given.rate) body.rate = Number(given.rate);
  if (given.max) body.max = Number(given.max);
  if (kind === "delete") return body;
  if (given.to !== "original" && !given.target) throw new Error(`Name the ${given.to}.`);
  body.to = given.to === "original" ? "original" : { [given.to]: given.target };
  return body;
}

export function startTask(context, about) {
  const targets = [["original", "where each message died"], ["queue", "this queue:"], ["exchange", "this exchange:"]];
  ask({
    title: `${TITLES[about.kind]}: ${about.queue}`,
    intro: "The task goes on when a node fails, and can be paused and cancelled.",
    submit: "Begin",
    danger: about.kind === "delete",
    specs: [
      about.kind === "delete" ? null : { name: "to", label: "To", options: about.kind === "move" ? targets.slice(1) : targets },
      about.kind === "delete" ? null : { name: "target", label: "Name of the queue or exchange" },
      ...FILTERS,
      { name: "rate", label: "Messages a second, at most", type: "number", min: 1 },
      { name: "max", label: "Messages in all, at most", type: "number", min: 1 },
    ],
    extra: [["Dry run", async (given) => {
      const found = await request("POST", "quorate/tasks", { body: bodyOf(about, given, true) });
      const end = found.complete ? "" : " The time was over before all messages had been looked at.";
      return h("p", null, `Nothing was changed. ${found.matched} messages match, ${found.skipped} do not; ${found.no_target} match and have no target.${end}`);
    }]],
    action: async (given) => {
      await request("POST", "quorate/tasks", { body: bodyOf(about, given, false) });
      location.hash = "#/tasks";
      return "Task begun.";
    },
  });
}

const target = (to) => (typeof to === "string" ? to : to ? Object.entries(to).map(([kind, name]) => `${kind} ${name}`).join(" ") : "");

// The counts of a task, whatever they are called.
function progress(task) {
  const known = new Set(["id", "kind", "vhost", "queue", "to", "state", "filter", "rate", "max", "created_at", "ended_at"]);
  const counts = { ...task, ...task.progress };
  return Object.entries(counts).filter(([name, one]) => !known.has(name) && typeof one === "number")
    .map(([name, one]) => `${name.replaceAll("_", " ")} ${one}`).join(", ");
}

export async function open(context) {
  const change = (task, verb) => async () => {
    await request("POST", path("quorate", "tasks", String(task.id), verb));
    await context.refresh();
  };
  const act = (task, verb, text, danger) => button(text, danger
    ? () => ask({ title: `${text} the task`, intro: `Task ${task.id} takes no more messages.`, submit: `${text} the task`, danger, action: change(task, verb) })
    : change(task, verb), { "aria-label": `${text} task ${task.id}` });
  const table = new Table({
    caption: "Tasks",
    key: (task) => task.id,
    empty: "No task.",
    columns: [
      { title: "Task", head: true, text: (task) => task.id },
      { title: "Kind", text: (task) => task.kind },
      { title: "Queue", text: (task) => task.queue, href: (task) => `#/${path("queue", task.vhost, task.queue)}` },
      { title: "To", text: (task) => target(task.to) },
      { title: "Filter", text: (task) => (task.filter ?? []).map((one) => `${one.part}=${one.value}`).join(", ") },
      { title: "State", text: (task) => task.state, state: (task) => (task.state === "running" ? "good" : task.state === "failed" ? "bad" : "") },
      { title: "Progress", text: progress },
      { title: "Change", text: (task) => task.state, make: (task) => h("div", { class: "buttons" },
        task.state === "running" ? act(task, "pause", "Pause") : null,
        task.state === "paused" ? act(task, "resume", "Resume") : null,
        ["running", "paused"].includes(task.state) ? act(task, "cancel", "Cancel", true) : null) },
    ],
  });
  await context.poll(async () => {
    const found = await get("quorate/tasks", null, context.signal);
    table.update(Array.isArray(found) ? found : found.tasks ?? []);
  });
  return [heading("Tasks"), h("p", { class: "muted" }, "They put dead letters back, move or delete messages, each once. Begin one at a queue."), table.element];
}
