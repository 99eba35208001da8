// Time of one estimate, native and WASM, and of one event of its trace.
import { spawnSync } from 'node:child_process';

import { loadWasm, nativeAnswers, root, withInlineConfig } from '../contract/engine.mjs';

const wasmBudget = 10;  // ms for Llama-3.1-8B on one GPU
const slack = 4;        // a busy or slow machine is no failure; losing the order of magnitude is
const cases = ['meta-llama/Llama-3.1-8B', 'meta-llama/Llama-3.1-70B'];
const runs = 20;

const milliseconds = (act) => {
  const start = performance.now();
  act();
  return performance.now() - start;
};

// The process starts once for all its lines, so its start-up is taken off by the difference of two runs.
function nativeTime(spec) {
  const one = milliseconds(() => nativeAnswers([spec]));
  const many = milliseconds(() => nativeAnswers(Array(runs + 1).fill(spec)));
  return Math.max(0, many - one) / runs;
}

function wasmTime(llmem, spec) {
  const times = Array.from({ length: runs }, () => milliseconds(() => llmem.estimate(spec))).sort((a, b) => a - b);
  return times[runs / 2];
}

function eventCount(spec) {
  const run = spawnSync(`${root}build/native-release/llmem`, ['events'], { input: spec + '\n', maxBuffer: 2 ** 30 });
  return run.status === 0 ? run.stdout.toString().split('\n').length - 1 : 0;
}

const llmem = await loadWasm();
let passed = 0, failed = 0;
console.log('model                       native ms   WASM ms   events   native ns/event   WASM ns/event');
for (const model of cases) {
  const spec = JSON.stringify({ model, cluster: { gpu: 'h100-sxm-80gb' } });
  const native = nativeTime(spec), wasm = wasmTime(llmem, withInlineConfig(spec)), events = eventCount(spec);
  const perEvent = (ms) => (events ? ((ms * 1e6) / events).toFixed(0) : '-');
  console.log([model.padEnd(26), native.toFixed(2).padStart(10), wasm.toFixed(2).padStart(9), String(events).padStart(8),
    perEvent(native).padStart(17), perEvent(wasm).padStart(15)].join(' '));
  if (model !== cases[0]) continue;
  if (wasm > wasmBudget) console.log(`over the budget of ${wasmBudget} ms`);
  if (wasm > wasmBudget * slack) ++failed;
  else ++passed;
}
console.log(`bench: ${passed} passed, ${failed} failed`);
process.exit(failed ? 1 : 0);
