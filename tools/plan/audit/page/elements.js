// Makes elements. Data become only text nodes, so that no name is ever markup.
"use strict";

function element_of(id) { return document.getElementById(id); }

// Makes an element: make("a", {href: "#", onclick: f}, "text", child). A string is a text; null and
// false are left out.
function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

function fill(element, ...children) {
  element.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
}

// Makes a list of facts: [["bytes", "12"], ...], each value a text, an element or a list of them.
function fact_list(facts) {
  const list = make("dl", {class: "facts"});
  for (const fact of facts) {
    if (!fact) continue;
    list.append(make("dt", {}, fact[0]), make("dd", {}, ...[fact[1]].flat()));
  }
  return list;
}

// Redraws a part of the page; the button that had the focus gets it back.
function keeping_focus(redraw) {
  const focused = document.activeElement, data = focused ? Object.entries(focused.dataset)[0] : null;
  redraw();
  if (!data || focused.isConnected) return;
  const again = [...document.querySelectorAll("[data-" + data[0] + "]")].find((element) => element.dataset[data[0]] === data[1]);
  if (again) again.focus({preventScroll: true});
}
