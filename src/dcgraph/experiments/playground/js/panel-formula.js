// Panel 4: the shipped ListOps model parses and computes a formula, round by round.

import { button, drawn, element, playButton, played, round, text } from "./dom.js";
import {
  CLOSE, ZERO, isOperator, nameOf, parse, randomFormula, textOf, treeOf,
} from "./expressions.js";

const EXAMPLES = {
  "A small one": "[MAX 2 9 [MIN 4 7 ] 0 ]",
  "A deep one": "[MIN 8 [MAX 1 [MED 2 [MIN 9 [MAX 3 5 ] ] 7 ] 0 ] 6 ]",
  "One it gets wrong": "[MED 4 6 [MED 7 6 0 ] [MIN 6 [MIN 0 3 3 2 3 ] ] ]",
};
const [LEFT, CELL, LEVEL, ROW, EDGE] = [62, 34, 54, 21, 12];
const HALF = 15; // of a node

export function startFormula(panel, model) {
  let seed = 0;
  let reading = null;
  let stage = 0;

  const input = element("input", {
    type: "text",
    id: "formula-text",
    spellcheck: "false",
    autocomplete: "off",
    autocapitalize: "characters",
    maxlength: 300,
    "aria-describedby": "formula-said",
  });
  const said = element("p", { class: "said", id: "formula-said", role: "status" });
  const slide = element("input", { type: "range", min: 0, step: 1, "aria-label": "Step" });
  const stageName = element("span", { class: "stage-name" });
  const back = button("Back", () => go(stage - 1));
  const next = button("Next", () => go(stage + 1));
  const player = playButton("Play", (done) =>
    played(stages(reading), 0.9 * stages(reading), (k) => show(k), done),
  );
  const picture = drawn("svg", { role: "img" });
  const picks = Object.entries(EXAMPLES).map(([name, formula]) => button(name, () => use(formula)));
  panel.append(
    element(
      "div",
      { class: "field" },
      element("label", { for: "formula-text" }, "Formula"),
      input,
    ),
    element(
      "div",
      { class: "buttons" },
      ...picks,
      button("A random one", () => use(textOf(randomFormula(++seed)))),
    ),
    said,
    element("div", { class: "steps" }, back, next, player.element, slide, stageName),
    element("div", { class: "wide", tabindex: 0, role: "group", "aria-label": "Tree" }, picture),
    element(
      "p",
      { class: "legend soft" },
      "Faint: too early to be right. Red: wrong. Dashed: a wrong parent; dotted green: the right one.",
    ),
  );

  input.addEventListener("input", () => read());
  slide.addEventListener("input", () => go(Number(slide.value)));

  function use(formula) {
    input.value = formula;
    read();
  }

  function read() {
    player.stop();
    try {
      const tokens = parse(input.value);
      reading = { tokens, truth: treeOf(tokens), ...model.read(tokens) };
      input.removeAttribute("aria-invalid");
    } catch (mistake) {
      input.setAttribute("aria-invalid", "true");
      said.className = "said wrong";
      said.textContent = mistake.message;
      return;
    }
    slide.max = stages(reading) - 1;
    show(stages(reading) - 1);
  }

  function go(to) {
    player.stop();
    show(Math.min(stages(reading) - 1, Math.max(0, to)));
  }

  function show(to) {
    stage = to;
    slide.value = stage;
    slide.style.setProperty("--share", `${(100 * stage) / (stages(reading) - 1)}%`);
    back.disabled = stage === 0;
    next.disabled = stage === stages(reading) - 1;
    stageName.textContent = stageText(reading, stage);
    slide.setAttribute("aria-valuetext", stageName.textContent);
    const { words, right } = verdict(reading);
    said.className = `said ${right ? "right" : "wrong"}`;
    said.textContent = words;
    drawReading(picture, reading, stage);
    picture.setAttribute("aria-label", `${textOf(reading.tokens)}, ${stageName.textContent}`);
  }

  use(EXAMPLES["A small one"]);
}

// Stage 0 has only tokens, stage 1 edges too, and each further one a round of messages.
function stages({ values }) {
  return values.length + 2;
}

function stageText({ values }, stage) {
  if (stage === 0) return "the tokens";
  if (stage === 1) return "edges chosen";
  return `round ${stage - 1} of ${values.length}`;
}

function verdict({ tokens, truth, parents, values }) {
  const answer = values.at(-1)[0];
  const right = answer === truth.values[0];
  const sends = tokens.map((token, k) => k > 0 && token !== CLOSE);
  const edges = tokens.filter((_, k) => sends[k]).length;
  const good = tokens.filter((_, k) => sends[k] && parents[k] === truth.parents[k]).length;
  const words = right ? "right" : `wrong, it is ${truth.values[0]}`;
  return { words: `= ${answer}, ${words}. ${good} of ${edges} edges are right.`, right };
}

function drawReading(picture, reading, stage) {
  const { tokens, truth, parents, values } = reading;
  const level = levelsOf(tokens, parents);
  const x = (k) => LEFT + CELL * k + CELL / 2;
  const y = (k) => EDGE + HALF + LEVEL * level[k];
  const shown = (k) => tokens[k] !== CLOSE;
  const foot = EDGE + LEVEL * Math.max(...level) + 2 * HALF + EDGE;
  const parts = [];
  if (stage >= 1) {
    tokens.forEach((_, k) => {
      if (parents[k] >= 0) parts.push(...edge(reading, k, x, y));
    });
  }
  tokens.forEach((_, k) => {
    if (shown(k)) parts.push(nodeOf(reading, k, x(k), y(k), stage));
  });
  parts.push(drawn("path", { class: "rule", d: `M${EDGE} ${foot}H${x(tokens.length) - CELL / 2}` }));
  rowsOf(reading, stage).forEach(([name, cells], row) => {
    const baseline = foot + ROW * row + 16;
    parts.push(text(EDGE, baseline, name, { class: "row" }));
    cells.forEach(([cell, kind], k) => {
      parts.push(text(x(k), baseline, cell, { class: kind, "text-anchor": "middle" }));
    });
  });
  const width = LEFT + CELL * tokens.length + EDGE;
  const height = foot + ROW * (values.length + 1) + EDGE;
  picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
  picture.setAttribute("width", width);
  picture.setAttribute("height", height);
  picture.replaceChildren(...parts);
}

// How deep each token is in the tree that the model chose.
function levelsOf(tokens, parents) {
  const level = tokens.map(() => 0);
  parents.forEach((parent, k) => {
    if (parent >= 0) level[k] = level[parent] + 1;
  });
  return level;
}

function edge({ parents, truth }, k, x, y) {
  const [childX, childY, parentX, parentY] = [x(k), y(k), x(parents[k]), y(parents[k])];
  if (parents[k] === truth.parents[k]) {
    const bend = parentY + LEVEL / 2;
    return [
      drawn("path", { class: "edge", d: `M${childX} ${childY}V${bend}H${parentX}V${parentY}` }),
    ];
  }
  const [rightX, rightY] = [x(truth.parents[k]), y(truth.parents[k])];
  return [
    drawn("path", { class: "missed", d: `M${childX} ${childY}L${rightX} ${rightY}` }),
    drawn("path", { class: "edge wrong", d: `M${childX} ${childY}L${parentX} ${parentY}` }),
  ];
}

function nodeOf({ tokens, truth, values }, k, x, y, stage) {
  const digit = tokens[k] >= ZERO;
  const value = stage >= 2 ? values[stage - 2][k] : null;
  const early = stage - 1 < truth.heights[k];
  const wrong = value !== null && !early && value !== truth.values[k];
  const box = { x: round(x - HALF), y: round(y - HALF), width: 2 * HALF, height: 2 * HALF };
  const parts = [drawn("rect", { ...box, rx: digit ? HALF : 5 })];
  if (wrong) parts.push(drawn("title", {}, `it is ${truth.values[k]}`));
  if (digit && !wrong) {
    parts.push(text(x, y + 5, nameOf(tokens[k]), { class: "value", "text-anchor": "middle" }));
  } else {
    const high = value === null ? y + 4 : y - 3;
    parts.push(text(x, high, nameOf(tokens[k]), { class: "name", "text-anchor": "middle" }));
  }
  if (value !== null && (!digit || wrong)) {
    const kind = `value${early ? " early" : wrong ? " wrong" : ""}`;
    parts.push(text(x, y + 11, String(value), { class: kind, "text-anchor": "middle" }));
  }
  return drawn("g", { class: `node${wrong ? " wrong" : ""}` }, ...parts);
}

// The tokens, and their values after each round so far.
function rowsOf({ tokens, truth, values }, stage) {
  const rows = [["tokens", tokens.map((token) => [isOperator(token) ? nameOf(token) : textOf([token]), "name"])]];
  values.slice(0, Math.max(0, stage - 1)).forEach((after, k) => {
    const cells = after.map((value, position) => {
      if (tokens[position] === CLOSE) return ["·", "early"];
      if (k + 1 < truth.heights[position]) return [String(value), "early"];
      return [String(value), value === truth.values[position] ? "value" : "value wrong"];
    });
    rows.push([`round ${k + 1}`, cells]);
  });
  return rows;
}
