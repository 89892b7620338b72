// Definitions: users, virtual hosts, permissions, exchanges, queues, bindings and policies as one file.

import { h, heading, section, button, announce, replace } from "./dom.js";
import { get, isPosted, path, request } from "./api.js";
import { bytes } from "./format.js";
import { ask, fields, values } from "./form.js";
import { effects } from "./view_policies.js";

function download(text, name) {
  const url = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  const anchor = h("a", { href: url, download: name });
  document.body.append(anchor);
  anchor.click();
  anchor.remove();
  URL.revokeObjectURL(url);
}

const at = (vhost, ...before) => path(...before, "definitions", ...(vhost ? [vhost] : []));

export async function open(context) {
  const [vhosts, hasDryRun] = await Promise.all([context.vhosts(), isPosted(path("quorate", "dry-run", "definitions"), context.signal)]);
  const options = [["", "the whole cluster"], ...vhosts.map((name) => [name, `virtual host ${name}`])];
  const told = h("div", { "aria-live": "polite" });
  const error = h("p", { class: "error", role: "alert" });
  const guarded = (work) => async (event) => {
    event?.preventDefault();
    error.textContent = "";
    replace(told);
    try {
      await work();
    } catch (thrown) {
      error.textContent = thrown.message;
    }
  };
  const exporting = h("form", { class: "controls", on: { submit: guarded(async () => {
    const { vhost } = values(exporting);
    const text = JSON.stringify(await get(at(vhost)), null, 2);
    download(text, `definitions${vhost ? `-${vhost.replace(/[^\w.-]+/g, "_")}` : ""}.json`);
    replace(told, h("p", null, `Exported ${bytes(text.length)}.`));
  }) } }, fields([{ name: "vhost", label: "Of", options }]), h("p", { class: "field" }, h("button", { type: "submit", class: "main" }, "Export")));

  const file = h("input", { type: "file", id: "definitions-file", accept: ".json,application/json", required: true });
  const given = async () => {
    const chosen = file.files[0];
    if (!chosen) throw new Error("Choose a file first.");
    return { name: chosen.name, text: await chosen.text(), vhost: values(importing).vhost };
  };
  const carryOut = guarded(async () => {
    const { name, text, vhost } = await given();
    ask({
      title: `Import ${name}`,
      intro: "What the file names is made or changed; nothing is deleted.",
      submit: "Import",
      action: async () => {
        await request("POST", at(vhost), { body: text });
        replace(told, h("p", null, `${name} is imported.`));
        announce("Imported.");
      },
    });
  });
  const dryRun = button("Dry run", guarded(async () => {
    const { text, vhost } = await given();
    const found = await request("POST", at(vhost, "quorate", "dry-run"), { body: text });
    replace(told, effects(found));
  }));
  const importing = h("form", { class: "controls", on: { submit: carryOut } },
    h("p", { class: "field" }, h("label", { for: "definitions-file" }, "File"), file),
    fields([{ name: "vhost", label: "Into", options }]),
    h("p", { class: "field buttons" }, hasDryRun ? dryRun : null, h("button", { type: "submit", class: "main" }, "Import")));

  return [
    heading("Definitions"),
    h("p", null, "Users with the hashes of their passwords, virtual hosts, permissions, exchanges, queues, bindings, policies and parameters, in RabbitMQ's format. Messages are not among them."),
    section("Export", exporting),
    section("Import", importing),
    error, told,
  ];
}
