// What follows from lives alone: live bytes of each row, the highest rows, and what one slot adds to the peak.
"use strict";

function live_bytes_of(slots, row_count) {
  const live = new Float64Array(row_count + 1);
  for (const slot of slots) { live[slot.first] += slot.bytes; live[slot.end] -= slot.bytes; }
  for (let r = 1; r < row_count; ++r) live[r] += live[r - 1];
  return live.subarray(0, row_count);
}

// The highest hills: rows that no neighbour is above, a plateau counted once, the highest first.
function highest_rows(live, count) {
  const hills = [];
  for (let first = 0; first < live.length;) {
    let end = first + 1;
    while (end < live.length && live[end] === live[first]) ++end;
    if ((first === 0 || live[first - 1] < live[first]) && (end === live.length || live[end] < live[first])) hills.push({row: first, bytes: live[first]});
    first = end;
  }
  return hills.sort((a, b) => b.bytes - a.bytes || a.row - b.row).slice(0, count);
}

// By how much the largest sum of live bytes would sink if this slot alone were not there.
function peak_share(program, slot) {
  let beside = 0, within = 0;
  program.live.forEach((bytes, r) => {
    if (r >= slot.first && r < slot.end) within = Math.max(within, bytes); else beside = Math.max(beside, bytes);
  });
  return Math.max(beside, within) - Math.max(beside, within - slot.bytes);
}

function live_items(program, row) { return program.slots.filter((slot) => slot.first <= row && row < slot.end); }

// Where slots end before the next multiple of 256: bytes that nobody uses, at one row.
function padding_of(items) { return items.reduce((sum, item) => sum + aligned(item.bytes) - item.bytes, 0); }
