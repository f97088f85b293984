// Stores the page's state in one object. show() changes it and redraws everything that depends on
// the change.
"use strict";

const shown = {
  data: null, plans: [], plan_index: 0, plan: null, program: null,
  mode: "map",      // "map": address over row; "stack": live bytes over row
  colour: "kind",   // "kind", "link" or "dtype"
  patterns: false,  // patterns also distinguish kinds
  dark: false,
  printing: false,
  ghosts: true,     // in a diff: the other plan's slots as outlines
  hovered: null, selected: null,  // items
  row: null,        // the selected row
  latest: "slot",   // which of both was selected last: "slot" or "row"
  tab: "peak", sort: "size", change: "all",
};

function open_plan_at(index) {
  if (!shown.plans[index]) shown.plans[index] = open_plan(shown.data.plans[index]);
  return shown.plans[index];
}

// Changes the state: show({tab: "peak", row: 12}). A newly chosen plan or program is shown with its
// whole region.
function show(change) {
  const before = {...shown};
  Object.assign(shown, change);
  if ("plan_index" in change) shown.plan = open_plan_at(shown.plan_index);
  if (shown.plan !== before.plan) keep_place(before.program);
  if (shown.program !== before.program || shown.plan !== before.plan) { refresh_plan(); return; }
  if (shown.selected !== before.selected || shown.row !== before.row || shown.latest !== before.latest) write_link();
  if (["mode", "colour", "patterns", "dark", "ghosts"].some((name) => shown[name] !== before[name])) { recolour(); refresh_tools(); }
  if (shown.hovered !== before.hovered || shown.selected !== before.selected) refresh_slot();
  if (Object.keys(change).some((name) => name !== "hovered" && name !== "selected")) refresh_panels();
  request_drawing();
}

// Keeps the program of the same name after a change of the plan, and the selected slot if one has
// its name and kind.
function keep_place(program) {
  const name = program && program_names(shown.plan).includes(program.name) ? program.name : program_names(shown.plan)[0];
  const selected = shown.selected;
  shown.program = open_program(shown.plan, name);
  shown.hovered = null;
  shown.selected = selected ? shown.program.items.find((item) => item.name === selected.name && item.kind === selected.kind) || null : null;
  if (shown.row !== null && shown.row >= shown.program.rows.length) shown.row = null;
}

function show_program(name) {
  if (shown.program.name !== name) show({program: open_program(shown.plan, name), hovered: null, selected: null, row: null});
}

// Redraws everything after a change of plan or program.
function refresh_plan() {
  go_home();
  recolour();
  refresh_header();
  refresh_programs();
  refresh_tools();
  refresh_slot();
  refresh_panels();
  write_link();
  request_drawing();
}

function select_item(item) {
  show({selected: item, latest: "slot"});
  if (item) bring_into_view(item.first, item.end, item.address, item.address + item.bytes);
  if (item) say(short_name(item.name) + ", " + kind_words(item.kind) + ", " + bytes_words(item.bytes) + ", " + rows_words(item.first, item.end - 1));
}

function select_row(row) {
  show({row, tab: "peak", latest: "row"});
  bring_into_view(row, row + 1, null, null);
  say("row " + row + ": " + row_words(shown.program.rows[row]));
}

function row_words(row) { return row.op + "." + row.pass; }

// Announces a text to screen readers.
function say(text) { element_of("said").textContent = text; }
