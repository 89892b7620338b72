// Dialogs: forms, questions, and texts to read. The dialog of the browser keeps the focus inside and closes by Escape.

import { h, button, announce } from "./dom.js";

let made = 0;

function field(spec) {
  const id = `f${(made += 1)}`;
  const hint = spec.hint ? h("small", { id: `${id}-hint` }, spec.hint) : null;
  const props = {
    id,
    name: spec.name,
    required: spec.required,
    placeholder: spec.placeholder,
    autocomplete: spec.autocomplete ?? "off",
    spellcheck: "false",
    "aria-describedby": hint ? `${id}-hint` : null,
  };
  if (spec.type === "check") {
    const input = h("input", { ...props, type: "checkbox", checked: Boolean(spec.value) });
    return h("p", { class: "field check" }, input, h("label", { for: id }, spec.label), hint);
  }
  let input;
  if (spec.options) {
    input = h("select", props, spec.options.map((option) => {
      const [value, text] = Array.isArray(option) ? option : [option, option];
      return h("option", { value, selected: value === spec.value }, text);
    }));
  } else if (spec.type === "text") {
    input = h("textarea", { ...props, rows: spec.rows ?? 5 });
    input.value = spec.value ?? "";
  } else {
    input = h("input", { ...props, type: spec.type ?? "text", min: spec.min, max: spec.max, step: spec.step });
    input.value = spec.value ?? "";
  }
  return h("p", { class: "field" }, h("label", { for: id }, spec.label), input, hint);
}

// The values of a form's fields, by their names.
export function values(form) {
  const found = {};
  for (const input of form.elements) {
    if (input.name) found[input.name] = input.type === "checkbox" ? input.checked : input.value;
  }
  return found;
}

export function fields(specs) {
  return specs.filter(Boolean).map(field);
}

function dialog(title, ...content) {
  const id = `d${(made += 1)}`;
  const opener = document.activeElement;
  const box = h("dialog", { "aria-labelledby": id }, h("h2", { id }, title), ...content);
  box.addEventListener("close", () => {
    box.remove();
    if (opener?.isConnected) opener.focus();
  });
  document.body.append(box);
  box.showModal();
  return box;
}

// A form in a dialog. `action` gets the values; what it throws is shown, and the dialog stays open.
// `extra`: further buttons, as [text, action]; what their action returns is shown in the form.
export function ask({ title, intro, specs, submit, danger, action, extra }) {
  const error = h("p", { class: "error", role: "alert" });
  const result = h("div", { class: "result", "aria-live": "polite" });
  const carryOut = async (work) => {
    error.textContent = "";
    form.setAttribute("aria-busy", "true");
    try {
      return await work(values(form));
    } catch (thrown) {
      error.textContent = thrown.message;
      return undefined;
    } finally {
      form.removeAttribute("aria-busy");
    }
  };
  const more = (extra ?? []).map(([text, work]) => button(text, async () => {
    const shown = await carryOut(work);
    if (shown !== undefined) result.replaceChildren(shown);
  }));
  const form = h("form", { method: "dialog", on: { submit: async (event) => {
    event.preventDefault();
    if (form.hasAttribute("aria-busy")) return;
    const done = await carryOut(async (given) => ({ text: await action(given) }));
    if (!done) return;
    box.close();
    if (done.text) announce(done.text);
  } } },
  intro ? h("p", null, intro) : null,
  fields(specs ?? []), result, error,
  h("p", { class: "buttons" },
    button("Cancel", () => box.close()), more,
    h("button", { type: "submit", class: danger ? "danger" : "main" }, submit)));
  const box = dialog(title, form);
}

// A text to read.
export function show(title, ...content) {
  const box = dialog(title, ...content, h("p", { class: "buttons" }, button("Close", () => box.close(), { class: "main" })));
}

// JSON of a field that must be an object; empty stands for none.
export function objectOf(text, what) {
  if (!text.trim()) return {};
  let parsed;
  try {
    parsed = JSON.parse(text);
  } catch (error) {
    throw new Error(`${what}: ${error.message}`);
  }
  if (parsed === null || typeof parsed !== "object" || Array.isArray(parsed)) throw new Error(`${what} must be a JSON object`);
  return parsed;
}
