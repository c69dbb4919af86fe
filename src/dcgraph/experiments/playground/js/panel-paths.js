// Panel 5: a path of relations through a graph, from entity to entity.

import { button, element, percent } from "./dom.js";
import { randomFrom } from "./random.js";

const LONGEST = 5; // relations of a path
const KEPT = 4; // entities shown after each relation
const TOP = 8; // answers
const FIRST = { source: "human", path: ["isa", "isa"] };

const readable = (name) => name.replaceAll("_", " ");

export function startPaths(panel, model) {
  let source = model.entities.indexOf(FIRST.source);
  let path = FIRST.path.map((name) => relationOf(model, name));
  let seed = 0;

  const names = model.entities.map(readable);
  const list = element("datalist", { id: "entities" }, ...names.map((name) => element("option", { value: name })));
  const input = element("input", {
    type: "text",
    id: "paths-source",
    list: "entities",
    spellcheck: "false",
    autocomplete: "off",
    "aria-describedby": "paths-said",
  });
  const relations = element("div", { class: "relations" });
  const said = element("p", { class: "said", id: "paths-said", role: "status" });
  const decoders = ["argmax", `beam search of width ${model.beam}`].map((name, k) => {
    const radio = element("input", { type: "radio", name: "decoder", id: `decoder-${k}` });
    radio.checked = k === 1;
    radio.addEventListener("change", () => show());
    return { radio, element: element("label", { class: "radio" }, radio, name) };
  });
  const onlyNew = element("input", { type: "checkbox", id: "only-new", role: "switch" });
  onlyNew.addEventListener("change", () => show());
  const result = element("div", { class: "walk" });
  panel.append(
    list,
    element(
      "div",
      { class: "query" },
      element("div", { class: "field" }, element("label", { for: "paths-source" }, "From"), input),
      relations,
    ),
    element(
      "div",
      { class: "buttons" },
      element(
        "fieldset",
        { class: "decoders" },
        element("legend", {}, "Decode by"),
        ...decoders.map((one) => one.element),
      ),
      element("label", { class: "switch", for: "only-new" }, onlyNew, "only new answers"),
      button("A random question", () => {
        [source, path] = randomQuestion(model, ++seed);
        fill();
      }),
    ),
    said,
    result,
  );

  input.addEventListener("input", () => {
    const found = names.indexOf(readable(input.value.trim().toLowerCase()));
    if (found < 0) {
      complain(nearest(names, input.value));
      return;
    }
    source = found;
    fill(false);
  });
  input.addEventListener("focus", () => input.select());

  function complain(words) {
    input.setAttribute("aria-invalid", "true");
    said.className = "said wrong";
    said.textContent = words;
  }

  function fill(write = true) {
    if (write) input.value = names[source];
    input.removeAttribute("aria-invalid");
    relations.replaceChildren(
      ...path.map((relation, hop) => relationField(hop, relation)),
      ...(path.length < LONGEST ? [button("Add a relation", addRelation)] : []),
    );
    show();
  }

  function relationField(hop, relation) {
    const before = hop ? entitiesAfter(hop) : [source];
    const likely = new Set(before.flatMap((entity) => model.leadingOn(entity)));
    const select = element("select", { "aria-label": `Relation ${hop + 1}` });
    const all = Array.from({ length: 2 * model.relations.length }, (_, k) => k);
    const group = (label, some) =>
      element(
        "optgroup",
        { label },
        ...some.map((k) => element("option", { value: k, selected: k === relation }, arrowed(model, k))),
      );
    select.append(
      group("known to lead on", all.filter((k) => likely.has(k))),
      group("others", all.filter((k) => !likely.has(k))),
    );
    select.addEventListener("change", () => {
      path = path.map((old, k) => (k === hop ? Number(select.value) : old));
      fill();
      relations.querySelectorAll("select")[hop].focus();
    });
    const remove = button("×", () => removeRelation(hop), {
      class: "remove",
      "aria-label": `Remove relation ${hop + 1}`,
    });
    remove.disabled = path.length === 1;
    return element("span", { class: "hop" }, select, remove);
  }

  function entitiesAfter(hop) {
    const { answers } = model.answer(source, path.slice(0, hop), model.beam, KEPT);
    return answers.map((one) => one.entity);
  }

  function addRelation() {
    const leading = new Set(entitiesAfter(path.length).flatMap((entity) => model.leadingOn(entity)));
    path = [...path, leading.size ? Math.min(...leading) : 0];
    fill();
    relations.querySelectorAll("select")[path.length - 1].focus();
  }

  function removeRelation(hop) {
    path = path.filter((_, k) => k !== hop);
    fill();
    relations.querySelectorAll("select")[Math.min(hop, path.length - 1)].focus();
  }

  function show() {
    const width = decoders[0].radio.checked ? 1 : model.beam;
    const found = model.answer(source, path, width, TOP, onlyNew.checked);
    said.className = "said";
    said.textContent = summary(model, found);
    result.replaceChildren(...columns(model, { source, path, found, names }));
  }

  fill();
}

function relationOf(model, name) {
  const plain = model.relations.indexOf(name.replace("**", ""));
  return name.startsWith("**") ? model.inverse(plain) : plain;
}

// A relation as it is read from left to right; the arrow of an inverse one points back.
function arrowed(model, relation) {
  const name = readable(model.relationName(relation).replace("**", ""));
  return relation < model.relations.length ? `${name} →` : `← ${name}`;
}

function summary(model, { candidates, known }) {
  const counts = known
    .map((count, mark) => (count ? `${count} in ${model.marks[mark]}` : ""))
    .filter(Boolean);
  const said = counts.length ? `The graph knows ${counts.join(", ")}.` : "The graph knows no answer.";
  return `${said} ${candidates} entities are candidates.`;
}

function nearest(names, text) {
  const begin = text.trim().toLowerCase();
  const some = names.filter((name) => begin && name.includes(begin)).slice(0, 4);
  return some.length ? `Go on: ${some.join(", ")}.` : "There is no such name; choose one of the list.";
}

// The source, what is kept after each relation, and the answers.
function columns(model, { source, path, found, names }) {
  const made = [
    element(
      "div",
      { class: "column" },
      element("h3", {}, "from"),
      element("ol", {}, element("li", {}, element("b", {}, names[source]))),
    ),
  ];
  found.hops.forEach((stops, hop) => {
    const rows = stops.slice(0, KEPT).map((one) => stopRow(model, one, names));
    if (stops.length > KEPT) {
      rows.push(element("li", { class: "more" }, `and ${stops.length - KEPT} more`));
    }
    made.push(column(arrowed(model, path[hop]), rows));
  });
  const rows = found.answers.map((one) => {
    const row = stopRow(model, one, names);
    row.append(element("p", { class: "way" }, wayText(model, one, names)));
    return row;
  });
  made.push(column(arrowed(model, path.at(-1)), rows, "answers"));
  return made;
}

function column(title, rows, kind = "") {
  return element("div", { class: `column ${kind}` }, element("h3", {}, title), element("ol", {}, ...rows));
}

function stopRow(model, { entity, mark, share, probability }, names) {
  const isNew = mark === model.isNew;
  const bar = element("span", { class: "bar" });
  bar.style.width = `${100 * share}%`;
  const right = probability === null ? "" : `, probability ${chance(probability)}`;
  return element(
    "li",
    { class: isNew ? "new" : mark ? "unseen" : "seen" },
    element("b", {}, names[entity]),
    element("span", { class: "share-of" }, percent(share, share < 0.0995 ? 1 : 0)),
    element("span", { class: "track" }, bar),
    element("span", { class: "mark-of" }, isNew ? `new${right}` : `in ${model.marks[mark]}`),
  );
}

// Never all and never nothing, because nobody knows.
function chance(probability) {
  if (probability >= 0.995) return "> 99 %";
  return probability < 0.01 ? "< 1 %" : percent(probability, 0);
}

// The entities between, and the triples that are not of training.
function wayText(model, { steps }, names) {
  const between = steps.slice(1).map(({ ends }) => names[ends[0]]);
  const parts = between.length ? [`by ${between.join(", ")}`] : [];
  for (const { ends, relation, mark } of steps) {
    if (mark === 0 || !between.length) continue;
    const forward = relation < model.relations.length;
    const [head, tail] = forward ? ends : [ends[1], ends[0]];
    const name = readable(model.relationName(forward ? relation : model.inverse(relation)));
    const kind = mark === model.isNew ? "guess" : model.marks[mark];
    parts.push(`${kind}: ${names[head]} ${name} ${names[tail]}`);
  }
  return parts.join("; ");
}

// A walk of two or three known triples.
function randomQuestion(model, seed) {
  const random = randomFrom(seed);
  const one = (list) => list[Math.floor(list.length * random.uniform())];
  const source = one(model.entities.map((_, entity) => entity));
  const path = [];
  let at = source;
  const length = 2 + (random.uniform() < 0.4);
  while (path.length < length) {
    const relation = one(model.leadingOn(at));
    if (relation === undefined) break;
    path.push(relation);
    at = model.answer(at, [relation], 1, 1).answers[0].entity;
  }
  return path.length ? [source, path] : randomQuestion(model, seed + 1000);
}
