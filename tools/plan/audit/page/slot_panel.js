// Shows all facts of one slot: the selected one, or the one under the pointer.
"use strict";

const kMostRows = 8;  // rows listed before "more"

function refresh_slot() {
  refresh_tip();
  for (const button of document.querySelectorAll("#panel .items [data-slot]")) {
    button.setAttribute("aria-pressed", String(shown.selected !== null && button.dataset.slot === shown.selected.id));
  }
  const item = shown.selected || shown.hovered || largest_at_peak(shown.program), section = element_of("slot");
  if (!item) { fill(section, make("p", {class: "empty"}, "This program has no slots.")); return; }
  const facts = slot_facts(shown.program, item);
  const why = shown.selected ? "chosen; Esc lets go"
    : shown.hovered ? "under the pointer; a click keeps it here" : "the largest at the peak; point at another";
  fill(section,
       make("p", {class: "why"}, why),
       make("h2", {}, make("i", {class: "key", style: "background:" + item.paint.text}),
            make("span", {class: "item-name", title: short_name(item.name, 1000)}, short_name(item.name))),
       fact_list(facts.map(([label, value, , shown_as]) => [label, shown_as || value])));
}

function largest_at_peak(program) {
  return program.peaks.length === 0 ? null : live_items(program, program.peaks[0].row).reduce((a, b) => (a && a.bytes >= b.bytes ? a : b), null);
}

// Returns [label, text, number that the text represents, elements if the text is not all]. Tests
// read the first three.
function slot_facts(program, item) {
  const facts = [
    ["kind", kind_words(item.kind) + (item.layer !== undefined ? " of " + short_name(item.layer, 60) : "")],
    item.flights ? ["in flight", item.flights.map((flight) => rows_words(flight.first, flight.end - 1)).join(", ")] : null,
    ["tensor", shape_words(item)],
    ["bytes", bytes_words(item.bytes), item.bytes, exact_bytes(item.bytes)],
    aligned(item.bytes) > item.bytes ? ["padding", plural(aligned(item.bytes) - item.bytes, "byte"), aligned(item.bytes) - item.bytes] : null,
    ["address", count_words(item.address), item.address, address_text(item)],
    ["life", item.region === "slot" || item.region === shown.plan.level ? rows_words(item.first, item.end - 1) : "all rows of all programs", null,
     life_buttons(item)],
    ["written by", item.writers.join(" "), null, row_buttons(program, item.writers, "the host, or another program")],
    ["read by", item.readers.join(" "), null, row_buttons(program, item.readers, "nothing in " + program.name)],
  ];
  const keeper = keeper_of(program, item);
  if (keeper) facts.push(["kept by", keeper.words, keeper.index]);
  if (item.repeats && item.repeats.length > 1) facts.push(repeats_fact(item));
  if (item.region === "slot") {
    const share = peak_share(program, item);
    facts.push(["without it", share > 0 ? "the peak would be " + bytes_words(share) + " lower" : "the peak would be the same", share]);
    facts.push(...price_facts(program.plan, item.bytes));
  }
  return facts.filter((fact) => fact);
}

function address_text(item) {
  const base = item.region === "slot" ? shown.plan.program_base : item.region === "carried" ? shown.plan.state_bytes : 0;
  return [count_words(item.address), base > 0 ? make("small", {class: "exact"}, " = " + count_words(base) + " + " + count_words(item.offset)) : null];
}

function life_buttons(item) {
  if (item.region !== "slot" && item.region !== shown.plan.level) return "all rows of all programs";
  return [rows_words(item.first, item.end - 1), make("small", {}, " (" + plural(item.end - item.first, "row") + ")")];
}

function row_buttons(program, rows, nothing) {
  if (rows.length === 0) return make("span", {class: "none"}, nothing);
  const button = (r) => make("button", {type: "button", class: "jump", "data-row": r, title: short_name(program.rows[r].link, 60),
                                        onclick: () => select_row(r)},
                             r + " ", make("small", {}, row_words(program.rows[r])));
  const list = make("span", {class: "jumps"}, rows.slice(0, kMostRows).map(button));
  if (rows.length > kMostRows) {
    const more = (event) => event.target.replaceWith(...rows.slice(kMostRows, 400).map(button));
    list.append(make("button", {type: "button", class: "more", onclick: more}, plural(rows.length - kMostRows, "more row")));
  }
  return list;
}

function repeats_fact(item) {
  const at = item.repeats.indexOf(item), text = "made " + item.repeats.length + " times; this is number " + (at + 1);
  return ["again", text, item.repeats.length, [text + " ", make("span", {class: "jumps"}, item.repeats.slice(0, kMostRows).map((again, i) =>
    again === item ? null : make("button", {type: "button", class: "jump", "data-slot": again.id, onclick: () => select_item(again)},
                                 "number " + (i + 1))))]];
}

// Returns the additional cost of the best plan with that much less memory, and the saving with that
// much more.
function price_facts(plan, bytes) {
  const prices = plan.manifest.prices;
  if (!prices) return [["price", "no price: made from a manifest"]];
  const facts = [], price = plan.prices.get(bytes), mebibyte = plan.prices.get(1 << 20);
  if (price) facts.push(["price", price_words(price, prices.unit), price.less, price_lines(price, prices.unit)]);
  else facts.push(["price", "no price for this size"]);
  if (mebibyte && bytes !== 1 << 20) facts.push(["1 MiB", price_words(mebibyte, prices.unit), mebibyte.less, price_lines(mebibyte, prices.unit)]);
  return facts;
}

function price_words(price, unit) {
  const less = price.less === null ? "less: does not fit" : "less: +" + cost_words(price.less, unit);
  return less + "; more: " + (price.more === null ? "not known" : "\u2212" + cost_words(price.more, unit));
}

// Returns lines such as "-6.1 MiB does not fit", "+6.1 MiB saves 9.65% of a step, 1.57% a MiB".
function price_lines(price, unit) {
  const mebibytes = price.bytes / (1 << 20), short = (cost) => (unit === "seconds" ? seconds_words(cost) : share_words(cost));
  const each = (cost) => (price.bytes === 1 << 20 || !cost || mebibytes < 0.01 ? null
                          : make("small", {class: "exact"}, " " + short(cost / mebibytes) + " a MiB"));
  const line = (sign, text, cost) =>
    make("span", {class: "price"}, make("span", {class: "amount"}, sign + bytes_words(price.bytes)), make("span", {}, text, each(cost)));
  return [line("\u2212", price.less === null ? "does not fit" : "costs " + cost_words(price.less, unit), price.less),
          line("+", price.more === null ? "not known" : "saves " + cost_words(price.more, unit), price.more)];
}
