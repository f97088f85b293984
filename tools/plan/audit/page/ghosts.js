// Draws, for a diff, the changed slots of the other plan as outlines. The two plans have different
// rows, which are matched by their computation: the n-th rows of forward and backward with the same
// op and pass for the same link correspond.
"use strict";

function other_plan() { return shown.data.diff ? open_plan_at(1 - shown.plan_index) : null; }

// Returns matching rows of `from` and `to`: [[from, to]...], both increasing.
function matching_rows(from, to) {
  const keyed = (program) => {
    const counts = new Map(), keys = new Map();
    program.rows.forEach((row, r) => {
      if (row.stage !== "forward" && row.stage !== "backward") return;
      const what = JSON.stringify([row.stage, short_name(row.link, 4000), row.op, row.pass]), count = counts.get(what) || 0;
      counts.set(what, count + 1);
      keys.set(what + count, r);
    });
    return keys;
  };
  const there = keyed(to), pairs = [[0, 0]];
  for (const [key, row] of keyed(from)) {
    const last = pairs[pairs.length - 1], match = there.get(key);
    if (match !== undefined && row > last[0] && match > last[1]) pairs.push([row, match]);
  }
  pairs.push([from.rows.length, to.rows.length]);
  return pairs;
}

function mapped_row(pairs, row) {
  let low = 0, high = pairs.length - 1;
  while (high - low > 1) { const middle = (low + high) >> 1; if (pairs[middle][0] <= row) low = middle; else high = middle; }
  const [a, b] = [pairs[low], pairs[high]];
  return b[0] === a[0] ? a[1] : a[1] + ((row - a[0]) * (b[1] - a[1])) / (b[0] - a[0]);
}

// Returns the other plan's changed slots, at this program's rows and relative to the start of its
// region: [{item, first, end, low, high}].
function ghosts_of(program) {
  if (program.ghosts) return program.ghosts;
  const other = other_plan(), from = other && open_program(other, program.name);
  if (!from) return (program.ghosts = []);
  const side = shown.plan_index === 1 ? "a" : "b", changed = new Map();
  for (const change of shown.data.diff.slots) {
    if (change.program === program.name) for (const id of change[side] || []) changed.set(program.name + ":" + id, change);
  }
  const pairs = matching_rows(from, program), base = program.plan.program_base;
  program.ghosts = from.slots.filter((item) => changed.has(item.id)).map((item) => ({
    item, change: changed.get(item.id), first: mapped_row(pairs, item.first), end: mapped_row(pairs, item.end),
    low: base + item.offset, high: base + item.offset + item.bytes,
  }));
  return program.ghosts;
}

// Draws the ghosts; those of the slot that is selected, or under the pointer, are emphasised.
function draw_ghosts(pen, place) {
  if (!shown.data.diff || !shown.ghosts || shown.mode !== "map") return;
  pen.strokeStyle = inks.alarm.text;
  pen.setLineDash([4, 3]);
  const ghosts = ghosts_of(shown.program).filter((ghost) => shown.change === "all" || ghost.change.change === shown.change);
  const chosen = shown.selected || shown.hovered, is_chosen = (ghost) => chosen !== null && ghost.item.name === chosen.name;
  const some = ghosts.some(is_chosen);
  for (const ghost of ghosts) {
    if (ghost.end <= view.first || ghost.first >= view.end || ghost.high <= view.low || ghost.low >= view.high) continue;
    const x = place.x_of(ghost.first), y = place.y_of(ghost.high), width = place.x_of(ghost.end) - x, height = place.y_of(ghost.low) - y;
    if (width < 1.5 && height < 1.5) continue;
    pen.globalAlpha = !some ? 0.8 : is_chosen(ghost) ? 1 : 0.25;
    pen.lineWidth = some && is_chosen(ghost) ? 2.5 : 1;
    pen.strokeRect(Math.round(x) + 0.5, Math.round(y) + 0.5, Math.max(1, width - 1), Math.max(1, height - 1));
  }
  pen.globalAlpha = 1;
  pen.setLineDash([]);
}
