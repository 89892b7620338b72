// Elements, made of text: whatever a name contains, it is shown as it is and never read as markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    } else if (name === "href" && !String(value).startsWith("#") && !String(value).startsWith("blob:")) {
      throw new Error(`a link out of the page: ${value}`);
    } else {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) append(element, child);
    else element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

// h("td", { class: "num", on: { click } }, "text", node, [more]).
export function h(tag, props, ...children) {
  return fill(document.createElement(tag), props, children);
}

export function svg(tag, props, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

export function replace(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

export function button(text, onClick, props) {
  return h("button", { type: "button", ...props, on: { click: onClick } }, text);
}

export function link(href, ...text) {
  return h("a", { href }, ...text);
}

// Names and values, as a list of terms: [["Leader", "n1"], ...].
export function facts(pairs) {
  const shown = pairs.filter((pair) => pair && pair[1] !== null && pair[1] !== undefined && pair[1] !== "");
  return h("dl", { class: "facts" },
    shown.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))));
}

export function section(title, ...content) {
  const id = `s-${title.toLowerCase().replace(/[^a-z]+/g, "-")}`;
  return h("section", { "aria-labelledby": id }, h("h2", { id }, title), ...content);
}

// The title of a view, which takes the focus when the view is opened.
export function heading(title, ...beside) {
  return h("div", { class: "heading" }, h("h1", { tabindex: "-1" }, title), ...beside);
}

// Told to screen readers, for changes that are only seen.
export function announce(text) {
  document.getElementById("live").textContent = text;
}

// Told to everybody, until something else is.
export function problem(text) {
  document.getElementById("problem").textContent = text;
}

export function code(value) {
  return h("pre", { tabindex: "0" }, typeof value === "string" ? value : JSON.stringify(value, null, 2));
}
