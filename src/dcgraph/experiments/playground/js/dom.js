// Elements of the page: made, filled and followed.

const SVG = "http://www.w3.org/2000/svg";

function filled(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

// element("p", { class: "soft", onclick: f }, "text", child)
export function element(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

// The same for the parts of a drawing.
export function drawn(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

export function text(x, y, content, attributes = {}) {
  return drawn("text", { x: round(x), y: round(y), ...attributes }, content);
}

export function round(value) {
  return Math.round(100 * value) / 100;
}

let sliders = 0;

// A slider over a list of values. `show` turns a value into what stands beside it.
export function slider({ label, symbol, values, value, show = String, oninput }) {
  const id = `slider-${++sliders}`;
  const input = element("input", { type: "range", id, min: 0, max: values.length - 1, step: 1 });
  const shown = element("span", { class: "value", "aria-hidden": "true" });
  const name = element(
    "label",
    { for: id },
    ...(symbol ? [element("i", { class: "symbol" }, symbol), " "] : []),
    label,
  );
  const update = () => {
    const said = show(values[input.value]);
    shown.textContent = said;
    input.setAttribute("aria-valuetext", said);
    input.style.setProperty("--share", `${(100 * input.value) / (values.length - 1)}%`);
  };
  const set = (next) => {
    const distances = values.map((each) => Math.abs(each - next));
    input.value = distances.indexOf(Math.min(...distances));
    update();
  };
  set(value);
  input.addEventListener("input", () => {
    update();
    oninput();
  });
  return {
    element: element("div", { class: "slider" }, name, shown, input),
    get value() {
      return values[input.value];
    },
    set,
    enable(on) {
      input.disabled = !on;
    },
  };
}

export function button(label, onclick, attributes = {}) {
  return element("button", { type: "button", onclick, ...attributes }, label);
}

export function range(first, last, step) {
  const count = Math.round((last - first) / step);
  return Array.from({ length: count + 1 }, (_, k) => Math.round(1e6 * (first + k * step)) / 1e6);
}

// Calls `draw` now, and again when the width of a box or the colours of the page change.
export function redrawn(box, draw) {
  let width = 0;
  const watch = new ResizeObserver(() => {
    if (box.clientWidth !== width) {
      width = box.clientWidth;
      draw();
    }
  });
  watch.observe(box);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
}

// How wide a drawing in a box may be; a box that is not shown yet has no width of its own.
export function widthOf(box) {
  return Math.max(240, box.clientWidth);
}

// A canvas as wide as it is shown, in units of CSS pixels, empty.
export function cleared(canvas, width, height) {
  const sharp = devicePixelRatio || 1;
  canvas.width = Math.round(width * sharp);
  canvas.height = Math.round(height * sharp);
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext("2d");
  pen.scale(sharp, sharp);
  return pen;
}

export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

export function percent(share, digits = 1) {
  return `${(100 * share).toFixed(digits)} %`;
}

// Runs `step(0)`, ..., `step(count - 1)`, then `done`; returns what stops it.
export function played(count, seconds, step, done) {
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const stride = calm ? Math.max(1, Math.round(count / 5)) : 1;
  let next = 0;
  let timer = 0;
  const advance = () => {
    step(Math.min(next, count - 1));
    if (next >= count - 1) {
      done();
      return;
    }
    next += stride;
    timer = setTimeout(advance, (1000 * seconds * stride) / count);
  };
  advance();
  return () => {
    clearTimeout(timer);
    done();
  };
}

// A button that plays something and, while it plays, stops it.
export function playButton(label, play) {
  let stop = null;
  const made = button(label, () => {
    if (stop) {
      stop();
      return;
    }
    made.textContent = "Stop";
    let over = false;
    const done = () => {
      over = true;
      stop = null;
      made.textContent = label;
    };
    const stopping = play(done);
    if (!over) stop = stopping;
  });
  return { element: made, stop: () => stop?.() };
}
