// What happens on the nodes, as it happens: connections, logins, leaders, alarms, members, and changes by operators.

import { h, heading, button } from "./dom.js";
import { get } from "./api.js";
import { date } from "./format.js";

const ROWS_MAX = 500;
const POLL_MS = 2_000;
const LEVELS = { error: "bad", warn: "warn", info: "" };

function row(event) {
  const named = event.fields.map((field) => h("span", { class: "named" }, h("b", null, field.name), ` ${field.value} `));
  return h("li", { "data-state": LEVELS[event.level] ?? "" },
    h("time", { datetime: new Date(event.time).toISOString() }, date(event.time)), " ",
    h("span", { class: "level" }, event.level), " ", h("span", { class: "muted" }, event.node), " ",
    h("strong", null, event.target === "audit" ? `audit ${event.message}` : event.message), " ", named);
}

export async function open(context) {
  const log = h("ol", { class: "log", role: "log", "aria-label": "Events", tabindex: "0", reversed: true });
  const empty = h("p", { class: "muted" }, "Nothing yet.");
  let since = "";
  let isPaused = false;
  let waiting = [];
  const filter = h("input", { type: "search", id: "events-filter", autocomplete: "off", spellcheck: "false" });
  const level = h("select", { id: "events-level" }, [["", "all"], ["warn", "warnings and errors"], ["audit", "changes by operators"]].map(([value, text]) => h("option", { value }, text)));
  const pause = button("Pause", () => {
    isPaused = !isPaused;
    pause.textContent = isPaused ? "Go on" : "Pause";
    if (!isPaused) add();
  });
  const isShown = (element, event) => {
    const wanted = filter.value.toLowerCase();
    const hasLevel = level.value === "" || (level.value === "audit" ? event.target === "audit" : event.level !== "info");
    return hasLevel && (!wanted || element.textContent.toLowerCase().includes(wanted));
  };
  const shown = new Map();
  const sift = () => shown.forEach((event, element) => {
    element.hidden = !isShown(element, event);
  });
  const add = () => {
    for (const event of waiting) {
      const element = row(event);
      shown.set(element, event);
      element.hidden = !isShown(element, event);
      // The newest is the first.
      log.prepend(element);
    }
    waiting = [];
    while (log.childElementCount > ROWS_MAX) {
      shown.delete(log.lastElementChild);
      log.lastElementChild.remove();
    }
    empty.hidden = log.childElementCount > 0;
  };
  filter.addEventListener("input", sift);
  level.addEventListener("change", sift);
  await context.poll(async () => {
    const found = await get("quorate/events", { since }, context.signal);
    since = found.next;
    waiting = [...waiting, ...found.events].slice(-ROWS_MAX);
    if (!isPaused) add();
  }, POLL_MS);
  return [
    heading("Events", h("span", { class: "muted" }, "of all nodes, the newest first, in UTC"), pause),
    h("form", { class: "controls", role: "search", on: { submit: (event) => event.preventDefault() } },
      h("label", { for: "events-filter" }, "Filter"), filter, h("label", { for: "events-level" }, "Show"), level),
    empty, log,
  ];
}
