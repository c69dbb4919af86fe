// Panel 1: what tau and beta do to the samples of one discrete step.

import { button, cleared, colour, element, percent, range, redrawn, slider, widthOf } from "./dom.js";
import { logDensity, relaxed, shares } from "./noise.js";
import { argmax } from "./numbers.js";
import { randomFrom } from "./random.js";

const NAMES = ["A", "B", "C"];
const TAUS = [0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7, 1, 1.5, 2, 3, 4, 6, 8];
const BETAS = [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1, 1.5, 2, 3, 4, 6, 8];
const COUNTED = 4000; // samples behind the shares
const DOTS = 400; // of them in the picture
const FINE = 3; // pixels of a cell of the density
const EXTREME = 16; // times more or less dense than uniform: the ends of the shading

// How often each category is the largest entry of a sample, and the mean of that entry.
export function winners(samples) {
  const counts = [0, 0, 0];
  let largest = 0;
  for (const z of samples) {
    const best = argmax(z);
    counts[best] += 1;
    largest += z[best] / samples.length;
  }
  return { counts, largest };
}

export function noiseFrom(seed, count = COUNTED) {
  const random = randomFrom(seed);
  return Array.from({ length: count }, () => NAMES.map(random.gumbel));
}

export function startNoise(panel) {
  let seed = 1;
  let noise = noiseFrom(seed);
  let ringed = 0;

  const change = () => draw();
  const tau = slider({ label: "temperature", symbol: "τ", values: TAUS, value: 1, oninput: change });
  const beta = slider({ label: "noise", symbol: "β", values: BETAS, value: 1, oninput: change });
  const logits = NAMES.map((name, i) =>
    slider({
      label: `logit of ${name}`,
      symbol: "θ",
      values: range(-3, 3, 0.1),
      value: [0.7, -0.7, 0][i],
      show: (value) => value.toFixed(1).replace("-", "−"),
      oninput: change,
    }),
  );
  const controls = element(
    "div",
    { class: "controls" },
    tau.element,
    beta.element,
    ...logits.map((one) => one.element),
    element(
      "div",
      { class: "buttons" },
      button("Draw again", () => {
        noise = noiseFrom(++seed);
        draw();
      }),
      button("Ring another sample", () => {
        ringed = (ringed + 1) % DOTS;
        draw();
      }),
    ),
  );
  const canvas = element("canvas", { role: "img" });
  const box = element("div", { class: "picture" }, canvas);
  const bars = NAMES.map((name, i) => shareBar(name, i));
  const strip = element("div", { class: "strip", role: "img" });
  const said = element("p", { class: "said" });
  const numbers = element(
    "div",
    { class: "numbers" },
    element("h3", {}, "Who wins"),
    element("p", { class: "soft" }, "Bar: share of 4,000 samples. Mark: softmax(θ / β)."),
    ...bars.map((bar) => bar.element),
    element("h3", {}, "The ringed sample"),
    strip,
    said,
  );
  panel.append(element("div", { class: "three" }, controls, box, numbers));

  function draw() {
    const theta = logits.map((one) => one.value);
    const samples = noise.map((each) => relaxed(theta, tau.value, beta.value, each));
    const { counts, largest } = winners(samples);
    const expected = shares(theta, beta.value);
    bars.forEach((bar, i) => bar.show(counts[i] / samples.length, expected[i]));
    showStrip(strip, samples[ringed]);
    said.textContent =
      `The largest entry of a sample is ${largest.toFixed(2)} on average: ` +
      (largest > 0.95 ? "nearly a hard choice." : largest > 0.7 ? "a soft choice." : "a mixture.");
    const width = widthOf(box);
    const pen = cleared(canvas, width, Math.round(0.866 * (width - 40) + 44));
    const corners = cornersIn(width);
    if (beta.value > 0) shade(pen, corners, theta, tau.value, beta.value);
    outline(pen, corners);
    dots(pen, corners, samples, beta.value > 0 ? DOTS : 1);
    ring(pen, corners, samples[ringed]);
    canvas.setAttribute(
      "aria-label",
      `Samples in a triangle whose corners are hard choices. ${said.textContent}`,
    );
  }

  redrawn(box, draw);
}

function shareBar(name, i) {
  const bar = element("span", { class: `fill c${i}` });
  const mark = element("span", { class: "mark" });
  const label = element("span", { class: "label" });
  return {
    element: element(
      "div",
      { class: "share" },
      element("b", { class: `c${i}` }, name),
      element("span", { class: "track" }, bar, mark),
      label,
    ),
    show(share, expected) {
      bar.style.width = `${100 * share}%`;
      mark.style.left = `${100 * expected}%`;
      label.textContent = `${percent(share)} drawn, ${percent(expected)} expected`;
    },
  };
}

function showStrip(strip, z) {
  const said = z.map((share, i) => `${NAMES[i]} ${share.toFixed(2)}`).join(", ");
  strip.setAttribute("aria-label", `One sample z: ${said}`);
  strip.replaceChildren(
    ...z.map((share, i) => {
      const part = element("span", { class: `part c${i}` }, share > 0.14 ? share.toFixed(2) : "");
      part.style.width = `${100 * share}%`;
      return part;
    }),
  );
}

function cornersIn(width) {
  const side = width - 40;
  const [top, bottom] = [22, 22 + 0.866 * side];
  return [[width / 2, top], [20, bottom], [20 + side, bottom]];
}

function at(corners, z) {
  return [0, 1].map((axis) => z.reduce((sum, share, i) => sum + share * corners[i][axis], 0));
}

function outline(pen, corners) {
  pen.beginPath();
  corners.forEach(([x, y]) => pen.lineTo(x, y));
  pen.closePath();
  pen.strokeStyle = colour("soft");
  pen.lineWidth = 1;
  pen.stroke();
  pen.font = `600 14px ${colour("font")}`;
  pen.textAlign = "center";
  const places = [[0, -8], [-2, 18], [2, 18]];
  corners.forEach(([x, y], i) => {
    pen.fillStyle = colour(`c${i}`);
    pen.fillText(NAMES[i], x + places[i][0], y + places[i][1]);
  });
}

// The density of samples, as shading on a logarithmic scale.
function shade(pen, corners, theta, tau, beta) {
  const [[, top], [left, bottom], [right]] = corners;
  pen.fillStyle = colour("ink");
  for (let y = top; y < bottom; y += FINE) {
    for (let x = left; x < right; x += FINE) {
      const a = (bottom - y - FINE / 2) / (bottom - top);
      const c = (x + FINE / 2 - left) / (right - left) - a / 2;
      const b = 1 - a - c;
      if (Math.min(a, b, c) <= 0) continue;
      const density = logDensity([a, b, c], theta, tau, beta) - Math.LN2; // uniform: log 2
      const level = Math.min(1, Math.max(0, 0.5 + density / (2 * Math.log(EXTREME))));
      pen.globalAlpha = 0.3 * level;
      pen.fillRect(x, y, FINE, FINE);
    }
  }
  pen.globalAlpha = 1;
}

function dots(pen, corners, samples, count) {
  const colours = NAMES.map((_, i) => colour(`c${i}`));
  pen.globalAlpha = count > 1 ? 0.75 : 1;
  for (const z of samples.slice(0, count)) {
    const [x, y] = at(corners, z);
    pen.fillStyle = colours[argmax(z)];
    pen.beginPath();
    pen.arc(x, y, count > 1 ? 2 : 5, 0, 7);
    pen.fill();
  }
  pen.globalAlpha = 1;
}

function ring(pen, corners, z) {
  const [x, y] = at(corners, z);
  pen.beginPath();
  pen.arc(x, y, 7, 0, 7);
  pen.strokeStyle = colour("ink");
  pen.lineWidth = 2;
  pen.stroke();
}
