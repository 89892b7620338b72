// Tables. Rows are kept by their keys and only changed cells are written, so that the focus and a selection outlast
// a poll. A list of the API is asked for one page at a time, filtered and sorted by the server.

import { h, replace, button, announce } from "./dom.js";
import { get } from "./api.js";
import { count, UNKNOWN } from "./format.js";

const SIZES = ["25", "50", "100", "250", "500"];
const TYPING_MS = 300;

// A column: { title, text: (row) => value, href: (row) => link, make: (row) => node, sort: field, num: true,
// head: true for the one that names the row, help: text, optional: true for one that is left out where no row has a value }.
export class Table {
  constructor({ caption, columns, key, empty, onSort }) {
    this.columns = columns.filter(Boolean);
    this.key = key;
    this.rows = new Map();
    this.onSort = onSort;
    this.heads = this.columns.map((column) => this.headOf(column));
    this.body = h("tbody", { role: "rowgroup" });
    this.empty = h("p", { class: "muted" }, empty ?? "None.");
    this.table = h("table", { role: "table" },
      h("caption", { class: "unseen" }, caption),
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, this.heads)), this.body);
    this.element = h("div", { class: "table" }, this.table, this.empty);
    this.table.hidden = true;
    this.empty.hidden = true;
  }

  headOf(column) {
    const props = { scope: "col", role: "columnheader", class: column.num ? "num" : null, title: column.help };
    if (!column.sort || !this.onSort) return h("th", props, column.title);
    return h("th", { ...props, "data-sort": column.sort },
      button(column.title, () => this.onSort(column.sort), { class: "sort" }));
  }

  showSort(field, reverse) {
    for (const head of this.heads) {
      const isSorted = head.dataset.sort && head.dataset.sort === field;
      if (isSorted) head.setAttribute("aria-sort", reverse ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    }
  }

  rowOf(key) {
    const cells = this.columns.map((column) => h(column.head ? "th" : "td", {
      scope: column.head ? "row" : null,
      role: column.head ? "rowheader" : "cell",
      class: column.num ? "num" : null,
      "data-label": column.title,
    }));
    const row = { element: h("tr", { role: "row" }, cells), cells, shown: [], links: [] };
    this.rows.set(key, row);
    return row;
  }

  update(items) {
    const focused = document.activeElement;
    const wanted = new Set();
    let place = this.body.firstChild;
    for (const item of items) {
      let key = String(this.key(item));
      while (wanted.has(key)) key += "'";
      wanted.add(key);
      const row = this.rows.get(key) ?? this.rowOf(key);
      this.columns.forEach((column, at) => this.write(column, row, at, item));
      if (row.element === place) place = place.nextSibling;
      else this.body.insertBefore(row.element, place);
    }
    for (const [key, row] of this.rows) {
      if (wanted.has(key)) continue;
      row.element.remove();
      this.rows.delete(key);
    }
    this.columns.forEach((column, at) => column.optional && this.leaveOut(at));
    this.table.hidden = items.length === 0;
    this.empty.hidden = items.length !== 0;
    // A row that has moved has lost it.
    if (focused !== document.activeElement && focused?.isConnected && this.body.contains(focused)) focused.focus();
  }

  leaveOut(at) {
    const rows = [...this.rows.values()];
    const isOut = rows.every((row) => row.cells[at].classList.contains("blank"));
    this.heads[at].hidden = isOut;
    for (const row of rows) row.cells[at].hidden = isOut;
  }

  write(column, row, at, item) {
    const text = String(column.text(item) ?? "");
    const href = column.href?.(item) ?? "";
    const state = column.state?.(item) ?? "";
    const signature = `${text}\u0000${href}\u0000${state}`;
    if (row.shown[at] === signature) return;
    row.shown[at] = signature;
    const cell = row.cells[at];
    cell.classList.toggle("blank", text === "" || text === UNKNOWN);
    if (state) cell.dataset.state = state;
    else delete cell.dataset.state;
    const made = column.make?.(item);
    if (made) replace(cell, made);
    else if (href) replace(cell, h("a", { href }, text));
    else cell.textContent = text;
  }
}

// One page of a list of the API. `at`: (vhost) => path; `state`: what the address says: name, regex, page, size, sort,
// reverse, vhost.
export class PagedList {
  constructor(context, { caption, at, columns, key, fetched, empty, vhosts, sort, reverse, extra, arranged }) {
    this.context = context;
    this.at = at;
    this.fetched = fetched;
    this.arranged = arranged ?? ((items) => items);
    this.extra = extra;
    this.state = { page: 1, size: "100", sort: sort ?? "", reverse: String(Boolean(reverse)), name: "", regex: "", vhost: "",
      ...context.parameters };
    this.table = new Table({ caption, columns, key, empty, onSort: (field) => this.sortBy(field) });
    this.total = h("span", { class: "muted", role: "status" });
    this.error = h("p", { class: "error", role: "alert" });
    this.caption = caption;
    const controls = [this.filter(), vhosts && vhosts.length > 1 ? this.vhost(vhosts) : null, this.sizes()];
    this.element = h("div", null, h("form", { class: "controls", role: "search", on: { submit: (event) => event.preventDefault() } }, controls),
      this.error, this.table.element, this.pager());
  }

  filter() {
    const box = h("input", { type: "search", id: "filter-name", spellcheck: "false", autocomplete: "off" });
    const regex = h("input", { type: "checkbox", id: "filter-regex", checked: this.state.regex === "true" });
    box.value = this.state.name;
    let typing;
    const changed = () => this.change({ name: box.value, regex: regex.checked ? "true" : "", page: 1 });
    box.addEventListener("input", () => {
      clearTimeout(typing);
      typing = setTimeout(changed, TYPING_MS);
    });
    regex.addEventListener("change", changed);
    return [h("label", { for: "filter-name" }, "Filter by name"), box,
      h("span", { class: "check" }, regex, h("label", { for: "filter-regex" }, "regular expression"))];
  }

  vhost(vhosts) {
    const options = [["", "all"], ...vhosts.map((name) => [name, name])];
    const box = h("select", { id: "filter-vhost", on: { change: () => this.change({ vhost: box.value, page: 1 }) } },
      options.map(([value, text]) => h("option", { value, selected: value === this.state.vhost }, text)));
    return [h("label", { for: "filter-vhost" }, "Virtual host"), box];
  }

  sizes() {
    const box = h("select", { id: "filter-size", on: { change: () => this.change({ size: box.value, page: 1 }) } },
      SIZES.map((size) => h("option", { value: size, selected: size === this.state.size }, size)));
    return [h("label", { for: "filter-size" }, "Rows"), box];
  }

  pager() {
    const to = (page) => () => this.change({ page: page() });
    this.before = button("Previous page", to(() => Number(this.state.page) - 1));
    this.after = button("Next page", to(() => Number(this.state.page) + 1));
    return h("p", { class: "pager" }, this.before, this.total, this.after);
  }

  sortBy(field) {
    const reverse = this.state.sort === field ? this.state.reverse !== "true" : false;
    this.change({ sort: field, reverse: String(reverse), page: 1 });
  }

  async change(changed) {
    Object.assign(this.state, changed);
    this.context.remember(this.state);
    await this.load();
    announce(`${this.caption}: ${this.total.textContent}`);
  }

  async load() {
    const { page, size, sort, reverse, name, regex, vhost } = this.state;
    const asked = (this.asked = {});
    const parameters = { page, page_size: size, sort, sort_reverse: sort ? reverse : "", name, use_regex: name ? regex : "",
      pagination: "true", columns: this.fetched, ...this.extra };
    try {
      const found = await get(this.at(vhost), parameters, this.context.signal);
      // Another page has been asked for meanwhile.
      if (asked !== this.asked) return;
      this.error.textContent = "";
      this.show(found);
    } catch (error) {
      if (error.name === "AbortError" || asked !== this.asked) return;
      // The last page has gone, with what was on it.
      if (error.message.startsWith("Page out of range") && Number(page) > 1) {
        await this.change({ page: 1 });
        return;
      }
      this.error.textContent = error.message;
      if (error.status === 0 || !error.hasSession) throw error;
    }
  }

  show(found) {
    this.state.page = found.page;
    this.table.update(this.arranged(found.items));
    this.table.showSort(this.state.sort, this.state.reverse === "true");
    const first = (found.page - 1) * found.page_size + 1;
    const filtered = found.filtered_count !== found.total_count ? ` (${count(found.total_count)} in all)` : "";
    this.total.textContent = found.filtered_count === 0 ? `none${filtered}`
      : `${count(first)} to ${count(first + found.items.length - 1)} of ${count(found.filtered_count)}${filtered}`;
    this.before.disabled = found.page <= 1;
    this.after.disabled = found.page >= found.page_count;
  }
}
