import type { Envelope, Problem, Report } from './answer';
import type { Call, Request, Response } from './worker';

export type Answer<Value = Report> =
  | { kind: 'report'; report: Value }
  | { kind: 'problems'; problems: Problem[] }
  | { kind: 'crashed'; message: string };

export interface Job<Key> {
  key: Key;
  spec: string;
  call?: Call; // none: an estimate
  args?: string[]; // what the call takes; none: the spec
}

/** What the estimator needs of a Worker. */
export interface WorkerLike {
  postMessage(request: Request): void;
  terminate(): void;
  addEventListener(type: 'message', listener: (event: MessageEvent<Response>) => void): void;
  addEventListener(type: 'error', listener: (event: ErrorEvent) => void): void;
}

const REMEMBERED = 64; // answers
const MOST_CRASHES = 2;
const PATIENCE_MS = 1000; // how long an estimate nobody waits for any more may hold up the next

/** A worker and what it is doing. */
interface Lane<Key> {
  worker: WorkerLike | null;
  running: (Job<Key> & { id: number; wanted: boolean }) | null;
}

/** Runs estimates in workers, one at a time in each. The latest request wins; a worker that crashed is replaced. */
export class Estimator<Key, Value = Report> {
  #start: () => WorkerLike;
  #lanes: Lane<Key>[];
  #queue: Job<Key>[] = [];
  #answered: (key: Key, answer: Answer<Value>) => void = () => undefined;
  #remembered = new Map<string, Answer<Value>>();
  #lastId = 0;
  #crashes = 0; // one after the other

  constructor(start: () => WorkerLike, workers = 1) {
    this.#start = start;
    this.#lanes = Array.from({ length: workers }, () => ({ worker: null, running: null }));
  }

  /** Forgets whatever was asked before; `answered` is called once for each job, with one worker in order. */
  request(jobs: Job<Key>[], answered: (key: Key, answer: Answer<Value>) => void): void {
    this.#queue = [...jobs];
    this.#crashes = 0;
    this.#answered = answered;
    for (const lane of this.#lanes) this.#abandon(lane);
    for (const lane of this.#lanes) this.#next(lane);
  }

  /** Answers that the core gave elsewhere, by the text of the spec. */
  learn(envelopes: Record<string, Envelope<Value>>): void {
    for (const [spec, envelope] of Object.entries(envelopes)) this.#remember(spec, answerOf(envelope));
  }

  /** Has the workers load the core before anything is asked of them. */
  warmUp(): void {
    for (const lane of this.#lanes) lane.worker ??= this.#startWorker(lane);
  }

  #abandon(lane: Lane<Key>): void {
    const abandoned = lane.running;
    if (!abandoned) return;
    abandoned.wanted = false;
    setTimeout(() => {
      if (lane.running !== abandoned) return;
      replaceWorker(lane);
      this.#next(lane);
    }, PATIENCE_MS);
  }

  #next(lane: Lane<Key>): void {
    while (!lane.running) {
      const job = this.#queue.shift();
      if (!job) return;
      const known = this.#remembered.get(nameOf(job));
      if (known) {
        this.#answered(job.key, known);
        continue;
      }
      const id = ++this.#lastId;
      lane.running = { ...job, id, wanted: true };
      lane.worker ??= this.#startWorker(lane);
      lane.worker.postMessage({ id, call: job.call ?? 'estimate', args: job.args ?? [job.spec] });
    }
  }

  #startWorker(lane: Lane<Key>): WorkerLike {
    const worker = this.#start();
    worker.addEventListener('message', (event) => this.#receive(lane, event.data));
    worker.addEventListener('error', (event) => {
      // A worker script that could not be loaded or read says so here, and answers nothing.
      if (worker !== lane.worker) return;
      if (lane.running) this.#receive(lane, { id: lane.running.id, crash: event.message || 'the worker could not be started' });
      else replaceWorker(lane);
    });
    return worker;
  }

  #receive(lane: Lane<Key>, response: Response): void {
    const job = lane.running;
    if (!job || job.id !== response.id) return;
    lane.running = null;
    const answer = read<Value>(response);
    this.#crashes = answer.kind === 'crashed' ? this.#crashes + 1 : 0;
    if (answer.kind === 'crashed') replaceWorker(lane);
    else this.#remember(nameOf(job), answer);
    if (job.wanted) this.#answered(job.key, answer);
    // What crashes again and again will not answer the rest either.
    if (this.#crashes >= MOST_CRASHES) for (const rest of this.#queue.splice(0)) this.#answered(rest.key, answer);
    this.#next(lane);
  }

  #remember(spec: string, answer: Answer<Value>): void {
    this.#remembered.set(spec, answer);
    const oldest = this.#remembered.keys().next();
    if (this.#remembered.size > REMEMBERED && !oldest.done) this.#remembered.delete(oldest.value);
  }
}

function replaceWorker<Key>(lane: Lane<Key>): void {
  lane.worker?.terminate();
  lane.worker = null;
  lane.running = null;
}

/** What an answer is known by: the spec's text, and for other calls which one and all that it takes. */
function nameOf({ spec, call = 'estimate', args = [] }: Job<unknown>): string {
  return call === 'estimate' ? spec : [call, ...args].join('\n');
}

function read<Value>(response: Response): Answer<Value> {
  if ('crash' in response) return { kind: 'crashed', message: response.crash };
  try {
    return answerOf(JSON.parse(response.envelope) as Envelope<Value>);
  } catch {
    return { kind: 'crashed', message: 'the core answered with something that is not JSON' };
  }
}

function answerOf<Value>(envelope: Envelope<Value>): Answer<Value> {
  return envelope.ok ? { kind: 'report', report: envelope.value } : { kind: 'problems', problems: envelope.problems };
}
