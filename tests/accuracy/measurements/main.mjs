// Scores published measurements: node main.mjs FILE.json [FLOORS.json]. See ../README.md.
import { readFileSync } from 'node:fs';

import { estimate, estimateStages } from './estimate.mjs';
import { checkFloors } from './floors.mjs';
import { readPresets } from './models.mjs';
import { printReport } from './print.mjs';
import { mapRow } from './row_to_spec.mjs';
import { score } from './score.mjs';

const root = new URL('../../../', import.meta.url).pathname;

function readRows(file) {
  const read = JSON.parse(readFileSync(file, 'utf8'));
  const rows = Array.isArray(read) ? read : read.rows;
  if (!Array.isArray(rows)) throw new Error(`${file} is no list of rows`);
  return rows.map((row) => (typeof row === 'object' && row !== null ? row : { id: String(row) }));
}

const llmem = process.env.LLMEM ?? `${root}build/native-release/llmem`;

function scoreOf({ row, report, gpuKnown, spec }) {
  try {
    return score(row, report, gpuKnown, spec.parallel.rank);
  } catch (error) {
    return { report: undefined, refused: `what was measured cannot be read: ${error.message}` };
  }
}

function scored(rows) {
  const presets = readPresets(`${root}presets/models/`);
  const entries = rows.map((row) => ({ row, ...mapRow(row, presets) }));
  estimate(llmem, entries.filter(({ spec }) => spec));
  estimateStages(llmem, entries);
  for (const entry of entries) {
    if (entry.report) Object.assign(entry, scoreOf(entry));
  }
  return entries;
}

const [file, floors] = process.argv.slice(2);
const entries = scored(readRows(file));
if (floors) process.exit(checkFloors(entries, JSON.parse(readFileSync(floors, 'utf8'))) ? 0 : 1);
printReport(entries);
