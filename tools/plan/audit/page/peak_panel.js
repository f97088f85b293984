// Lists the live items of one row: the highest, another hill, or the selected row.
"use strict";

const kMostListed = 200, kMostPrinted = 24;

function most_listed() { return shown.printing ? kMostPrinted : kMostListed; }

function unlisted(all, noun) { return make("li", {class: "empty"}, "and " + plural(all.length - most_listed(), "more " + noun) + ": all are in the CSV"); }

function peak_panel(panel) {
  const program = shown.program, peaks = program.peaks, row = shown.row === null ? (peaks[0] || {row: 0}).row : shown.row;
  if (program.rows.length === 0) { fill(panel, make("p", {class: "empty"}, "This program has no rows.")); return; }
  const items = sorted_items(live_items(program, row));
  fill(panel, peak_buttons(peaks, row), region_facts(program), smaller_facts(program.plan.manifest),
       row_section(program, row), list_head(items, program.live[row]), item_list(program.plan, items));
}

function peak_buttons(peaks, row) {
  const below = (peak) => (peak.bytes < peaks[0].bytes ? ", " + change_words(peak.bytes - peaks[0].bytes) : "");
  const hill = (peak, i) => make("button", {type: "button", class: "hill", "aria-pressed": String(row === peak.row), "data-row": peak.row,
                                            onclick: () => select_row(peak.row)},
    make("small", {}, ["highest", "second", "third"][i]), make("b", {}, bytes_words(peak.bytes)), make("small", {}, "row " + count_words(peak.row) + below(peak)));
  return make("div", {class: "hills", role: "group", "aria-label": "The highest rows"}, peaks.map(hill));
}

// Lists the region's facts. The largest sum of live bytes is a lower bound for every choice of
// addresses.
function region_facts(program) {
  const highest = program.peaks.length > 0 ? program.peaks[0].row : 0, fragmentation = program.bytes - program.live_bytes;
  return fact_list([
    ["region", exact_bytes(program.bytes)],
    ["lower bound", exact_bytes(program.live_bytes)],
    ["fragmentation", [exact_bytes(fragmentation), make("small", {}, " " + percent_words(program.bytes ? fragmentation / program.bytes : 0) + " of the region")].flat()],
    ["of it padding", exact_bytes(padding_of(live_items(program, highest)))],
  ]);
}

function smaller_facts(m) {
  if (!m.smaller) return null;
  return make("p", {class: "smaller"}, make("b", {}, bytes_words(m.smaller.budget) + " does not fit: "), short_name(m.smaller.why, 600));
}

function row_section(program, row) {
  const what = program.rows[row], action = program.plan.actions[what.action];
  const named = (references) => references.map((reference) => reference_button(program, reference));
  return make("div", {class: "row"},
    make("h2", {}, "Row " + count_words(row) + "  ", make("code", {}, row_words(what)), make("small", {}, " " + what.stage)),
    fact_list([
      ["link", short_name(what.link, 60)],
      action ? ["action", action_words(action, program.plan.links)] : null,
      what.writes.length > 0 ? ["writes", make("span", {class: "jumps"}, named(what.writes))] : null,
      what.reads.length > 0 ? ["reads", make("span", {class: "jumps"}, named(what.reads))] : null,
      what.scratch ? ["scratch", make("span", {class: "jumps"}, named([what.scratch]))] : null,
      ["work", [what.flops ? Number(what.flops.toPrecision(4)).toLocaleString("en-US") + " flop, " : "",
                what.bytes ? bytes_words(what.bytes) + " read or written" : "",
                what.seconds !== null && what.seconds !== undefined ? ", " + seconds_words(what.seconds) : ""].join("") || "none"],
    ]));
}

function reference_button(program, reference) {
  const item = item_of_reference(program, reference);
  if (!item) return make("span", {class: "none"}, short_name(reference, 40));
  return make("button", {type: "button", class: "jump", "data-slot": item.id, onclick: () => select_item(item)},
              make("i", {class: "key", style: item.paint ? "background:" + item.paint.text : null}), short_name(item.name, 44));
}

function price_of(plan, item) {
  const price = plan.prices.get(item.bytes);
  return !price ? -1 : price.less === null ? Infinity : price.less;
}

function sorted_items(items) {
  const by = {
    size: (a, b) => b.bytes - a.bytes,
    life: (a, b) => b.end - b.first - (a.end - a.first),
    price: (a, b) => { const x = price_of(shown.plan, a), y = price_of(shown.plan, b); return x === y ? 0 : y > x ? 1 : -1; },
  }[shown.sort];
  return items.sort((a, b) => by(a, b) || b.bytes - a.bytes || a.birth - b.birth);
}

function list_head(items, live) {
  const sorts = ["size", "life"].concat(shown.plan.manifest.prices ? ["price"] : []);
  return make("div", {class: "list-head"},
    make("span", {}, plural(items.length, "slot") + ", " + bytes_words(live) + ", by "),
    make("span", {class: "group", role: "group", "aria-label": "Sorted by"}, sorts.map((sort) =>
      make("button", {type: "button", "aria-pressed": String(shown.sort === sort), "data-sort": sort, onclick: () => show({sort})}, sort))),
    make("button", {type: "button", class: "csv", onclick: () => save_csv("live", live_csv())}, "CSV"));
}

function item_list(plan, items) {
  const listed = items.slice(0, most_listed()), largest = Math.max(1, ...listed.map((item) => item.bytes));
  const list = make("ol", {class: "items"}, listed.map((item) => make("li", {},
    make("button", {type: "button", "data-slot": item.id, "aria-pressed": String(shown.selected === item), onclick: () => select_item(item),
                    onpointerenter: () => show({hovered: item}), onpointerleave: () => show({hovered: null})},
         make("i", {class: "key", style: "background:" + item.paint.text}), make("span", {class: "item-name"}, short_name(item.name, 60)),
         make("small", {}, list_note(plan, item)), make("b", {}, bytes_words(item.bytes)),
         make("i", {class: "size", style: "width:" + ((100 * item.bytes) / largest).toFixed(2) + "%;background:" + item.paint.text})))));
  if (items.length > most_listed()) list.append(unlisted(items, "slot"));
  return list;
}

// Returns the note next to an item's bytes: the sort key, else its kind.
function list_note(plan, item) {
  if (shown.sort === "life") return plural(item.end - item.first, "row");
  const price = shown.sort === "price" && plan.prices.get(item.bytes);
  if (!price) return kind_words(item.kind);
  if (price.less === null) return "not without";
  return "+" + (plan.manifest.prices.unit === "seconds" ? seconds_words(price.less) : share_words(price.less));
}
