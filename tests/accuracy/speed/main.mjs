// Scores step times: node main.mjs ROWS.json [--rows] [--floors FLOORS.json]. See ../README.md.
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';

import { readPresets } from '../measurements/models.mjs';
import { questionOf } from './row_to_question.mjs';

const root = new URL('../../../', import.meta.url).pathname;
const llmem = process.env.LLMEM ?? `${root}build/native-release/llmem`;

// The named part that the efficiencies of core/time were fitted on; everything else only checks them.
const fitted = /fms-acceleration|llm-foundry|InternEvo|SimuMax/;
const near = 0.95;

const median = (numbers) => {
  const sorted = [...numbers].sort((a, b) => a - b), n = sorted.length;
  return n === 0 ? NaN : (sorted[Math.floor((n - 1) / 2)] + sorted[Math.ceil((n - 1) / 2)]) / 2;
};
const quantile = (numbers, q) => [...numbers].sort((a, b) => a - b)[Math.min(numbers.length - 1, Math.floor(q * numbers.length))];
const percent = (part) => `${(100 * part).toFixed(1)} %`.padStart(8);

function ask(entries) {
  const input = entries.map(({ question }) => JSON.stringify(question)).join('\n') + '\n';
  const run = spawnSync(llmem, ['time'], { input, encoding: 'utf8', maxBuffer: 2 ** 30 });
  if (run.error) throw run.error;
  const lines = run.stdout.split('\n');
  entries.forEach((entry, i) => {
    const answer = lines[i] ? JSON.parse(lines[i]) : { ok: false, problems: [{ message: 'no answer' }] };
    if (answer.ok) entry.time = answer.value;
    else entry.refused = `${answer.problems[0].at} ${answer.problems[0].message}`;
  });
}

const read = JSON.parse(readFileSync(process.argv[2], 'utf8'));
const rows = Array.isArray(read) ? read : read.rows;
const presets = readPresets(`${root}presets/models/`);
const entries = rows.map((row) => ({ row, ...questionOf(row, presets) }));
ask(entries.filter(({ question }) => question));
for (const entry of entries) {
  if (!entry.time) continue;
  entry.predicted = entry.time.milli_tokens_per_second / 1000;
  entry.ratio = entry.predicted / entry.row.tokens_per_s_per_gpu;
  entry.off = Math.abs(entry.ratio - 1);
}

function summary(name, chosen) {
  const answered = chosen.filter(({ time }) => time), off = answered.map((entry) => entry.off);
  const ratio = median(answered.map((entry) => entry.ratio));
  console.log(`${name.padEnd(52)} ${String(answered.length).padStart(4)} of ${String(chosen.length).padStart(4)}  median error ${percent(median(off))}  90th ${percent(quantile(off, 0.9))}  median ratio ${ratio.toFixed(2)}`);
}

const groups = Map.groupBy ? Map.groupBy(entries, ({ row }) => row.group) : entries.reduce((map, entry) => map.set(entry.row.group, [...(map.get(entry.row.group) ?? []), entry]), new Map());

// With floors, which are what was measured: only says which are missed.
function checkFloors(floors) {
  let passed = 0, failed = 0;
  const check = (what, holds, is, floor) => {
    if (holds) return ++passed;
    console.log(`MISSED ${what} is ${is}, not ${floor}`);
    return ++failed;
  };
  for (const part of ['fitted', 'checked']) {
    const answered = entries.filter(({ row, time }) => time && fitted.test(row.source) === (part === 'fitted'));
    const off = median(answered.map((entry) => entry.off)), floor = floors[part];
    check(`${part}, answered`, answered.length >= floor.answered, answered.length, floor.answered);
    check(`${part}, median error`, off <= floor.median, off, floor.median);
  }
  for (const [name, kinds] of [['groups_by_layout', (list) => list.includes('strategy')], ['groups_of_all_kinds', () => true]]) {
    const { right, all } = scoreGroups(kinds), floor = floors[name];
    check(`${name}, right`, right >= floor.right, right, floor.right);
    check(`${name}, all`, all >= floor.all, all, floor.all);
  }
  console.log(`speed: ${passed} passed, ${failed} failed`);
  return failed === 0;
}

const sources = [...new Set(rows.map(({ source }) => source))];
const floorsAt = process.argv.indexOf('--floors');
if (floorsAt > 0) process.exit(checkFloors(JSON.parse(readFileSync(process.argv[floorsAt + 1], 'utf8'))) ? 0 : 1);
for (const [title, part] of [['fitted', true], ['checked', false]]) {
  const chosen = entries.filter(({ row }) => fitted.test(row.source) === part);
  summary(title.toUpperCase(), chosen);
  for (const source of sources.filter((each) => fitted.test(each) === part)) summary(`  ${source}`, chosen.filter(({ row }) => row.source === source));
}

// A group that differs in how it is split: is what we call fastest the fastest, or within 5 % of it?
function scoreGroups(kinds) {
  let right = 0, all = 0;
  const wrong = [];
  for (const [name, members] of groups) {
    const answered = members.filter(({ time }) => time);
    if (answered.length < 2 || !kinds(members[0].row.group_kinds ?? [])) continue;
    ++all;
    const best = Math.max(...answered.map(({ row }) => row.tokens_per_s_per_gpu));
    const chosen = answered.reduce((a, b) => (b.predicted > a.predicted ? b : a));
    if (chosen.row.tokens_per_s_per_gpu >= near * best) ++right;
    else wrong.push(`    ${name}: ${chosen.row.id}, ${percent(chosen.row.tokens_per_s_per_gpu / best)} of the fastest`);
  }
  return { right, all, wrong };
}
for (const [title, kinds] of [['by layout', (kinds) => kinds.includes('strategy')], ['of all kinds', () => true]]) {
  const { right, all, wrong } = scoreGroups(kinds);
  console.log(`groups ${title}: the fastest or one within 5 % chosen in ${right} of ${all} (${percent(right / Math.max(all, 1)).trim()})`);
  if (title === 'by layout') wrong.forEach((line) => console.log(line));
}

const reasons = Map.groupBy ? Map.groupBy(entries.filter(({ refused }) => refused), ({ refused }) => refused.slice(0, 110)) : entries.filter(({ refused }) => refused).reduce((map, entry) => map.set(entry.refused.slice(0, 110), [...(map.get(entry.refused.slice(0, 110)) ?? []), entry]), new Map());
console.log('not answered:');
for (const [why, list] of [...reasons].sort((a, b) => b[1].length - a[1].length)) console.log(`${String(list.length).padStart(5)} ${why}`);

if (process.argv.includes('--rows')) {
  for (const { row, time, predicted, ratio } of entries.filter(({ time }) => time)) {
    const share = (part) => Math.round((100 * time[part]) / time.microseconds);
    console.log(`${ratio.toFixed(2)} ${row.tokens_per_s_per_gpu.toFixed(0)} → ${predicted.toFixed(0)}  c${share('compute')} m${share('memory')} k${share('communication')} b${share('bubble')} l${share('launch')}  ${row.id}`);
  }
}
