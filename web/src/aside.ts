import { choice, config } from './store';
import { specOf } from './choice/spec';
import type { Method } from './choice/methods';
import type { Choice } from './choice/choice';
import type { Report } from './core/answer';
import { Estimator, type Answer, type Job } from './core/estimator';
import type { Call } from './core/worker';

// Questions beside the main one: timelines, curves, searches. They run in a worker of their own, so that the bars never wait for
// them.

export function startWorker(): Worker {
  return new Worker(new URL('./core/worker.ts', import.meta.url), { type: 'module' });
}

interface Turn {
  job: Job<number>;
  signal: AbortSignal;
  answered: (answer: Answer<unknown>) => void;
}

const estimator = new Estimator<number, unknown>(startWorker);
const waiting: Turn[] = [];
let running: Turn | undefined;

/** Asks, after whatever was asked before and is still wanted. Rejects with an AbortError once it is not. */
function ask<Value>(call: Call, args: string[], signal: AbortSignal): Promise<Answer<Value>> {
  return new Promise((resolve, reject) => {
    if (signal.aborted) return reject(new DOMException('cancelled', 'AbortError'));
    const job: Job<number> = { key: 0, spec: args[0] ?? '', call, args };
    const turn: Turn = { job, signal, answered: (answer) => resolve(answer as Answer<Value>) };
    signal.addEventListener('abort', () => {
      reject(new DOMException('cancelled', 'AbortError'));
      if (running === turn) next();
    });
    waiting.push(turn);
    if (!running) next();
  });
}

function next(): void {
  running = waiting.shift();
  while (running?.signal.aborted) running = waiting.shift();
  const turn = running;
  if (!turn) return;
  estimator.request([turn.job], (_key, answer) => {
    turn.answered(answer);
    if (running === turn) next();
  });
}

export function askEstimate(spec: string, signal: AbortSignal): Promise<Answer<Report>> {
  return ask<Report>('estimate', [spec], signal);
}

/** What the core says, or an error in its words. `args`: the texts that the call takes, or what is to be one. */
export async function askCore<Value>(call: Call, args: readonly (string | object)[], signal: AbortSignal): Promise<Value> {
  const answer = await ask<Value>(
    call,
    args.map((one) => (typeof one === 'string' ? one : JSON.stringify(one))),
    signal,
  );
  if (answer.kind === 'report') return answer.report;
  throw new Error(answer.kind === 'crashed' ? answer.message : answer.problems.map(({ message }) => message).join(' '));
}

/** The spec of the present choice under a method; undefined while its model is on its way. */
export function presentSpec(method: Method, rank?: number): string | undefined {
  return specFor(choice.value, method, rank);
}

export function specFor(asked: Choice, method: Method, rank?: number): string | undefined {
  const loaded = config.value;
  if (loaded.state !== 'ready' || loaded.of !== asked.model) return undefined;
  return JSON.stringify(specOf(asked, loaded.config, method, rank));
}
