// The shipped model of ListOps: it chooses a parent for each token, then computes in rounds.
//
// In each round every token sends its parent a message, and becomes a digit by what it receives.
// States are always one of 14 vectors, so the messages are a small table.

import { add, argmax, linear, logSigmoid, relu, rowOf, softplus } from "./numbers.js";
import { CLOSE, TOKENS, ZERO, isOperator } from "./expressions.js";

const FEWEST = 5; // rounds, as in training

export function listopsOf(weights) {
  const embedding = weights.embedding;
  const embeddings = TOKENS.map((_, token) => rowOf(embedding, token));
  const increments = ternary(weights["edges.encode.increments"]);
  const distance = weights["edges.encode.distance"].data;
  const scale = weights["edges.encode.scale"].data.map(softplus);
  const bias = weights["edges.encode.bias"];

  const toReceiver = embeddings.map((vector) =>
    linear(weights["message.of_receiver.weight"], vector, weights["message.of_receiver.bias"]),
  );
  const fromSender = embeddings.map((vector) => linear(weights["message.of_sender.weight"], vector));
  // By the token that receives, then by the state that sends.
  const messages = TOKENS.map((_, receiver) =>
    isOperator(receiver)
      ? fromSender.map((sent) => {
          const hidden = relu(add(toReceiver[receiver], sent));
          return relu(linear(weights["message.last.weight"], hidden, weights["message.last.bias"]));
        })
      : [],
  );

  // Logits of the ten digits from a state.
  function digitLogits(state) {
    const hidden = relu(linear(weights["value.g.0.weight"], state, weights["value.g.0.bias"]));
    return linear(weights["value.g.2.weight"], hidden);
  }

  // log p(j is the parent of i), for j before i: that j is the nearest token that matches.
  function edgeScores(tokens) {
    const before = countersBefore(tokens, increments);
    return tokens.map((token, i) => {
      const scores = new Float64Array(i);
      let refused = 0; // log of the chance that none between j and i matches
      for (let j = i - 1; j >= 0; j--) {
        let match = bias.data[token * TOKENS.length + tokens[j]];
        for (let k = 0; k < distance.length; k++) {
          match -= scale[k] * (before[i][k] - before[j][k] - distance[k]) ** 2;
        }
        scores[j] = refused + (j ? logSigmoid(match) : 0); // the first token takes the rest
        refused += logSigmoid(-match);
      }
      return scores;
    });
  }

  // The parent that the model chooses for each token; -1 for those that send nothing.
  function chooseParents(tokens) {
    return edgeScores(tokens).map((scores, i) => {
      if (!i || tokens[i] === CLOSE) return -1;
      return argmax(scores.map((score, j) => (isOperator(tokens[j]) ? score : -Infinity)));
    });
  }

  // Digits after every round of messages along these edges, and the logits after the last.
  function follow(tokens, parents, rounds) {
    const after = [];
    let states = tokens;
    let logits = [];
    for (let round = 0; round < rounds; round++) {
      const sums = tokens.map((token) => embeddings[token]);
      parents.forEach((parent, child) => {
        if (parent >= 0) sums[parent] = add(sums[parent], messages[tokens[parent]][states[child]]);
      });
      logits = sums.map(digitLogits);
      after.push(logits.map(argmax));
      states = after.at(-1).map((digit) => ZERO + digit);
    }
    return { values: after, logits };
  }

  // What the model makes of a formula, with as many rounds as its own tree has levels.
  function read(tokens) {
    const parents = chooseParents(tokens);
    return { parents, ...follow(tokens, parents, Math.max(FEWEST, levels(parents))) };
  }

  return { edgeScores, chooseParents, follow, read };
}

// The most edges between the root and a token.
function levels(parents) {
  let most = 0;
  const depth = parents.map(() => 0);
  parents.forEach((parent, i) => {
    if (parent >= 0) depth[i] = depth[parent] + 1; // parents stand before their children
    most = Math.max(most, depth[i]);
  });
  return most;
}

// Each column as -g, 0 and g: what is more than half of its largest, by the mean size of these.
function ternary({ shape: [rows, columns], data }) {
  return Array.from({ length: rows }, (_, i) =>
    Array.from({ length: columns }, (_, k) => {
      const column = Array.from({ length: rows }, (_, row) => Math.abs(data[row * columns + k]));
      const large = column.filter((size) => size > 0.5 * Math.max(...column));
      const value = data[i * columns + k];
      const g = large.reduce((sum, size) => sum + size, 0) / Math.max(1, large.length);
      return Math.abs(value) > 0.5 * Math.max(...column) ? Math.sign(value) * g : 0;
    }),
  );
}

// For each token what all tokens before it add to the counters.
function countersBefore(tokens, increments) {
  let sum = increments[0].map(() => 0);
  return tokens.map((token) => {
    const before = sum;
    sum = add(sum, increments[token]);
    return before;
  });
}
