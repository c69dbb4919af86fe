// Makes the models of the data that the build put into the page, and starts the panels with them.

import { adderOf } from "./adder.js";
import { chainOf, gradients, noiseOf } from "./chain.js";
import { imageOf, writtenDigit } from "./drawing.js";
import { parse, randomFormula, textOf, treeOf } from "./expressions.js";
import { listopsOf } from "./listops.js";
import { logDensity, relaxed, shares } from "./noise.js";
import { startChain } from "./panel-chain.js";
import { startDigits } from "./panel-digits.js";
import { startFormula } from "./panel-formula.js";
import { noiseFrom, startNoise, winners } from "./panel-noise.js";
import { startPaths } from "./panel-paths.js";
import { pathsOf } from "./paths.js";
import { unpacked } from "./weights.js";

function dataOf(name) {
  return JSON.parse(document.getElementById(`data-${name}`).textContent);
}

const { weights: ofAddition, use } = dataOf("addition");
const addition = adderOf(unpacked(ofAddition), use);
const listops = listopsOf(unpacked(dataOf("listops").weights));
const { weights: ofPaths, ...aboutPaths } = dataOf("paths");
const paths = pathsOf({ weights: unpacked(ofPaths), ...aboutPaths });

// For the console of the browser, and for tests.
globalThis.dcgraph = {
  ...{ addition, imageOf, writtenDigit },
  ...{ listops, parse, randomFormula, textOf, treeOf },
  ...{ chainOf, gradients, noiseOf },
  ...{ paths },
  ...{ logDensity, noiseFrom, relaxed, shares, winners },
};

const starts = {
  noise: startNoise,
  chain: startChain,
  digits: (panel) => startDigits(panel, addition),
  formula: (panel) => startFormula(panel, listops),
  paths: (panel) => startPaths(panel, paths),
};
for (const [name, start] of Object.entries(starts)) {
  start(document.querySelector(`#${name} .stage`));
}
document.documentElement.dataset.ready = "true";
