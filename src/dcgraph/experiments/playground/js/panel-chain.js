// Panel 2: the gradient along a chain of discrete nodes, computed anew for every setting.

import { LONGEST, chainOf, gradients, noiseOf } from "./chain.js";
import {
  button, drawn, element, percent, playButton, played, range, redrawn, round, slider, text, widthOf,
} from "./dom.js";

const TAUS = [0.1, 0.15, 0.2, 0.25, 0.35, 0.5, 0.7, 1, 1.5, 2, 3, 4, 6, 8, 12, 16];
const BETAS = [0, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4, 6, 8, 12, 16];
const [LOWEST, HIGHEST] = [-16, 2]; // of the axis, powers of ten
const STEPS = 60; // of the schedule that is played
const TEN = { "-": "⁻", ...Object.fromEntries([..."⁰¹²³⁴⁵⁶⁷⁸⁹"].map((c, i) => [i, c])) };

export function startChain(panel) {
  const chain = chainOf(1);
  let seed = 1;
  let noise = noiseOf(seed);

  const change = () => {
    player.stop();
    draw();
  };
  const length = slider({ label: "nodes", values: range(2, LONGEST, 1), value: 10, oninput: change });
  const tau = slider({ label: "temperature", symbol: "τ", values: TAUS, value: 8, oninput: change });
  const beta = slider({ label: "noise", symbol: "β", values: BETAS, value: 1, oninput: change });
  const alpha = slider({
    label: "share of dropped residuals",
    symbol: "α",
    values: range(0, 1, 0.05),
    value: 0.5,
    show: (value) => value.toFixed(2),
    oninput: change,
  });
  alpha.enable(false);
  const on = element("input", { type: "checkbox", id: "dropres", role: "switch" });
  on.addEventListener("change", () => {
    alpha.enable(on.checked);
    change();
  });
  const player = playButton("Play a training schedule", (done) => {
    on.checked = true;
    alpha.enable(true);
    return playSchedule(done);
  });
  const controls = element(
    "div",
    { class: "controls" },
    length.element,
    tau.element,
    beta.element,
    element("label", { class: "switch", for: "dropres" }, on, "DropRes"),
    alpha.element,
    element(
      "div",
      { class: "buttons" },
      player.element,
      button("Draw new noise", () => {
        noise = noiseOf(++seed);
        change();
      }),
    ),
  );
  const picture = drawn("svg", { role: "img" });
  const box = element("div", { class: "picture" }, picture);
  const said = element("p", { class: "said", role: "status" });
  panel.append(
    element("div", { class: "two" }, controls, element("div", { class: "result" }, said, box)),
  );

  // As in training: alpha grows from 0 to 1, and TempMatch lets beta grow from 0 to tau.
  function playSchedule(done) {
    const stop = playedSteps((share) => {
      alpha.set(share);
      beta.set(share * tau.value);
      draw({ alpha: share, beta: share * tau.value });
    }, done);
    return stop;
  }

  function draw(exact = {}) {
    const setting = {
      length: length.value,
      tau: tau.value,
      beta: beta.value,
      alpha: on.checked ? alpha.value : 1,
      ...exact,
    };
    const found = gradients(chain, noise, setting);
    const without = on.checked ? gradients(chain, noise, { ...setting, alpha: 1 }) : null;
    said.textContent = summary(found, setting, on.checked);
    drawCurves(picture, widthOf(box), found.size, without?.size);
    picture.setAttribute("aria-label", `Gradient at each of the nodes. ${said.textContent}`);
  }

  redrawn(box, () => draw());
}

function playedSteps(step, done) {
  return played(STEPS, 6, (k) => step(k / (STEPS - 1)), done);
}

function summary({ size, saturated }, { length }, dropres) {
  const ratio = size[0] / size[length - 1];
  const mean = saturated.reduce((sum, share) => sum + share, 0) / length;
  const state = dropres ? "With DropRes the" : "The";
  return (
    `${state} first node gets ${times(ratio)} the gradient of the last one. ` +
    `${percent(mean, 0)} of the choices are saturated.`
  );
}

// A ratio in words: 3.0 times, 24 % of, 1/4,000 of.
function times(ratio) {
  if (!(ratio > 0)) return "nothing of";
  if (ratio >= 0.95) return `${ratio.toFixed(1)} times`;
  if (ratio >= 0.01) return `${percent(ratio, 0)} of`;
  const inverse = 1 / ratio;
  if (inverse < 1e7) return `1/${Number(inverse.toPrecision(2)).toLocaleString("en")} of`;
  return `1/10${superscript(Math.round(Math.log10(inverse)))} of`;
}

function superscript(number) {
  return [...String(number)].map((character) => TEN[character]).join("");
}

// The gradients on a logarithmic axis above the nodes; those without DropRes beside them.
function drawCurves(picture, width, size, without) {
  const height = Math.round(Math.min(360, Math.max(240, 0.6 * width)));
  const [left, right, top, bottom] = [44, 16, 22, 46];
  const x = (k) => left + ((k + 0.5) * (width - left - right)) / size.length;
  const power = (value) => Math.max(LOWEST, Math.min(HIGHEST, Math.log10(value || 1e-99)));
  const y = (value) =>
    top + ((HIGHEST - power(value)) * (height - top - bottom)) / (HIGHEST - LOWEST);
  const parts = [];
  for (let exponent = LOWEST; exponent <= HIGHEST; exponent += 2) {
    const level = y(10 ** exponent);
    parts.push(
      drawn("path", { class: "grid", d: `M${left} ${round(level)}H${width - right}` }),
    );
    if (exponent % 4 === 0) {
      const label = exponent ? `10${superscript(exponent)}` : "1";
      parts.push(text(left - 8, level + 4, label, { "text-anchor": "end" }));
    }
  }
  if (without) {
    parts.push(...curve(without, x, y, "without"));
    parts.push(text(x(0), y(without[0]) + 20, "without DropRes", { class: "without" }));
  }
  parts.push(...curve(size, x, y, "with"));
  if (without) parts.push(text(x(0), y(size[0]) - 12, "with DropRes", { class: "with" }));
  parts.push(text(left, 11, "mean |gradient|"));
  const base = height - bottom + 16;
  parts.push(
    drawn("path", { class: "wire", d: `M${round(x(0))} ${base}H${round(x(size.length - 1))}` }),
  );
  const radius = Math.min(9, (width - left - right) / size.length / 2.6);
  size.forEach((value, k) => {
    const alive = (power(value) - LOWEST) / (-2 - LOWEST);
    parts.push(drawn("circle", { class: "node", cx: round(x(k)), cy: base, r: round(radius) }));
    parts.push(
      drawn("circle", {
        class: "alive",
        cx: round(x(k)),
        cy: base,
        r: round(radius),
        opacity: round(Math.min(1, Math.max(0, alive)) ** 2),
      }),
    );
  });
  parts.push(text(x(0) - radius, height - 6, "first node", { class: "end" }));
  parts.push(
    text(x(size.length - 1) + radius, height - 6, "last node, then the loss", {
      "text-anchor": "end",
      class: "end",
    }),
  );
  picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
  picture.replaceChildren(...parts);
}

function curve(values, x, y, kind) {
  const points = values.map((value, k) => `${round(x(k))} ${round(y(value))}`);
  return [
    drawn("path", { class: `curve ${kind}`, d: `M${points.join("L")}` }),
    ...values.map((value, k) =>
      drawn(
        "circle",
        { class: `dot ${kind}`, cx: round(x(k)), cy: round(y(value)), r: 3.5 },
        drawn("title", {}, `node ${k + 1}: ${value.toExponential(1)}`),
      ),
    ),
  ];
}
