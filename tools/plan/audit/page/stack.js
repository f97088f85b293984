// Draws the other picture: live bytes stacked over rows, in the order of the legend, above State
// and gradients.
"use strict";

// Returns the slots sorted by first row, by end, and from the bottom of the stack up. The first two
// let one walk over the rows find the live slots.
function stacking_of(program) {
  const sorted = (order) => [...program.slots].sort(order);
  program.stacking = program.stacking || {births: sorted((a, b) => a.first - b.first), deaths: sorted((a, b) => a.end - b.end),
                                          upwards: sorted(stacks_below)};
  return program.stacking;
}

function stacks_below(a, b) { return a.group - b.group || a.birth - b.birth; }

// Calls visit(row) for increasing rows, after born(slot) and dead(slot) for all slots that began
// and ended since the row before.
function walk_rows(program, rows, born, dead, visit) {
  const {births, deaths} = stacking_of(program);
  let b = 0, d = 0;
  for (const row of rows) {
    for (; b < births.length && births[b].first <= row; ++b) born(births[b]);
    for (; d < deaths.length && deaths[d].end <= row; ++d) dead(deaths[d]);
    visit(row);
  }
}

// Returns the rows to draw: all, or for each pixel the row with the most live bytes, so that no
// peak is lost.
function rows_to_draw(place) {
  const live = shown.program.live, first = Math.max(0, Math.floor(view.first)), end = Math.min(live.length, Math.ceil(view.end));
  const pixels = Math.round(place.width * place.scale);
  if (end - first <= pixels) return Array.from({length: end - first}, (_, i) => first + i);
  const rows = [], width = (view.end - view.first) / pixels;
  for (let pixel = 0; pixel < pixels; ++pixel) {
    const from = Math.floor(view.first + pixel * width), to = Math.min(end, Math.max(from + 1, Math.floor(view.first + (pixel + 1) * width)));
    let highest = from;
    for (let row = from; row < to; ++row) if (live[row] > live[highest]) highest = row;
    rows.push(highest);
  }
  return rows;
}

function paint_stack(painter, place) {
  const rows = rows_to_draw(place), single = rows.length < place.width * place.scale, wide = place.width / (view.end - view.first) >= 4;
  const x = (row) => Math.round((place.x_of(row) - place.left) * place.scale);
  let column = 0;
  const columns = (row) => (single ? [Math.max(0, x(row)), Math.min(painter.width, x(row + 1))] : [column, ++column]);
  if (wide) paint_slots_of_rows(painter, place, rows, columns); else paint_groups_of_rows(painter, place, rows, columns);
}

function paint_groups_of_rows(painter, place, rows, columns) {
  const program = shown.program, groups = program.groups, sums = new Float64Array(groups.length), base = program.plan.program_base;
  walk_rows(program, rows, (slot) => { sums[slot.group] += slot.bytes; }, (slot) => { sums[slot.group] -= slot.bytes; }, (row) => {
    const [from, to] = columns(row);
    let height = base;
    for (let group = 0; group < sums.length; ++group) {
      if (sums[group] === 0) continue;
      fill_level(painter, place, from, to, height, height + sums[group], groups[group].colour, shown.patterns ? groups[group].texture : "none");
      height += sums[group];
    }
  });
}

// Paints rows that are wide enough to show single slots, with lines between them. Slots of one
// colour that are too thin for a line are merged.
function paint_slots_of_rows(painter, place, rows, columns) {
  const near = stacking_of(shown.program).upwards.filter((slot) => slot.first < view.end && slot.end > view.first);
  const thin = (3 * (view.high - view.low)) / (place.height * place.scale);
  for (const row of rows) {
    const [from, to] = columns(row);
    let low = shown.plan.program_base, high = low, below = null;
    const fill = (parted) => { if (high > low) fill_level(painter, place, from, to, low, high, below.paint, below.texture, parted); low = high; };
    for (const slot of near) {
      if (slot.first > row || slot.end <= row) continue;
      if (below && (slot.bytes > thin || below.paint !== slot.paint)) fill(false);
      below = slot;
      high += slot.bytes;
      if (slot.bytes > thin) fill(true);
    }
    if (below) fill(false);
  }
}

function fill_level(painter, place, from, to, low, high, paint, texture, parted = false) {
  const pixel = (address) => Math.round(place.y_of(address) * place.scale), floor = Math.round((place.top + place.height) * place.scale);
  const top = Math.max(Math.round(place.top * place.scale), pixel(high)), bottom = Math.min(floor, pixel(low));
  if (bottom > top) painter.fill(from, parted && bottom - top > 3 ? top + 1 : top, to, bottom, paint, texture);
}

// Returns the live slots of a row, from the bottom of the stack up: [{item, low, high}].
function levels_of_row(program, row) {
  let height = program.plan.program_base;
  const alive = stacking_of(program).upwards.filter((slot) => slot.first <= row && row < slot.end);
  return alive.map((item) => ({item, low: height, high: (height += item.bytes)}));
}

// Returns the lower edge of a slot in the stack, for each row of its lifetime.
function levels_of_item(program, item) {
  const below = new Float64Array(item.end - item.first + 1);
  below[0] = program.plan.program_base;
  for (const slot of program.slots) {
    if (slot.end <= item.first || slot.first >= item.end || stacks_below(slot, item) >= 0) continue;
    below[Math.max(0, slot.first - item.first)] += slot.bytes;
    below[Math.min(item.end, slot.end) - item.first] -= slot.bytes;
  }
  for (let r = 1; r < below.length; ++r) below[r] += below[r - 1];
  return below;
}
