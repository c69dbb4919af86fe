// Panel 3: two drawn digits, the symbols they get, and their sum.

import { SIDE } from "./adder.js";
import { argmax } from "./numbers.js";
import { button, cleared, colour, element, percent } from "./dom.js";
import { imageOf, writtenDigit } from "./drawing.js";

const PEN = 0.09; // width of a line, in units of the canvas

export function startDigits(panel, model) {
  const places = ["first", "second"].map((name, i) => new Place(name, i, [3, 5][i], show));
  const answer = element("output", { class: "answer", "aria-live": "polite" });
  const note = element("p", { class: "soft" });
  const strip = symbolStrip(model);
  const table = additionTable(model);
  panel.append(
    element(
      "div",
      { class: "sum" },
      places[0].element,
      element("span", { class: "operator", "aria-hidden": "true" }, "+"),
      places[1].element,
      element("span", { class: "total" }, element("span", { class: "operator" }, "="), answer),
    ),
    note,
    element(
      "div",
      { class: "two even" },
      element(
        "div",
        {},
        element("h3", {}, "Its 19 symbols"),
        element(
          "p",
          { class: "soft" },
          "Below each stands the digit that it commonly stands for. Grey ones are spare.",
        ),
        strip.element,
      ),
      element(
        "div",
        {},
        element("h3", {}, "The addition table it learned"),
        element("p", { class: "soft" }, "Computed from symbols only; no image is involved."),
        table.element,
      ),
    ),
  );

  function show() {
    const symbols = places.map((place) => (place.strokes.length ? model.read(place.image) : null));
    places.forEach((place, i) => place.say(symbols[i], model));
    strip.light(symbols);
    if (symbols.includes(null)) {
      answer.textContent = "?";
      note.textContent = "Draw a digit in both boxes.";
      table.light(-1, -1);
      return;
    }
    const [a, b] = symbols.map((symbol) => model.meaning[symbol]);
    const sum = model.sum(...symbols);
    answer.textContent = sum;
    note.textContent = remark(model, symbols, sum);
    table.light(a, b);
  }

  places.forEach((place) => place.draw());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () =>
    places.forEach((place) => place.draw()),
  );
}

// What is unusual about symbols and sum.
function remark(model, symbols, sum) {
  const meanings = symbols.map((symbol) => model.meaning[symbol]);
  const [a, b] = meanings;
  if (meanings.includes(-1)) return "No training image got this symbol, so it stands for nothing.";
  if (sum !== a + b) return `The symbols stand for ${a} and ${b}, but their sum came out as ${sum}.`;
  const spare = symbols.find((symbol, i) => model.digits[meanings[i]] !== symbol);
  if (spare !== undefined) {
    const digit = model.meaning[spare];
    return `Symbol ${spare} is a spare one: most images of a ${digit} get symbol ${model.digits[digit]}.`;
  }
  return `Symbol ${symbols[0]} and symbol ${symbols[1]} make ${sum}.`;
}

// A box to draw in, and what the model makes of it.
class Place {
  constructor(name, number, digit, changed) {
    this.changed = changed;
    this.seed = 1;
    this.strokes = writtenDigit(digit, this.seed);
    this.image = imageOf(this.strokes);
    this.canvas = element("canvas", {
      class: "paper",
      tabindex: 0,
      role: "application",
      "aria-roledescription": "drawing area",
      "aria-label": `The ${name} digit. Draw, or press 0 to 9 to write a digit, Delete to clear.`,
    });
    this.preview = element("canvas", { class: "preview", width: SIDE, height: SIDE, role: "img" });
    this.said = element("p", { class: "symbol-said", "aria-live": "polite" });
    this.element = element(
      "div",
      { class: `place c${number}` },
      this.canvas,
      element(
        "div",
        { class: "read" },
        this.preview,
        this.said,
      ),
      element(
        "div",
        { class: "buttons" },
        button("Clear", () => this.clear(), { "aria-label": `Clear the ${name} digit` }),
        button("Another", () => this.write(Math.floor(this.seed * 7 + 3 * number) % 10), {
          "aria-label": `Write another digit as the ${name} one`,
        }),
      ),
    );
    this.listen();
  }

  listen() {
    let pointer = null;
    const point = (event) => {
      const box = this.canvas.getBoundingClientRect();
      const border = this.canvas.clientLeft;
      return [event.clientX - box.left, event.clientY - box.top].map(
        (distance) => (distance - border) / this.canvas.clientWidth,
      );
    };
    this.canvas.addEventListener("pointerdown", (event) => {
      if (pointer !== null || event.button) return;
      pointer = event.pointerId;
      this.canvas.setPointerCapture(pointer);
      this.strokes = [...this.strokes, [point(event)]];
      this.draw();
    });
    this.canvas.addEventListener("pointermove", (event) => {
      if (event.pointerId !== pointer) return;
      const between = event.getCoalescedEvents?.() ?? [];
      this.strokes.at(-1).push(...(between.length ? between : [event]).map(point));
      this.draw();
    });
    for (const end of ["pointerup", "pointercancel"]) {
      this.canvas.addEventListener(end, (event) => {
        if (event.pointerId === pointer) pointer = null;
      });
    }
    this.canvas.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (/^\d$/.test(event.key)) this.write(Number(event.key));
      else if (event.key === "Delete" || event.key === "Backspace") this.clear();
      else return;
      event.preventDefault();
    });
  }

  clear() {
    this.strokes = [];
    this.draw();
  }

  write(digit) {
    this.strokes = writtenDigit(digit, ++this.seed);
    this.draw();
  }

  draw() {
    this.image = imageOf(this.strokes);
    const side = this.canvas.clientWidth || 168;
    const pen = cleared(this.canvas, side, side);
    this.canvas.style.height = ""; // which follows from the width
    pen.strokeStyle = colour("ink");
    pen.lineWidth = PEN * side;
    pen.lineCap = pen.lineJoin = "round";
    for (const stroke of this.strokes) {
      pen.beginPath();
      stroke.forEach(([x, y]) => pen.lineTo(x * side, y * side));
      if (stroke.length === 1) pen.lineTo(stroke[0][0] * side, stroke[0][1] * side);
      pen.stroke();
    }
    const view = this.preview.getContext("2d");
    const shown = view.createImageData(SIDE, SIDE);
    this.image.forEach((value, k) => {
      shown.data.set([255, 255, 255, Math.round(127.5 * (value + 1))], 4 * k);
    });
    view.clearRect(0, 0, SIDE, SIDE);
    view.putImageData(shown, 0, 0);
    this.changed();
  }

  say(symbol, model) {
    this.preview.setAttribute("aria-label", "The image as the model sees it, 28 by 28 pixels");
    if (symbol === null) {
      this.said.replaceChildren("nothing yet");
      return;
    }
    const counts = model.use[symbol];
    const total = counts.reduce((sum, count) => sum + count, 0);
    const meaning = model.meaning[symbol];
    const sure = total ? percent(counts[argmax(counts)] / total, 0) : "";
    this.said.replaceChildren(
      element("b", {}, `symbol ${symbol}`),
      element("br"),
      meaning < 0 ? "stands for nothing" : `stands for ${meaning}`,
    );
    this.said.title = total ? `${sure} of ${total.toLocaleString("en")} training images` : "";
  }
}

function symbolStrip(model) {
  const chips = model.meaning.map((meaning, symbol) =>
    element(
      "li",
      { class: meaning < 0 ? "unused" : model.digits[meaning] === symbol ? "" : "spare" },
      element("span", {}, String(symbol)),
      element("b", {}, meaning < 0 ? "·" : String(meaning)),
    ),
  );
  return {
    element: element("ol", { class: "symbols", "aria-label": "Symbols and their digits" }, ...chips),
    light(symbols) {
      chips.forEach((chip, symbol) => {
        chip.classList.toggle("first", symbol === symbols[0]);
        chip.classList.toggle("second", symbol === symbols[1]);
      });
    },
  };
}

function additionTable(model) {
  const digits = model.digits.map((_, digit) => digit);
  const cells = digits.map((a) =>
    digits.map((b) => {
      const sum = model.sum(model.digits[a], model.digits[b]);
      return element("td", { class: sum === a + b ? "" : "wrong" }, String(sum));
    }),
  );
  const rowHeads = digits.map((a) => element("th", { scope: "row" }, String(a)));
  const heads = digits.map((b) => element("th", { scope: "col" }, String(b)));
  const head = element("tr", {}, element("th", { scope: "col" }, "+"), ...heads);
  const rows = digits.map((a) => element("tr", {}, rowHeads[a], ...cells[a]));
  return {
    element: element(
      "table",
      { class: "learned" },
      element("thead", {}, head),
      element("tbody", {}, ...rows),
    ),
    light(a, b) {
      digits.forEach((i) => {
        rowHeads[i].classList.toggle("first", i === a);
        heads[i].classList.toggle("second", i === b);
        digits.forEach((j) => {
          cells[i][j].classList.toggle("along", (i === a) !== (j === b) && a >= 0 && b >= 0);
          cells[i][j].classList.toggle("lit", i === a && j === b);
        });
      });
    },
  };
}
