// Specs through `llmem estimate`. Where it refuses something of a spec, what can stand in for it is asked instead, and noted.
import { spawnSync } from 'node:child_process';

import { replacements } from './tables.mjs';

const mostRounds = 8;

function answers(llmem, specs) {
  if (specs.length === 0) return [];
  const input = specs.map((spec) => JSON.stringify(spec)).join('\n') + '\n';
  const run = spawnSync(llmem, ['estimate'], { input, encoding: 'utf8', maxBuffer: 2 ** 31 });
  if (run.error?.code === 'ENOENT') throw run.error;
  const lines = run.stdout.split('\n').slice(0, -1).slice(0, specs.length);
  const found = lines.map(readAnswer);
  if (found.length === specs.length) return found;
  return [...found, noAnswer, ...answers(llmem, specs.slice(found.length + 1))];  // it fell over one of them
}

const noAnswer = { ok: false, problems: [{ at: '', code: 'crash', message: 'llmem gave no answer' }] };

function readAnswer(line) {
  try {
    return JSON.parse(line);
  } catch {
    return noAnswer;
  }
}

// The object and key that a JSON pointer names, or null.
function place(spec, pointer) {
  const keys = pointer.split('/').slice(1), last = keys.pop();
  let object = spec;
  for (const key of keys) object = object?.[key];
  return object && typeof object === 'object' && last !== undefined ? [object, last] : null;
}

const fits = (value, pattern) => pattern === undefined || (pattern instanceof RegExp ? pattern.test(value) : value === pattern);

// Puts the first replacement that applies to the problem into the spec; its words, or null if there is none.
function replace(spec, problem) {
  for (const { at, place: instead, from, to, with: others, says } of replacements) {
    const found = at.test(problem.at) ? place(spec, instead ?? problem.at) : null;
    if (!found || !(found[1] in found[0])) continue;
    const [object, key] = found;
    if (!fits(object[key], from) || object[key] === to) continue;
    if (to === undefined) delete object[key];
    else Object.assign(object, { [key]: to }, others);
    return says;
  }
  return null;
}

const anotherTransformers = replacements.find(({ at, from }) => from === undefined && at.test('/software/transformers')).says;
const isMixture = ({ assumptions }) => assumptions.some(({ text }) => /\bexperts\b/.test(text));

// The weights alone are too much, whatever modules hold them.
const failsToLoad = ({ ranks }) => ranks.some(({ out_of_memory: failed }) => failed && failed.after === null);

// Where a pipeline's row does not say which rank was read, its largest was: the first or the last stage's.
export function estimateStages(llmem, entries) {
  const open = entries.filter(({ spec, report, anyRank }) => report && anyRank && spec.parallel.pipeline?.degree > 1);
  const { data, tensor, pipeline, context } = Object.fromEntries(['data', 'tensor', 'pipeline', 'context'].map((key) => [key, (spec) => spec.parallel[key]?.degree ?? 1]));
  const last = (spec) => data(spec) * tensor(spec) * pipeline(spec) * context(spec) - 1;
  const results = answers(llmem, open.map(({ spec }) => ({ ...spec, parallel: { ...spec.parallel, rank: last(spec) } })));
  open.forEach((entry, i) => {
    const { ok, value } = results[i];
    if (!ok || value.ranks[0].device_total <= entry.report.ranks[0].device_total) return;
    entry.report = value;
    entry.spec.parallel.rank = last(entry.spec);
  });
}

// entries: [{spec}] → each gets `report`, or `problems`, and `replaced`: what stands in for what.
export function estimate(llmem, entries) {
  let open = entries;
  for (const entry of entries) entry.replaced = [];
  for (let round = 0; round < mostRounds && open.length > 0; ++round) {
    const results = answers(llmem, open.map(({ spec }) => spec));
    open = open.filter((entry, i) => {
      const { ok, value, problems } = results[i];
      entry.report = ok ? value : undefined;
      entry.problems = ok ? undefined : problems;
      const whole = !entry.spec.training.base_quantization;  // which leaves version 5's experts as they are
      if (ok && entry.spec.software?.stack !== 'megatron' && isMixture(value) && entry.replaced.includes(anotherTransformers) && !(whole && failsToLoad(value))) {
        entry.report = undefined;
        entry.problems = [{ at: '/software/transformers', code: 'unsupported',
          message: 'before version 5 experts are Linears of their own, called one by one; version 5\'s cannot stand in for them' }];
      }
      if (ok) return false;
      const first = problems.filter(({ at }, k) => problems.findIndex((other) => other.at === at) === k);  // one change of a place at a time
      const words = first.map((problem) => replace(entry.spec, problem));
      entry.replaced.push(...new Set(words.filter((word) => word && !entry.replaced.includes(word))));
      return words.every(Boolean);
    });
  }
}
