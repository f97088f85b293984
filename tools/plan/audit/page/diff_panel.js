// Shows the changes from plan A to plan B: the effect on the whole, and every changed slot by name.
"use strict";

const kChanges = ["appeared", "vanished", "grew", "shrank", "more_often", "less_often", "moved", "lives_longer", "lives_shorter"];

function diff_panel(panel) {
  const diff = shown.data.diff, changes = listed_changes();
  fill(panel, diff_sides(diff), diff_totals(diff), change_filter(diff),
       make("div", {class: "list-head"}, make("span", {}, plural(changes.length, "change") + " in " + shown.program.name),
            make("button", {type: "button", class: "csv", onclick: () => save_csv("changes", changes_csv())}, "CSV")),
       change_list(changes));
}

function diff_sides(diff) {
  const name = (plan) => (diff.a.name === diff.b.name ? "" : short_name(plan.name, 30) + ", ") + bytes_words(plan.planned_bytes);
  const side = (index, plan) =>
    make("button", {type: "button", "aria-pressed": String(shown.plan_index === index), "data-side": index, onclick: () => show({plan_index: index})},
         "Map of " + "AB"[index] + "  ", make("small", {}, name(plan)));
  return make("div", {class: "sides", role: "group", "aria-label": "Which plan the map shows"}, side(0, diff.a), side(1, diff.b));
}

function diff_totals(diff) {
  const bytes = (name, a, b) => [name, bytes_or_none(a), bytes_or_none(b), a === b ? "the same" : change_words((b || 0) - (a || 0))];
  const lines = [bytes("arena", diff.a.planned_bytes, diff.b.planned_bytes), bytes("peak", diff.peak.a, diff.peak.b),
                 ...diff.regions.map((region) => bytes(region.name, region.a, region.b))];
  const costs = (name, key, words) => {
    const a = diff.a[key], b = diff.b[key];
    if (typeof a !== "number" || typeof b !== "number") return;
    lines.push([name, words(a), words(b), a === b ? "the same" : (b > a ? "+" : "\u2212") + words(Math.abs(b - a))]);
  };
  costs("a step", "predicted_seconds", seconds_words);
  costs("extra work", "extra_forward_cost", (share) => percent_words(share));
  return make("table", {class: "totals"}, make("thead", {}, make("tr", {}, ["", "A", "B", "change"].map((head) => make("th", {scope: "col"}, head)))),
    make("tbody", {}, lines.map((line) => make("tr", {"data-total": line[0]}, make("th", {scope: "row"}, line[0]),
                                               line.slice(1).map((text) => make("td", {}, text))))));
}

function bytes_or_none(bytes) { return bytes === null || bytes === undefined ? "none" : bytes_words(bytes); }

function changes_of_program() { return shown.data.diff.slots.filter((change) => change.program === shown.program.name); }

// Returns the chosen changes, the largest first.
function listed_changes() {
  const size = (change) => Math.abs((change.bytes_b || 0) - (change.bytes_a || 0));
  return changes_of_program().filter((change) => shown.change === "all" || change.change === shown.change).sort((a, b) => size(b) - size(a));
}

function change_filter() {
  const all = changes_of_program(), kinds = kChanges.filter((kind) => all.some((change) => change.change === kind));
  const count = (kind) => (kind === "all" ? all : all.filter((change) => change.change === kind)).length;
  return make("div", {class: "group filter", role: "group", "aria-label": "Kind of change"}, ["all", ...kinds].map((kind) =>
    make("button", {type: "button", "aria-pressed": String(shown.change === kind), "data-change": kind, onclick: () => show({change: kind})},
         kind_words(kind) + " ", make("small", {}, count_words(count(kind))))));
}

function change_list(changes) {
  const list = make("ol", {class: "items changes"}, changes.slice(0, most_listed()).map((change) => make("li", {},
    make("button", {type: "button", "data-changed": change.name.slice(0, 200), onclick: () => select_change(change)},
         make("small", {class: "change " + (kChanges.includes(change.change) ? change.change : "")}, kind_words(change.change)),
         make("span", {class: "item-name"}, short_name(change.name, 60)),
         make("b", {}, change_text(change))))));
  if (changes.length > most_listed()) list.append(unlisted(changes, "change"));
  return list;
}

function change_text(change) {
  const a = change.bytes_a || 0, b = change.bytes_b || 0;
  return a === b ? bytes_words(b) : change_words(b - a);
}

// Selects the slot in the plan that has it.
function select_change(change) {
  const side = shown.plan_index, ids = side === 1 ? change.b : change.a;
  if (!ids || ids.length === 0) show({plan_index: 1 - side});
  const item = shown.program.by_id.get(change.program + ":" + (shown.plan_index === 1 ? change.b : change.a)[0]);
  if (item) select_item(item);
}
