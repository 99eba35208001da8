// CPU time of one estimate, native and WASM, and of one event of its trace.
import { spawnSync } from 'node:child_process';

import { loadWasm, nativeCommand, withInlineConfig } from '../contract/engine.mjs';

const budgets = { 'meta-llama/Llama-3.1-8B': { native: 5, wasm: 10 }, 'meta-llama/Llama-3.1-70B': { native: 15, wasm: 30 } };  // ms
const slack = 4;  // a busy or slow machine is no failure; losing the order of magnitude is
const warmUp = 40, runs = 40;

// CPU time, not the clock's: other work on the machine must not show. The median of many runs, after the engine's JIT has settled.
function wasmTime(llmem, spec) {
  for (let i = 0; i < warmUp; ++i) llmem.estimate(spec);
  const times = Array.from({ length: runs }, () => {
    const begin = process.cpuUsage();
    llmem.estimate(spec);
    const { user, system } = process.cpuUsage(begin);
    return (user + system) / 1000;
  }).sort((a, b) => a - b);
  return times[runs / 2];
}

// The process starts once for all its lines, so its start-up is taken off by the difference of two runs.
function nativeTime(spec) {
  const cpu = (lines) => {
    const command = `TIMEFORMAT='%U %S'; time "${nativeCommand}" estimate >/dev/null`;
    const run = spawnSync('bash', ['-c', command], { input: `${spec}\n`.repeat(lines), encoding: 'utf8' });
    const [user, system] = run.stderr.trim().split(' ').map(Number);
    return (user + system) * 1000;
  };
  return Math.max(0, cpu(runs + 1) - cpu(1)) / runs;
}

function eventCount(spec) {
  const run = spawnSync(nativeCommand, ['events'], { input: spec + '\n', maxBuffer: 2 ** 30 });
  return run.status === 0 ? run.stdout.toString().split('\n').length - 1 : 0;
}

const llmem = await loadWasm();
let passed = 0, failed = 0;
console.log('model                       native ms   WASM ms   events   native ns/event   WASM ns/event');
for (const [model, budget] of Object.entries(budgets)) {
  const spec = JSON.stringify({ model, cluster: { gpu: 'h100-sxm-80gb' } });
  const native = nativeTime(spec), wasm = wasmTime(llmem, withInlineConfig(spec)), events = eventCount(spec);
  const perEvent = (ms) => (events ? ((ms * 1e6) / events).toFixed(0) : '-');
  console.log([model.padEnd(26), native.toFixed(2).padStart(10), wasm.toFixed(2).padStart(9), String(events).padStart(8),
    perEvent(native).padStart(17), perEvent(wasm).padStart(15)].join(' '));
  if (native > budget.native || wasm > budget.wasm) console.log(`over the budget of ${budget.native} ms native, ${budget.wasm} ms WASM`);
  if (native > budget.native * slack || wasm > budget.wasm * slack) ++failed;
  else ++passed;
}
console.log(`bench: ${passed} passed, ${failed} failed`);
process.exit(failed ? 1 : 0);
