// The shipped model of path queries: ComplEx that chooses an entity after each relation.
//
// Relations are numbered from 0 to R - 1, and R + r is the inverse of relation r. A query is decoded
// by beam search among the candidates of each relation; of width 1 that is the argmax. What a known
// triple leads to is marked with the first split that has it, all else is new.

import { linear, logSumExp, rowOf } from "./numbers.js";

const LOST = 0.02; // the share of triples that a set of candidates may lose
const Z = 1.645; // one-sided, 95 per cent
const LOWEST = -30; // logarithms below are as good as that

export function pathsOf({ weights, graph, beam, temperature, calibration }) {
  const { entities, relations } = graph;
  const count = entities.length;
  const doubled = 2 * relations.length;
  const inverse = (relation) => (relation + relations.length) % doubled;
  const splits = Object.keys(graph.triples);
  const isNew = splits.length; // the mark
  const marks = [...splits.map((split) => (split === "train" ? "training" : split)), "new"];
  const known = knownGraphs(graph);
  const everything = known.at(-1);
  const candidates = candidatesIn(everything, count, doubled, inverse);
  const vectors = entities.map((_, entity) => rowOf(weights.entities, entity));
  const steps = new Map(); // those that were asked for, by source and relation
  const ofRelations = Array.from({ length: doubled }, (_, k) => rowOf(weights.relations, k));

  // Scores of all entities as the end of (source, relation).
  function scores(source, relation) {
    const [a, b] = [vectors[source], ofRelations[relation]];
    const half = a.length / 2;
    const product = new Float64Array(a.length);
    for (let i = 0; i < half; i++) {
      product[i] = a[i] * b[i] - a[half + i] * b[half + i];
      product[half + i] = a[i] * b[half + i] + a[half + i] * b[i];
    }
    return Array.from(linear(weights.entities, product));
  }

  // Log-probabilities of the answers to a single relation, all of them candidates.
  function step(source, relation) {
    const key = source * doubled + relation;
    if (!steps.has(key)) {
      const allowed = candidates[relation];
      const found = scores(source, relation).map((score, entity) =>
        allowed[entity] ? temperature * score : -Infinity,
      );
      steps.set(key, logSoftmax(found));
    }
    return steps.get(key);
  }

  // After each relation: the shares of all entities, as logarithms, those kept, the best first, and
  // the entity before that gave most of each share.
  function search(source, path, width) {
    let at = [source];
    let weight = [0];
    return path.map((relation) => {
      const parts = at.map((entity, k) => step(entity, relation).map((part) => part + weight[k]));
      const totals = entities.map((_, entity) => logSumExp(parts.map((part) => part[entity])));
      const shares = logSoftmax(totals);
      const before = entities.map((_, entity) => {
        let best = 0;
        for (let k = 1; k < at.length; k++) if (parts[k][entity] > parts[best][entity]) best = k;
        return at[best];
      });
      at = best(shares, width);
      weight = logSoftmax(at.map((entity) => shares[entity]));
      return { shares, kept: at, before };
    });
  }

  // The mark of every entity after each relation.
  function marksOf(source, path) {
    const found = path.map(() => entities.map(() => isNew));
    for (let mark = isNew - 1; mark >= 0; mark--) {
      let reached = new Set([source]);
      path.forEach((relation, hop) => {
        reached = new Set([...reached].flatMap((entity) => endsOf(known[mark], entity, relation)));
        for (const entity of reached) found[hop][entity] = mark;
      });
    }
    return found;
  }

  // The entities from the source to an answer: of a known one a way of known triples, of a new one
  // the way that gave most of its share.
  function wayTo(source, answer, path, beams, found) {
    const mark = found.at(-1)[answer];
    const way = [answer];
    for (let hop = path.length - 1; hop > 0; hop--) {
      const end = way[0];
      if (mark === isNew) {
        way.unshift(beams[hop].before[end]);
        continue;
      }
      const options = endsOf(known[mark], end, inverse(path[hop]))
        .filter((entity) => found[hop - 1][entity] <= mark)
        .sort((a, b) => a - b);
      const share = (entity) => Math.max(-1e9, beams[hop - 1].shares[entity]);
      way.unshift(options.reduce((a, b) => (share(b) > share(a) ? b : a)));
    }
    return [source, ...way];
  }

  function markOfTriple(head, relation, tail) {
    const mark = known.findIndex((one) => endsOf(one, head, relation).includes(tail));
    return mark < 0 ? isNew : mark;
  }

  // How likely each new entity is right, as calibrated for beam searches of the width of training.
  function probabilities(hops, shares, mark) {
    const lengths = Object.keys(calibration).map(Number);
    if (!lengths.length) return null;
    const shorter = lengths.filter((length) => length <= hops);
    const [a, b, c] = calibration[shorter.length ? Math.max(...shorter) : Math.min(...lengths)];
    const unknown = logSumExp(shares.map((s, entity) => (mark[entity] === isNew ? s : -Infinity)));
    const clipped = (value) => (Number.isNaN(value) ? 0 : Math.min(0, Math.max(LOWEST, value)));
    return shares.map((share) => {
      const logit = a * clipped(share - unknown) + b * clipped(unknown) + c;
      return 1 / (1 + Math.exp(-logit));
    });
  }

  // A query and its answers, the best first; all of them, or only new ones.
  function answer(source, path, width, top, onlyNew = false) {
    const beams = search(source, path, width);
    const found = marksOf(source, path);
    const stop = (hop, entity) => {
      const chances = width === beam ? probabilities(hop + 1, beams[hop].shares, found[hop]) : null;
      const mark = found[hop][entity];
      return {
        entity,
        mark,
        share: Math.exp(beams[hop].shares[entity]),
        probability: mark === isNew && chances ? chances[entity] : null,
      };
    };
    const possible = (hop) => (entity) => beams[hop].shares[entity] > -Infinity;
    const last = path.length - 1;
    return {
      hops: beams.slice(0, -1).map(({ kept }, hop) =>
        kept.filter(possible(hop)).map((entity) => stop(hop, entity)),
      ),
      answers: best(beams[last].shares, entities.length)
        .filter((entity) => possible(last)(entity) && !(onlyNew && found[last][entity] !== isNew))
        .slice(0, top)
        .map((entity) => {
          const way = wayTo(source, entity, path, beams, found);
          const steps = path.map((relation, k) => ({
            ends: [way[k], way[k + 1]],
            relation,
            mark: markOfTriple(way[k], relation, way[k + 1]),
          }));
          return { ...stop(last, entity), steps };
        }),
      candidates: candidates[path[last]].filter(Boolean).length,
      known: marks.slice(0, -1).map((_, mark) => found[last].filter((m) => m === mark).length),
    };
  }

  return {
    ...{ entities, relations, beam, marks, isNew, inverse, scores, answer },
    relationName: (relation) =>
      relation < relations.length ? relations[relation] : `**${relations[inverse(relation)]}`,
    // The relations that lead on from an entity in the graph.
    leadingOn: (entity) =>
      Array.from({ length: doubled }, (_, k) => k).filter((k) => endsOf(everything, entity, k).length),
  };
}

function logSoftmax(values) {
  const total = logSumExp(values);
  return values.map((value) => value - total);
}

// The places of the largest values, the largest first.
function best(values, count) {
  const places = values.map((_, place) => place);
  return places.sort((a, b) => values[b] - values[a] || a - b).slice(0, count);
}

// For each split the triples of it and of those before, both ways: from an entity, by relation.
function knownGraphs({ entities, relations, triples }) {
  const steps = entities.map(() => new Map());
  const connect = (entity, relation, end) => {
    steps[entity].set(relation, [...(steps[entity].get(relation) ?? []), end]);
  };
  return Object.values(triples).map((some) => {
    for (const [head, relation, tail] of some) {
      connect(head, relation, tail);
      connect(tail, relation + relations.length, head);
    }
    return steps.map((ends) => new Map(ends));
  });
}

function endsOf(graph, entity, relation) {
  return graph[entity].get(relation) ?? [];
}

// Which entities each relation can lead to: its known ends, or entities of their kind, or all;
// the smallest set that loses few triples if each is left out in turn.
function candidatesIn(graph, count, doubled, inverse) {
  const every = Array.from({ length: doubled }, (_, k) => k);
  const together = every.map(() => new Float64Array(doubled));
  for (const steps of graph) {
    for (const a of steps.keys()) for (const b of steps.keys()) together[a][b] += 1;
  }
  const triples = new Float64Array(doubled);
  const lost = { range: new Float64Array(doubled), kind: new Float64Array(doubled) };
  for (const steps of graph) {
    for (const [relation, ends] of steps) {
      triples[relation] += ends.length;
      if (ends.length > 1) continue;
      lost.range[inverse(relation)] += 1;
      const others = [...steps.keys()].filter((other) => other !== relation);
      const stays = !others.length || others.some((other) => together[relation][other] > 1);
      if (!stays) lost.kind[inverse(relation)] += 1;
    }
  }
  const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);
  const kindIsSafe = upperEnd(sum(lost.kind), sum(triples)) <= LOST;
  return every.map((relation) => {
    const end = inverse(relation);
    if (upperEnd(lost.range[relation], triples[relation]) <= LOST) {
      return graph.map((steps) => steps.has(end));
    }
    if (lost.kind[relation] <= LOST * triples[relation] && kindIsSafe) {
      return graph.map(
        (steps) => !steps.size || [...steps.keys()].some((k) => k === end || together[end][k] > 0),
      );
    }
    return Array(count).fill(true);
  });
}

// Of Wilson's interval for the share that is lost.
function upperEnd(lost, triples) {
  if (!triples) return 1;
  const [share, square] = [lost / triples, (Z * Z) / triples];
  const spread = Z * Math.sqrt((share * (1 - share)) / triples + square / (4 * triples));
  return (share + square / 2 + spread) / (1 + square);
}
