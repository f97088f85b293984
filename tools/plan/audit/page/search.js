// Finds slots, state, links and rows by a part of their name, in all programs of the plan.
"use strict";

const kMostFound = 30;
let found = [], marked = 0;

// Returns [{label, note, go}], this program's slots first. "row 40", or a number, is a row.
function search_for(text) {
  const wanted = text.trim().toLowerCase(), results = [];
  if (wanted === "") return results;
  const number = wanted.match(/^(?:row )?(\d+)$/);
  if (number && Number(number[1]) < shown.program.rows.length) {
    const row = Number(number[1]);
    results.push({label: "row " + row, note: row_words(shown.program.rows[row]), go: () => select_row(row)});
  }
  const names = [shown.program.name, ...program_names(shown.plan).filter((name) => name !== shown.program.name)];
  for (const name of names) {
    const program = open_program(shown.plan, name), own = program === shown.program;
    for (const item of own ? [...program.items, ...program.spilled] : program.slots) {
      if (results.length === kMostFound) return results;
      if (item.name.toLowerCase().includes(wanted)) results.push(found_item(program, item));
    }
  }
  return [...results, ...search_links(wanted)].slice(0, kMostFound);
}

function found_item(program, item) {
  const where = item.region === "slot" ? program.name + ", " + rows_words(item.first, item.end - 1) : item.region;
  return {item, label: short_name(item.name, 60), note: kind_words(item.kind) + ", " + bytes_words(item.bytes) + ", " + where,
          go: () => { show_program(program.name); select_item(item); }};
}

function search_links(wanted) {
  return shown.plan.links.filter((link) => String(link).toLowerCase().includes(wanted)).slice(0, kMostFound).map((link) => ({
    label: short_name(link, 60), note: "link", go: () => {
      const row = shown.program.rows.findIndex((each) => each.link === link);
      if (row >= 0) select_row(row);
    }}));
}

function follow_search() {
  const field = element_of("search");
  field.addEventListener("input", () => { found = search_for(field.value); marked = 0; refresh_found(); });
  field.addEventListener("focus", () => { found = search_for(field.value); refresh_found(); });
  field.addEventListener("keydown", (event) => {
    if (event.key === "Escape") { found = []; refresh_found(); field.value = ""; field.blur(); element_of("map").focus({preventScroll: true}); return; }
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      marked = Math.max(0, Math.min(found.length - 1, marked + (event.key === "ArrowDown" ? 1 : -1)));
      refresh_found();
    }
    if (event.key === "Enter" && found[marked]) take_found(marked);
  });
  field.addEventListener("blur", () => setTimeout(() => { if (!element_of("found").contains(document.activeElement)) { found = []; refresh_found(); } }, 150));
}

function take_found(index) {
  const result = found[index];
  found = [];
  refresh_found();
  element_of("search").blur();
  result.go();
}

function refresh_found() {
  const field = element_of("search"), list = element_of("found"),
        nothing = found.length === 0 && field.value.trim() !== "" && document.activeElement === field;
  list.hidden = found.length === 0 && !nothing;
  field.setAttribute("aria-expanded", String(!list.hidden));
  field.setAttribute("aria-activedescendant", found.length > 0 ? "found-" + marked : "");
  fill(list, nothing ? make("li", {class: "empty"}, "nothing has this name") : found.map((result, i) =>
    make("li", {id: "found-" + i, role: "option", "aria-selected": String(i === marked),
                onpointerdown: (event) => { event.preventDefault(); take_found(i); }},
         result.item ? make("i", {class: "key", style: result.item.paint ? "background:" + result.item.paint.text : null}) : null,
         make("span", {class: "item-name"}, result.label), make("small", {}, result.note))));
  const current = list.querySelector('[aria-selected="true"]');
  if (current) current.scrollIntoView({block: "nearest"});
}
