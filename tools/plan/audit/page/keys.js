// Handles the keyboard. Arrows and similar keys belong to the map; a few letters work everywhere
// except in a field.
"use strict";

const kKeys = [
  ["\u2190 \u2192", "earlier, later rows", ["ArrowLeft", "ArrowRight"]],
  ["\u2191 \u2193", "higher, lower addresses", ["ArrowUp", "ArrowDown"]],
  ["+ \u2212", "zoom the rows; with Shift the addresses"],
  ["0", "the whole program"],
  ["a", "the whole arena, with State and gradients"],
  ["n p", "the next slot by birth, the one before"],
  ["] [", "the next row, the one before"],
  ["s", "addresses, or stacked bytes"],
  ["c", "colour by kind, link, type"],
  ["1 \u2026 5", "the program"],
  ["/", "find by name"],
  ["Esc", "let go of what is chosen"],
  ["?", "these keys"],
  ["drag", "zoom into what the drag spans; with Shift: move"],
  ["wheel", "zoom the rows; with Alt the addresses, with Ctrl both, with Shift: move"],
];

const kMapKeys = {
  ArrowLeft: () => pan_view(-0.2, 0), ArrowRight: () => pan_view(0.2, 0), ArrowUp: () => pan_view(0, 0.2), ArrowDown: () => pan_view(0, -0.2),
  Home: () => move_view({...target_view(), first: 0, end: target_view().end - target_view().first}),
  End: () => pan_view(1e9, 0),
  PageUp: () => pan_view(-0.9, 0), PageDown: () => pan_view(0.9, 0),
};

const kKeysAnywhere = {
  "+": (event) => zoom_view(0.6, {rows: !event.altKey, addresses: event.altKey}), "=": () => zoom_view(0.6),
  "*": () => zoom_view(0.6, {rows: false, addresses: true}), "_": () => zoom_view(1 / 0.6, {rows: false, addresses: true}),
  "-": (event) => zoom_view(1 / 0.6, {rows: !event.altKey, addresses: event.altKey}),
  "0": () => move_view(home_view(shown.program)), a: () => move_view(arena_view(shown.program)),
  n: () => step_slot(1), p: () => step_slot(-1), "]": () => step_row(1), "[": () => step_row(-1),
  s: () => show({mode: shown.mode === "map" ? "stack" : "map"}),
  c: () => show({colour: {kind: "link", link: "dtype", dtype: "kind"}[shown.colour]}),
  "/": () => element_of("search").focus(),
  "?": () => show_keys(element_of("keys").hidden),
  Escape: () => { if (element_of("keys").hidden) show({selected: null, row: null}); else show_keys(false); },
};

function follow_keys() {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.target.closest("input, select, textarea")) return;
    const on_map = event.target === element_of("map") || event.target === document.body;
    const act = kKeysAnywhere[event.key] || (on_map && kMapKeys[event.key]) || program_key(event.key);
    if (!act) return;
    event.preventDefault();
    act(event);
  });
}

function program_key(key) {
  const name = /^[1-5]$/.test(key) && program_names(shown.plan)[Number(key) - 1];
  return name ? () => show_program(name) : null;
}

function step_slot(by) {
  const slots = shown.program.slots, at = shown.selected ? slots.indexOf(shown.selected) : by > 0 ? -1 : slots.length;
  const next = slots[Math.min(slots.length - 1, Math.max(0, at + by))];
  if (next) select_item(next);
}

function step_row(by) {
  const rows = shown.program.rows.length, from = shown.row === null ? (shown.program.peaks[0] || {row: 0}).row - by : shown.row;
  if (rows > 0) select_row(Math.min(rows - 1, Math.max(0, from + by)));
}

function show_keys(open) {
  element_of("keys").hidden = !open;
  element_of("help").setAttribute("aria-expanded", String(open));
}

function write_keys() {
  fill(element_of("keys"), make("dl", {}, kKeys.map(([key, what]) => make("div", {}, make("dt", {}, make("kbd", {}, key)), make("dd", {}, what)))));
}
