import { startWorker } from '../aside';
import { Estimator } from '../core/estimator';
import type { Call } from '../core/worker';

// A search has as many workers as the machine has processors, for as long as it takes.
const MOST_WORKERS = 8;
let searchers: Estimator<number, unknown> | undefined;

const started = () => (searchers ??= new Estimator<number, unknown>(startWorker, Math.min(MOST_WORKERS, Math.max(1, navigator.hardwareConcurrency))));

/** Has them load the core before anything is asked of them. */
export function readyToAskMany(): void {
  started().warmUp();
}

/** Asks several things beside each other; `each` hears of the answers in any order. One such asking at a time: the next takes the place of the last. */
export function askMany<Value>(call: Call, questions: readonly object[], signal: AbortSignal, each: (index: number, value: Value) => void): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal.aborted) return reject(new DOMException('cancelled', 'AbortError'));
    if (questions.length === 0) return resolve();
    const pool = started();
    const stop = () => {
      pool.request([], () => undefined);
      reject(new DOMException('cancelled', 'AbortError'));
    };
    signal.addEventListener('abort', stop, { once: true });
    let left = questions.length;
    pool.request(
      questions.map((question, key) => ({ key, spec: '', call, args: [JSON.stringify(question)] })),
      (key, answer) => {
        if (answer.kind !== 'report') {
          signal.removeEventListener('abort', stop);
          return reject(new Error(answer.kind === 'crashed' ? answer.message : answer.problems.map(({ message }) => message).join(' ')));
        }
        each(key, answer.report as Value);
        if (--left > 0) return;
        signal.removeEventListener('abort', stop);
        resolve();
      },
    );
  });
}
