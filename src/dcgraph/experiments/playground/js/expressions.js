// The language of ListOps: [MAX 2 9 [MIN 4 7 ] 0 ] is 9; from text to tokens, tree and values.

import { randomFrom } from "./random.js";

export const TOKENS = ["]", "[MIN", "[MAX", "[MED", ..."0123456789"];
export const CLOSE = 0;
export const ZERO = 4; // the first digit
export const isOperator = (token) => token > CLOSE && token < ZERO;
export const nameOf = (token) => TOKENS[token].replace("[", "");

const KNOWN = "[MIN, [MAX, [MED, ] and the digits 0 to 9";
const VALUES = {
  1: (values) => Math.min(...values),
  2: (values) => Math.max(...values),
  3: median,
};

// The middle one, or the mean of the two in the middle, rounded down.
function median(values) {
  const ordered = [...values].sort((a, b) => a - b);
  const half = values.length >> 1;
  return values.length % 2 ? ordered[half] : (ordered[half - 1] + ordered[half]) >> 1;
}

// The numbers of the tokens of a text; an Error says what is wrong with it.
export function parse(text) {
  const words = text.toUpperCase().replaceAll("[", " [").replaceAll("]", " ] ").split(/\s+/);
  const tokens = words.filter(Boolean).map((word) => {
    const token = TOKENS.indexOf(word);
    if (token < 0) throw new Error(`“${shortened(word)}” is not a token; use ${KNOWN}.`);
    return token;
  });
  treeOf(tokens); // for its complaints
  return tokens;
}

function shortened(word) {
  return word.length > 20 ? `${word.slice(0, 20)}…` : word;
}

export function textOf(tokens) {
  return tokens.map((token) => TOKENS[token]).join(" ");
}

// The operator that each token belongs to (-1 for the root), the value that starts at each token
// (-1 for a bracket), and how many levels of operators are below each token, with itself.
export function treeOf(tokens) {
  if (!tokens.length) throw new Error("Type a formula that begins with [MIN, [MAX or [MED.");
  if (!isOperator(tokens[0])) {
    throw new Error(`A formula begins with [MIN, [MAX or [MED, not with ${TOKENS[tokens[0]]}.`);
  }
  const parents = tokens.map(() => -1);
  const values = tokens.map(() => -1);
  const heights = tokens.map((token) => (isOperator(token) ? 1 : 0));
  const open = []; // operators that are not closed yet, with the values of their arguments
  tokens.forEach((token, position) => {
    const around = open.at(-1);
    if (position && !around) {
      throw new Error(`“${TOKENS[token]}” comes after the last bracket is closed.`);
    }
    if (around) parents[position] = around.position;
    if (token >= ZERO) {
      values[position] = token - ZERO;
      around.values.push(token - ZERO);
    } else if (token !== CLOSE) {
      open.push({ position, values: [] });
    } else {
      const { position: start, values: given } = open.pop();
      if (!given.length) throw new Error(`${TOKENS[tokens[start]]} has no argument; give it one.`);
      values[start] = VALUES[tokens[start]](given);
      const outer = open.at(-1);
      if (outer) {
        outer.values.push(values[start]);
        heights[outer.position] = Math.max(heights[outer.position], heights[start] + 1);
      }
    }
  });
  if (open.length) {
    const brackets = open.length > 1 ? `${open.length} brackets are` : "1 bracket is";
    throw new Error(`${brackets} not closed; add ${" ]".repeat(Math.min(open.length, 8)).trim()}.`);
  }
  return { parents, values, heights };
}

// A random formula of some length: operators have 2 to 5 arguments, as in training.
export function randomFormula(seed, shortest = 12, longest = 26) {
  const random = randomFrom(seed);
  const below = (n) => Math.floor(n * random.uniform());
  const part = (level) => {
    if (level > 1 && (level > 4 || random.uniform() > 0.35)) return [ZERO + below(10)];
    const inside = Array.from({ length: 2 + below(4) }, () => part(level + 1));
    return [1 + below(3), ...inside.flat(), CLOSE];
  };
  for (;;) {
    const tokens = part(1);
    if (tokens.length >= shortest && tokens.length <= longest) return tokens;
  }
}
