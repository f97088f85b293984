// Opens a manifest: its regions, and its programs as items (slots, state, carried) and rows.
// Programs are opened when they are first shown.
"use strict";

const kAlignment = 256;  // alignment of slots in bytes

function aligned(bytes) { return Math.ceil(bytes / kAlignment) * kAlignment; }

function open_plan(manifest) {
  const regions = new Map(unpack(manifest.regions).map((region) => [region.name, region]));
  const planned = (name) => (regions.has(name) ? regions.get(name).planned_bytes : 0);
  const plan = {
    manifest, regions,
    name: (manifest.recipe && manifest.recipe.name) || "a plan",
    state_bytes: planned("state"),
    carried_bytes: planned("carried"),
    links: manifest.links || [],
    actions: unpack(manifest.actions),
    opened: new Map(),
    prices: new Map(((manifest.prices || {}).by_bytes || []).map((price) => [price.bytes, price])),
  };
  plan.program_base = plan.state_bytes + plan.carried_bytes;  // arena = [State | Carried | the program's region]
  plan.budget = budget_of(manifest, plan.program_base);
  plan.slots = unpack(manifest.slots);
  plan.level = manifest.host ? "host" : "disk";  // where the plan spills to
  plan.spilled = unpack(manifest[plan.level]);
  plan.state = unpack(manifest.state).map((tensor, i) => item_of(tensor, "state:" + i, "state", 0));
  plan.carried = unpack(manifest.carried).map((tensor, i) => item_of(tensor, "carried:" + i, "carried", plan.state_bytes));
  return plan;
}

// Returns the budget of the whole arena, or of the feature maps in the program's region: its size,
// and the address at which it ends.
function budget_of(manifest, base) {
  if (manifest.budget_bytes) return {name: "budget", bytes: manifest.budget_bytes, end: manifest.budget_bytes, used: manifest.planned_bytes};
  const bytes = manifest.feature_map_budget_bytes;
  return bytes ? {name: "feature-map budget", bytes, end: base + bytes, used: manifest.planned_bytes - base} : null;
}

// Makes an item of the map: a tensor at an address of the arena, alive in rows [first, end).
function item_of(tensor, id, region, base) {
  return {id, region, name: String(tensor.name), kind: tensor.kind, dtype: tensor.dtype, shape: tensor.shape, bytes: tensor.bytes,
          offset: tensor.offset, address: base + tensor.offset, layer: tensor.layer, keeper: tensor.keeper, first: 0, end: 0, flights: null};
}

function program_names(plan) { return plan.manifest.programs.map((program) => program.name); }

function open_program(plan, name) {
  if (!plan.opened.has(name)) {
    const entry = plan.manifest.programs.find((program) => program.name === name);
    plan.opened.set(name, entry ? read_program(plan, entry) : null);
  }
  return plan.opened.get(name);
}

function read_program(plan, entry) {
  const rows = unpack(entry.rows);
  const program = {plan, name: entry.name, times: entry.times, bytes: entry.bytes, live_bytes: entry.live_bytes, rows};
  program.slots = read_slots(plan, plan.slots, program, "slot");
  program.spilled = read_slots(plan, plan.spilled, program, plan.level);
  const whole = (item) => Object.assign({}, item, {first: 0, end: Math.max(1, rows.length)});
  // True if the tensor is in the file of weights, on the host, or of another rank: not in the arena
  // of rank 0, which the map shows.
  const is_away = (item) => item.kind === "streamed" || item.kind === "offloaded" || item.keeper > 0;
  program.state = plan.state.filter((item) => !is_away(item)).map(whole);
  program.away = plan.state.filter(is_away).map(whole);
  program.carried = plan.carried.map(whole);
  program.slots.forEach((slot, i) => { slot.birth = i; });
  program.items = [...program.state, ...program.carried, ...program.slots];
  program.by_id = new Map([...program.items, ...program.spilled, ...program.away].map((item) => [item.id, item]));
  find_uses(program);
  find_flights(program);
  program.wire = wire_runs_of(program);
  find_repeats(program);
  program.live = live_bytes_of(program.slots, rows.length);
  program.peaks = highest_rows(program.live, 3);
  return program;
}

function read_slots(plan, list, program, region) {
  const items = [];
  for (const slot of list) {
    if (slot.program !== program.name) continue;
    const id = (region === "slot" ? "" : region + ":") + program.name + ":" + slot.id;
    const item = item_of(slot, id, region, region === "slot" ? plan.program_base : 0);
    item.first = slot.first_row;
    item.end = slot.last_row + 1;
    items[slot.id] = item;
  }
  return items.filter((item) => item);
}

// Returns the item that a row names; "slot:12" is a slot of the row's program.
function item_of_reference(program, reference) {
  const [region, index] = reference.split(":");
  if (region === "slot") return program.by_id.get(program.name + ":" + index);
  return program.by_id.get(region === program.plan.level ? region + ":" + program.name + ":" + index : reference);
}

function references_of(row) { return row.scratch ? [...row.reads, ...row.writes, row.scratch] : [...row.reads, ...row.writes]; }

function find_uses(program) {
  for (const item of program.by_id.values()) { item.writers = []; item.readers = []; }
  program.rows.forEach((row, r) => {
    for (const reference of row.writes) { const item = item_of_reference(program, reference); if (item) item.writers.push(r); }
    for (const reference of row.reads) { const item = item_of_reference(program, reference); if (item) item.readers.push(r); }
    const scratch = row.scratch && item_of_reference(program, row.scratch);
    if (scratch) scratch.writers.push(r);
  });
}

// Finds the rows in which a slot is in flight: from transfer.start to transfer.wait, or between the
// two rows of a share.
function find_flights(program) {
  const started = new Map();
  program.rows.forEach((row, r) => {
    if (row.stage !== "transfer") return;
    // A load does not change its source.
    for (const reference of row.op === "transfer" ? references_of(row) : row.writes) {
      const item = item_of_reference(program, reference);
      if (!item) continue;
      if (row.pass === "start") started.set(item, r);
      else if (started.has(item)) { (item.flights = item.flights || []).push({first: started.get(item), end: r + 1}); started.delete(item); }
    }
  });
}

// Groups slots with the same value at several times: equal name and shape, first written by the
// same kernel of the same link.
function find_repeats(program) {
  const groups = new Map();
  for (const item of program.slots) {
    const row = program.rows[item.first];
    if (item.kind === "scratch" || !row) continue;
    const key = JSON.stringify([short_name(item.name, 4000), item.name.length, item.shape, row.link, row.op, row.pass]);
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(item);
    item.repeats = groups.get(key);
  }
}

// Returns the action of the schedule whose row made the item, in words, or null for rows outside of
// the schedule.
function keeper_of(program, item) {
  const row = program.rows[item.writers.length > 0 ? item.writers[0] : item.first];
  if (item.region !== "slot" || !row || row.action === null || row.action === undefined) return null;
  const action = program.plan.actions[row.action];
  return action ? {index: row.action, words: action_words(action, program.plan.links)} : null;
}
