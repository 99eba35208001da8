// The report, as text.
import { explanationOf, isOff, isUnexplained } from './explain.mjs';
import { measurementsOf, quantile } from './score.mjs';

const percent = (share) => (share === null ? '' : `${(100 * share).toFixed(2)}`);
const gib = (bytes) => (bytes / 2 ** 30).toFixed(2);

function table(head, lines) {
  const all = [head, ...lines.map((line) => line.map(String))];
  const widths = head.map((_, i) => Math.max(...all.map((line) => line[i].length)));
  const numeric = head.map((_, i) => lines.every((line) => /^[-+\d.\s]*$/.test(String(line[i]))));
  const row = (line) => line.map((cell, i) => (numeric[i] ? cell.padStart(widths[i]) : cell.padEnd(widths[i]))).join('  ').trimEnd();
  console.log(all.map(row).map((line) => `  ${line}`).join('\n'));
}

export const isMulti = ({ row }) => Number(row.num_gpus) > 1;
export const isComplete = ({ row }) => row.confidence === 'A';

// What a group of entries shows in one metric.
export function summary(entries, metric, second) {
  const rows = entries.filter(({ row }) => measurementsOf(row).some((one) => one.metric === metric && one.second === second));
  const errors = rows.flatMap(({ errors }) => errors ?? []).filter((one) => one.metric === metric && one.second === second);
  const sizes = errors.map(({ error }) => Math.abs(error));
  return {
    rows: rows.length, answered: errors.length, median: quantile(sizes, 0.5), p95: quantile(sizes, 0.95), bias: quantile(errors.map(({ error }) => error), 0.5),
    over5: sizes.filter((size) => size > 0.05).length, unexplained: rows.filter((entry) => entry.errors?.some(isOff) && isUnexplained(entry)).length, over10: sizes.filter((size) => size > 0.1).length,
  };
}

export function verdicts(entries) {
  const judged = entries.filter(({ verdict }) => verdict);
  const wrong = judged.filter(({ verdict }) => verdict !== 'right').length;
  return { judged: judged.length, wrong, falseFits: judged.filter(({ verdict }) => verdict === 'false fits').length };
}

const metricNames = ['allocated', 'reserved', 'device', 'unstated', 'loaded'];

function groupLines(entries, name) {
  const lines = [];
  for (const second of [false, true]) {
    for (const metric of metricNames) {
      const one = summary(entries, metric, second);
      if (one.rows === 0) continue;
      lines.push([name, `${metric === 'device' ? 'nvidia-smi' : metric}${second ? ' (beside)' : ''}`, one.rows, one.answered, percent(one.median), percent(one.p95), percent(one.bias), one.over5, second ? '' : one.unexplained, one.over10]);
    }
  }
  return lines;
}

function printGroups(title, entries) {
  if (entries.length === 0) return;
  const { judged, wrong, falseFits } = verdicts(entries);
  const counted = entries.filter(({ report }) => report).length;
  console.log(`\n${title}: ${entries.length} rows, ${counted} answered; verdicts ${judged}, wrong ${wrong} (${percent(judged ? wrong / judged : 0)} %), false "fits" ${falseFits}`);
  const sources = [...new Set(entries.map(({ row }) => row.source))].sort();
  const lines = sources.flatMap((source) => groupLines(entries.filter(({ row }) => row.source === source), String(source)));
  lines.push(...groupLines(entries, 'all'));
  table(['source', 'metric', 'rows', 'answered', 'median %', 'p95 %', 'bias %', '> 5 %', 'unexplained', '> 10 %'], lines);
}

// Distinct notes get numbers, so that a row can list all of its own.
function numbered(entries) {
  const numbers = new Map();
  for (const { notes, replaced } of entries) for (const note of [...notes, ...(replaced ?? [])]) if (!numbers.has(note)) numbers.set(note, numbers.size + 1);
  return numbers;
}

const notesOf = ({ notes, replaced }, numbers) => [...notes, ...(replaced ?? [])].map((note) => numbers.get(note)).sort((a, b) => a - b).join(',');

// In words: what the source does not say; by number: the notes that say what of the run is not played as it was.
function explained(entry, numbers) {
  if (isUnexplained(entry)) return 'UNEXPLAINED';
  const { missing, notes } = explanationOf(entry);
  const counted = notes.filter((note) => numbers.has(note)), said = notes.filter((note) => !numbers.has(note));
  return [counted.map((note) => numbers.get(note)).sort((a, b) => a - b).join(','), ...said, missing.length > 0 ? `not said: ${missing.join('; ')}` : ''].filter(Boolean).join('; ');
}

function printMisses(entries, numbers) {
  const off = entries.filter(({ report, errors }) => report && errors.some(isOff));
  const lines = off.flatMap((entry) => entry.errors.filter(isOff)
    .map((one) => [entry.row.id, entry.row.confidence, one.metric, gib(one.measured), gib(one.ours), percent(one.error), explained(entry, numbers)]));
  console.log(`\nMore than 5 % off: ${off.length}, unexplained: ${off.filter(isUnexplained).length} (GiB measured, ours; what explains it: notes by number, what the source does not say)`);
  if (lines.length > 0) table(['row', 'c', 'metric', 'measured', 'ours', 'error %', 'explained by'], lines);
}

function printVerdicts(entries, numbers) {
  const wrong = entries.filter(({ verdict }) => verdict && verdict !== 'right');
  console.log(`\nWrong verdicts: ${wrong.length}`);
  if (wrong.length > 0) table(['row', 'c', 'ours', 'needed', 'capacity', 'notes'], wrong.map((entry) => [entry.row.id, entry.row.confidence, entry.verdict, gib(entry.report.verdict.needed), gib(entry.report.verdict.capacity ?? 0), notesOf(entry, numbers)]));
}

export function whyNot({ refused, problems }) {
  return refused ?? [...new Set(problems.map(({ at, message }) => `${at} ${message}`))].join(' | ');
}

function printUnanswered(entries) {
  const groups = new Map();
  for (const entry of entries.filter(({ report }) => !report)) {
    const why = whyNot(entry).slice(0, 240);
    groups.set(why, [...(groups.get(why) ?? []), entry.row?.id ?? '?']);
  }
  const count = [...groups.values()].reduce((sum, ids) => sum + ids.length, 0);
  console.log(`\nNot answered: ${count}`);
  for (const [why, ids] of [...groups].sort((a, b) => b[1].length - a[1].length)) console.log(`  ${ids.length}: ${why}\n      ${ids.join(' ')}`);
}

function printNotes(entries, numbers) {
  console.log('\nNotes: what was assumed, and what stands in for what');
  for (const [note, number] of numbers) console.log(`  ${number} ${note} (${entries.filter((entry) => [...entry.notes, ...(entry.replaced ?? [])].includes(note)).length})`);
}

function printRows(entries, numbers) {
  console.log('\nEvery row: error in its own metric, notes');
  table(['row', 'c', 'metric', 'error %', 'verdict', 'notes'], entries.map((entry) => {
    const own = entry.errors?.find(({ second }) => !second);
    return [entry.row?.id ?? '?', entry.row?.confidence ?? '', own?.metric ?? '', own ? percent(own.error) : '', entry.verdict ?? '', notesOf(entry, numbers)];
  }));
}

export function printReport(entries) {
  for (const [gpus, multi] of [['One GPU', false], ['Several GPUs', true]]) {
    const here = entries.filter((entry) => isMulti(entry) === multi);
    printGroups(`${gpus}, complete configurations (A)`, here.filter(isComplete));
    printGroups(`${gpus}, something missing (B, C)`, here.filter((entry) => !isComplete(entry)));
  }
  const numbers = numbered(entries);
  printVerdicts(entries, numbers);
  printMisses(entries, numbers);
  printUnanswered(entries);
  printRows(entries, numbers);
  printNotes(entries, numbers);
}
