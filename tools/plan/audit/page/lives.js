// Computes from lifetimes alone: live bytes of each row, the highest rows, and the share of one
// slot in the peak.
"use strict";

function live_bytes_of(slots, row_count) {
  const live = new Float64Array(row_count + 1);
  for (const slot of slots) { live[slot.first] += slot.bytes; live[slot.end] -= slot.bytes; }
  for (let r = 1; r < row_count; ++r) live[r] += live[r - 1];
  return live.subarray(0, row_count);
}

// Returns the highest separate rows: between two of them live bytes fall below nine tenths of the
// lower one. The highest first.
function highest_rows(live, count) {
  const order = Array.from(live.keys()).filter((r) => (r === 0 || live[r - 1] < live[r]) && (r + 1 === live.length || live[r + 1] <= live[r]));
  const hills = [];
  for (const row of order.sort((a, b) => live[b] - live[a] || a - b)) {
    if (hills.length === count) break;
    if (!hills.some((hill) => is_same_hill(live, Math.min(row, hill.row), Math.max(row, hill.row)))) hills.push({row, bytes: live[row]});
  }
  return hills;
}

function is_same_hill(live, from, to) {
  const floor = 0.9 * Math.min(live[from], live[to]);
  for (let r = from; r <= to; ++r) if (live[r] < floor) return false;
  return true;
}

// Returns by how much the largest sum of live bytes would fall without this slot.
function peak_share(program, slot) {
  let beside = 0, within = 0;
  program.live.forEach((bytes, r) => {
    if (r >= slot.first && r < slot.end) within = Math.max(within, bytes); else beside = Math.max(beside, bytes);
  });
  return Math.max(beside, within) - Math.max(beside, within - slot.bytes);
}

function live_items(program, row) { return program.slots.filter((slot) => slot.first <= row && row < slot.end); }

// Returns the bytes between the ends of slots and the next multiple of 256, which no slot uses.
function padding_of(items) { return items.reduce((sum, item) => sum + aligned(item.bytes) - item.bytes, 0); }
