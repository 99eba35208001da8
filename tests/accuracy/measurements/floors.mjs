// What must hold of a set of rows: [{gpus: 'one' | 'several', confidence, source, metric, answered, median, p95, unexplained, false_fits, wrong_verdicts}].
// All but the numbers choose rows; a number that is left out is not asked for. `answered`: at least so many; the others: at most.
import { isMulti, summary, verdicts } from './print.mjs';

function chosen(entry, { gpus, confidence, source }) {
  const { row } = entry;
  return (!gpus || isMulti(entry) === (gpus === 'several')) && (!confidence || row.confidence === confidence) && (!source || row.source === source);
}

function found(entries, floor) {
  const ours = entries.filter((entry) => chosen(entry, floor));
  const { judged, wrong, falseFits } = verdicts(ours);
  const numbers = { false_fits: falseFits, wrong_verdicts: wrong, judged };
  return floor.metric ? { ...numbers, ...summary(ours, floor.metric, floor.beside === true) } : { ...numbers, answered: ours.filter(({ report }) => report).length };
}

const limits = { answered: (is, floor) => is >= floor, median: atMost, p95: atMost, unexplained: atMost, false_fits: atMost, wrong_verdicts: atMost };

function atMost(is, most) {
  return is !== null && is <= most;
}

// Prints what is missed and the count of all, as tests/run.sh reads it. Whether all hold.
export function checkFloors(entries, floors) {
  let passed = 0, failed = 0;
  for (const floor of floors) {
    const numbers = found(entries, floor);
    for (const [name, holds] of Object.entries(limits)) {
      if (floor[name] === undefined) continue;
      if (holds(numbers[name], floor[name])) ++passed;
      else {
        ++failed;
        console.log(`MISSED ${[floor.gpus, floor.confidence, floor.source, floor.metric].filter(Boolean).join(', ')}: ${name} is ${numbers[name]}, not ${floor[name]}`);
      }
    }
  }
  console.log(`measurements: ${passed} passed, ${failed} failed`);
  return failed === 0;
}
