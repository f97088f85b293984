// Opens the page and defines window.audit, by which tests and users read what the page shows.
"use strict";

async function start() {
  shown.data = await read_data();
  follow_theme();
  write_keys();
  follow_pointer(element_of("map"));
  follow_overview(element_of("overview"));
  follow_keys();
  follow_search();
  element_of("help").addEventListener("click", () => show_keys(element_of("keys").hidden));
  show({plan_index: shown.data.shown || 0, tab: shown.data.diff ? "diff" : shown.data.plans.length > 1 ? "front" : "peak"});
  follow_link();
  addEventListener("hashchange", follow_link);
  new ResizeObserver(() => repaint()).observe(element_of("drawing"));
  document.documentElement.dataset.ready = "true";
}

function slot_answer(item) {
  if (!item) return null;
  const facts = Object.fromEntries(slot_facts(shown.program, item).map(([label, text, number]) => [label, {text, number}]));
  const {id, name, kind, layer, dtype, shape, bytes, offset, address, first, end, writers, readers} = item;
  return {id, name, kind, layer, dtype, shape, bytes, offset, address, first_row: first, last_row: end - 1, writers, readers, facts};
}

function program_answer(name) {
  const program = open_program(shown.plan, name);
  const {bytes, live_bytes, peaks, rows, slots, times, wire} = program;
  return {name, times, bytes, live_bytes, rows: rows.length, slots: slots.length, peaks, wire, live: [...program.live],
          padding: peaks.length > 0 ? padding_of(live_items(program, peaks[0].row)) : 0, fragmentation: bytes - live_bytes};
}

window.audit = {
  state: () => ({plan_index: shown.plan_index, program: shown.program.name, mode: shown.mode, colour: shown.colour,
                 patterns: shown.patterns, dark: shown.dark, ghosts: shown.ghosts, tab: shown.tab, sort: shown.sort, change: shown.change,
                 row: shown.row, selected: shown.selected && shown.selected.id, hovered: shown.hovered && shown.hovered.id,
                 view: {...target_view()}, gliding: glide !== null, found: found.map((result) => result.label)}),
  plan: () => {
    const {planned_bytes, budget_bytes, store_all_bytes, plan_hash} = shown.plan.manifest;
    return {name: shown.plan.name, plan_hash, planned_bytes, budget_bytes, store_all_bytes, state_bytes: shown.plan.state_bytes,
            carried_bytes: shown.plan.carried_bytes,
            programs: program_names(shown.plan)};
  },
  program: (name) => program_answer(name || shown.program.name),
  hover: () => slot_answer(shown.hovered),
  selected: () => slot_answer(shown.selected),
  slot: (id) => slot_answer(shown.program.by_id.get(id)),
  select: (id) => select_item(shown.program.by_id.get(id) || null),
  row: (row) => select_row(row),
  show: (change) => show(change),
  view: (wanted, gliding = false) => move_view({...target_view(), ...wanted}, gliding),
  place: (id) => {  // the middle of the visible part of a slot on the screen
    const item = shown.program.by_id.get(id), box = element_of("map").getBoundingClientRect(), place = place_of(element_of("map"));
    const middle = (from, to, low, size) => (Math.min(low + size, Math.max(low, from)) + Math.min(low + size, Math.max(low, to))) / 2;
    return {x: box.left + middle(place.x_of(item.first), place.x_of(item.end), place.left, place.width),
            y: box.top + middle(place.y_of(item.address), place.y_of(item.address + item.bytes), place.top, place.height)};
  },
  pixel: (x, y) => [...element_of("map").getContext("2d").getImageData(x, y, 1, 1).data],
  ghosts: () => ghosts_of(shown.program).map((ghost) => ({id: ghost.item.id, change: ghost.change.change, first: ghost.first,
                                                          end: ghost.end, low: ghost.low, high: ghost.high})),
  csv: (what) => ({slots: slots_csv, live: live_csv, front: front_csv, changes: changes_csv})[what](),
  draw_times: () => [...drawing.times],
};

start().catch((error) => {
  element_of("failure").hidden = false;
  element_of("failure").textContent = "The data of this page cannot be read: " + error.message;
  throw error;
});
