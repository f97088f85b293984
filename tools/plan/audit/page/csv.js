// Makes tables of the shown data. A text that a spreadsheet would run as a formula gets an
// apostrophe in front.
"use strict";

function csv_of(head, lines) {
  const cell = (value) => {
    if (value === null || value === undefined) return "";
    if (typeof value === "number") return String(value);
    const text = String(value);
    return '"' + (/^[=+\-@\t\r]/.test(text) ? "'" : "") + text.replaceAll('"', '""') + '"';
  };
  return [head, ...lines].map((line) => line.map(cell).join(",")).join("\r\n") + "\r\n";
}

function save_csv(what, text) {
  const link = make("a", {href: URL.createObjectURL(new Blob([text], {type: "text/csv"})), download: file_name(what) + ".csv"});
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function file_name(what) { return (shown.plan.name.slice(0, 60) + "-" + shown.program.name + "-" + what).replace(/[^A-Za-z0-9._-]+/g, "_"); }

const kItemHead = ["id", "name", "kind", "layer", "dtype", "shape", "bytes", "address", "first_row", "last_row", "price_less", "price_more"];

function item_line(item) {
  const price = item.region === "slot" ? shown.plan.prices.get(item.bytes) || {} : {};
  return [item.id, item.name, item.kind, item.layer, item.dtype, (item.shape || []).join("x"), item.bytes, item.address,
          item.first, item.end - 1, price.less, price.more];
}

// Returns the items in the map's view.
function items_in_view() {
  const sight = target_view();
  const at_addresses = (item) => shown.mode === "stack" || (item.address < sight.high && item.address + item.bytes > sight.low);
  return shown.program.items.filter((item) => item.first < sight.end && item.end > sight.first && at_addresses(item));
}

function slots_csv() { return csv_of(kItemHead, items_in_view().map(item_line)); }

function live_csv() {
  const row = shown.row === null ? shown.program.peaks[0].row : shown.row;
  return csv_of(kItemHead, sorted_items(live_items(shown.program, row)).map(item_line));
}

function front_csv() {
  return csv_of(["plan_hash", "budget_bytes", "planned_bytes", "extra_forward_cost", "predicted_seconds"],
                shown.data.plans.map((m) => [m.plan_hash, m.budget_bytes, m.planned_bytes, m.extra_forward_cost, m.predicted_seconds]));
}

function changes_csv() {
  return csv_of(["program", "name", "change", "bytes_a", "bytes_b", "slots_a", "slots_b"],
                listed_changes().map((change) => [change.program, change.name, change.change, change.bytes_a, change.bytes_b,
                                                  (change.a || []).join(" "), (change.b || []).join(" ")]));
}
