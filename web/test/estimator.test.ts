import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import type { Report } from '../src/core/answer';
import { Estimator, type Answer, type WorkerLike } from '../src/core/estimator';
import type { Request, Response } from '../src/core/worker';

class FakeWorker implements WorkerLike {
  asked: Request[] = [];
  terminated = false;
  #message: (event: MessageEvent<Response>) => void = () => undefined;
  #error: (event: ErrorEvent) => void = () => undefined;

  postMessage(request: Request): void {
    this.asked.push(request);
  }
  terminate(): void {
    this.terminated = true;
  }
  addEventListener(type: 'message' | 'error', listener: ((event: MessageEvent<Response>) => void) & ((event: ErrorEvent) => void)): void {
    if (type === 'message') this.#message = listener;
    else this.#error = listener;
  }
  answer(name: string): void {
    const id = this.asked.at(-1)?.id ?? 0;
    this.#message({ data: { id, envelope: JSON.stringify({ ok: true, value: { name } }) } } as MessageEvent<Response>);
  }
  crash(): void {
    this.#message({ data: { id: this.asked.at(-1)?.id ?? 0, crash: 'unreachable' } } as MessageEvent<Response>);
  }
  fail(): void {
    this.#error({ message: 'no script' } as ErrorEvent);
  }
}

let workers: FakeWorker[];
let answers: string[];
let estimator: Estimator<string>;

function worker(index = 0): FakeWorker {
  const found = workers[index];
  if (!found) throw new Error(`no worker ${index}`);
  return found;
}

function note(key: string, answer: Answer): void {
  const report = answer.kind === 'report' ? (answer.report as Report & { name?: string }).name : answer.kind;
  answers.push(`${key}: ${report}`);
}

function ask(...specs: string[]): void {
  estimator.request(
    specs.map((spec) => ({ key: spec, spec })),
    note,
  );
}

beforeEach(() => {
  vi.useFakeTimers();
  workers = [];
  answers = [];
  estimator = new Estimator<string>(() => {
    const made = new FakeWorker();
    workers.push(made);
    return made;
  });
});

afterEach(() => {
  vi.useRealTimers();
});

it('asks one after the other and answers in order', () => {
  ask('a', 'b');
  expect(worker().asked).toHaveLength(1);
  worker().answer('A');
  worker().answer('B');
  expect(answers).toEqual(['a: A', 'b: B']);
});

it('lets the latest request win', () => {
  ask('a', 'b');
  ask('c');
  worker().answer('A');
  worker().answer('C');
  expect(answers).toEqual(['c: C']);
  expect(worker().asked.map(({ args }) => args[0])).toEqual(['a', 'c']);
});

it('does not ask again what it knows', () => {
  ask('a');
  worker().answer('A');
  ask('a');
  expect(worker().asked).toHaveLength(1);
  expect(answers).toEqual(['a: A', 'a: A']);
});

it('replaces a worker that crashed, and goes on', () => {
  ask('a', 'b');
  worker().crash();
  expect(worker().terminated).toBe(true);
  worker(1).answer('B');
  expect(answers).toEqual(['a: crashed', 'b: B']);
  ask('a');
  worker(1).answer('A');
  expect(answers.at(-1)).toBe('a: A');
});

it('says so when the worker cannot be started', () => {
  ask('a');
  worker().fail();
  expect(answers).toEqual(['a: crashed']);
});

it('ends an estimate that nobody waits for, if it takes long', () => {
  ask('a');
  ask('b');
  vi.advanceTimersByTime(2000);
  expect(worker().terminated).toBe(true);
  worker(1).answer('B');
  expect(answers).toEqual(['b: B']);
});

it('asks no worker what it has learned', () => {
  estimator.learn({ a: { ok: true, value: { name: 'A' } as unknown as Report }, b: { ok: false, problems: [] } });
  ask('a', 'b');
  expect(answers).toEqual(['a: A', 'b: problems']);
  expect(workers).toHaveLength(0);
  ask('a ');
  expect(worker().asked.map(({ args }) => args[0])).toEqual(['a ']);
});

it('asks the worker that was started ahead', () => {
  estimator.warmUp();
  estimator.warmUp();
  expect(worker().asked).toEqual([]);
  ask('a');
  worker().answer('A');
  expect(answers).toEqual(['a: A']);
  expect(workers).toHaveLength(1);
});

it('replaces a worker that failed before it was asked', () => {
  estimator.warmUp();
  worker().fail();
  expect(worker().terminated).toBe(true);
  ask('a');
  worker(1).answer('A');
  expect(answers).toEqual(['a: A']);
});

it('gives up on the rest after two crashes in a row, and tries again when asked again', () => {
  ask('a', 'b', 'c', 'd');
  worker().crash();
  worker(1).crash();
  expect(answers).toEqual(['a: crashed', 'b: crashed', 'c: crashed', 'd: crashed']);
  ask('a');
  worker(2).answer('A');
  expect(answers.at(-1)).toBe('a: A');
});

it('several workers share what is asked, and each that is free takes the next', () => {
  estimator = new Estimator<string>(() => {
    const made = new FakeWorker();
    workers.push(made);
    return made;
  }, 2);
  ask('a', 'b', 'c');
  expect(workers.map(({ asked }) => asked.map(({ args }) => args[0]))).toEqual([['a'], ['b']]);
  worker(1).answer('B');
  worker(1).answer('C');
  worker(0).answer('A');
  expect(answers).toEqual(['b: B', 'c: C', 'a: A']);
});
