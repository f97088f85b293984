// Manages the visible part of the map: rows [first, end) and addresses of the arena [low, high).
// Zooming is animated, so that users can follow.
"use strict";

const view = {first: 0, end: 1, low: 0, high: 1};
let glide = null;  // {from, to, started}
const kGlideMs = 160;

function top_of(program) {
  const plan = program.plan, budget = plan.budget ? plan.budget.end : 0;
  return Math.max(plan.manifest.planned_bytes, plan.program_base + program.bytes, budget < 1.5 * plan.manifest.planned_bytes ? budget : 0) * 1.005;
}

// Returns the view of all rows and of the whole arena. State and gradients, or a distant budget,
// are left out if they would leave the program little height.
function home_view(program) {
  const plan = program.plan, base = plan.program_base, end = plan.manifest.planned_bytes, room = 0.04 * Math.max(kAlignment, end - base);
  const budget = plan.budget ? plan.budget.end : 0,
        high = Math.min(top_of(program), Math.max(end, budget - end < 0.4 * (end - base) ? budget : 0) + room);
  return {first: 0, end: Math.max(1, program.rows.length), low: high - base > 0.4 * high || end === base ? 0 : base - 0.06 * (high - base), high};
}

function arena_view(program) { return {...home_view(program), low: 0, high: top_of(program)}; }

function go_home() { glide = null; Object.assign(view, home_view(shown.program)); repaint(); }

// Returns the view inside the arena and the rows, never smaller than two rows and 256 bytes.
function clamped(wanted) {
  const rows = Math.max(1, shown.program.rows.length), top = top_of(shown.program);
  const width = Math.min(rows, Math.max(2, wanted.end - wanted.first)), height = Math.min(top, Math.max(kAlignment, wanted.high - wanted.low));
  const first = Math.min(Math.max(0, wanted.first), rows - width), low = Math.min(Math.max(0, wanted.low), top - height);
  return {first, end: first + width, low, high: low + height};
}

function move_view(wanted, gliding = true) {
  const to = clamped(wanted);
  glide = gliding && !still_wanted() ? {from: {...view}, to, started: performance.now()} : null;
  if (!glide) Object.assign(view, to);
  repaint();
}

function still_wanted() { return matchMedia("(prefers-reduced-motion: reduce)").matches; }

// Advances the animation by one frame.
function advance_glide(now) {
  if (!glide) return;
  const share = Math.min(1, Math.max(0, (now - glide.started) / kGlideMs)), eased = 1 - (1 - share) ** 3;
  for (const side of ["first", "end", "low", "high"]) view[side] = glide.from[side] + (glide.to[side] - glide.from[side]) * eased;
  if (share === 1) { Object.assign(view, glide.to); glide = null; }
  repaint();
}

// Returns the target of a running animation, so that keys pressed quickly add up.
function target_view() { return glide ? glide.to : view; }

// Zooms by a factor around a fixed position; `row` and `address` default to the middle.
function zoom_view(factor, {row, address, rows = true, addresses = false, gliding = true} = {}) {
  const from = target_view(), around = (low, high, place) => {
    const middle = place === undefined ? (low + high) / 2 : place;
    return [middle - (middle - low) * factor, middle + (high - middle) * factor];
  };
  const [first, end] = rows ? around(from.first, from.end, row) : [from.first, from.end];
  const [low, high] = addresses ? around(from.low, from.high, address) : [from.low, from.high];
  move_view({first, end, low, high}, gliding);
}

// Moves by shares of the visible rows and addresses.
function pan_view(rows, addresses, gliding = true) {
  const from = target_view(), right = rows * (from.end - from.first), up = addresses * (from.high - from.low);
  move_view({first: from.first + right, end: from.end + right, low: from.low + up, high: from.high + up}, gliding);
}

// Moves only as far as needed to show the rows [first, end), and the addresses if they are given.
function bring_into_view(first, end, low, high) {
  const from = target_view(), fits = (a, b, c, d) => {  // [c, d) into [a, b)
    if (c === null || (c >= a && d <= b)) return [a, b];
    const size = Math.max(b - a, (d - c) * 1.2), middle = (c + d) / 2;
    return [middle - size / 2, middle + size / 2];
  };
  const rows = first < from.end && end > from.first && end - first > from.end - from.first ? [from.first, from.end]
        : fits(from.first, from.end, first, end);
  const addresses = fits(from.low, from.high, low, high);
  if (rows[0] !== from.first || rows[1] !== from.end || addresses[0] !== from.low || addresses[1] !== from.high) {
    move_view({first: rows[0], end: rows[1], low: addresses[0], high: addresses[1]});
  }
}
