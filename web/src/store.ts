import { batch, computed, effect, signal } from '@preact/signals';
import { arrivalAnswers } from './arrival';
import { arrival, type Choice, type JsonObject, type Model } from './choice/choice';
import type { Settings } from './choice/fields';
import { readLink, writeLink } from './choice/link';
import { methods, whyNot, type Method } from './choice/methods';
import { jobsOf } from './choice/spec';
import type { Report, Status } from './core/answer';
import { combined } from './core/combined';
import { Estimator, type Answer } from './core/estimator';
import { presetConfig, PresetError } from './presets';

// The state of a page: what was chosen, what came of it. Views read the signals and call the functions; nothing else writes.

export const choice = signal<Choice>(arrival());
export const complaints = signal<string[]>([]); // about the link the page was opened with
export const link = signal('');

/** The config.json of a model, `of` which one: it arrives later than the choice. */
export type Config = { state: 'loading' } | { state: 'ready'; of: Model; config: JsonObject } | { state: 'failed'; of: Model; message: string };
export const config = signal<Config>({ state: 'loading' });

/** What is known of each method; the old answer stays, marked as stale, until the new one is there. */
export interface Result {
  answer: Answer | undefined;
  stale: boolean;
}
export const results = signal<Record<Method, Result>>(emptyResults());

export function changeSettings(some: Partial<Settings>): void {
  change(Object.keys(some).join(), { ...choice.value, settings: { ...choice.value.settings, ...some } });
}

export function changeModel(model: Model): void {
  change('model', { ...choice.value, model });
}

/** Everything at once: from a file, or from a suggestion. */
export function changeAll(all: Choice): void {
  change('all', all);
}

const past = signal<Choice[]>([]);
const future = signal<Choice[]>([]);
export const canUndo = computed(() => past.value.length > 0);
export const canRedo = computed(() => future.value.length > 0);

const REMEMBERED = 200; // changes
const TYPING_MS = 1000; // what is typed into one field within this time is one change
let lastChange = { what: '', at: 0 };

function change(what: string, next: Choice): void {
  const now = Date.now();
  const typing = what === lastChange.what && now - lastChange.at < TYPING_MS && past.peek().length > 0;
  lastChange = { what, at: now };
  batch(() => {
    if (!typing) past.value = [...past.peek(), choice.peek()].slice(-REMEMBERED);
    future.value = [];
    choice.value = next;
  });
}

export function undo(): void {
  travel(past, future);
}

export function redo(): void {
  travel(future, past);
}

function travel(from: typeof past, to: typeof past): void {
  const next = from.peek().at(-1);
  if (!next) return;
  lastChange = { what: '', at: 0 };
  batch(() => {
    to.value = [...to.peek(), choice.peek()];
    from.value = from.peek().slice(0, -1);
    choice.value = next;
  });
}

/** A link to where someone left off, for those who come back without one. */
export const leftOff = signal<string | undefined>(undefined);
const LEFT_OFF = 'llmem.left-off';

function remembered(): string | undefined {
  try {
    return localStorage.getItem(LEFT_OFF) ?? undefined;
  } catch {
    return undefined; // a browser that is told to keep nothing
  }
}

function remember(written: string): void {
  try {
    localStorage.setItem(LEFT_OFF, written);
  } catch {
    // The same.
  }
}

export const busy = computed(() => methods.some((method) => results.value[method].stale));

/** The last answers that were complete, which the verdict is about: while others are on their way it must neither flicker nor name the best of a few. */
export const settled = signal(results.value);
effect(() => {
  if (!busy.value) settled.value = results.value;
});

export const best = computed(() => bestOf(settled.value));

/** The method whose details are open. */
export const selected = computed<Method>(() => {
  const { data } = choice.value.settings;
  return data !== 'best' && !whyNot(data, choice.value.settings) ? data : (best.value ?? 'none');
});

/** The methods that were answered, the fastest first; of equals, or where speeds are not known, that which needs least. */
export function fastestFirst(all: Record<Method, Result>): { method: Method; report: Report }[] {
  const answered = methods.flatMap((method) => {
    const { answer } = all[method];
    return answer?.kind === 'report' ? [{ method, report: answer.report, speed: speedOf(method, answer.report) }] : [];
  });
  return answered.sort((a, b) => b.speed - a.speed || a.report.verdict.needed - b.report.verdict.needed);
}

/** The best status, then the fastest; where nothing fits, that which needs least. */
function bestOf(all: Record<Method, Result>): Method | undefined {
  const order: readonly Status[] = ['fits', 'fits_barely', 'fits_after_retry', 'may_not_fit', 'unknown', 'does_not_fit'];
  return fastestFirst(all)
    .sort(({ report: { verdict: a } }, { report: { verdict: b } }) => order.indexOf(a.status) - order.indexOf(b.status) || (a.status.startsWith('fits') ? 0 : a.needed - b.needed))
    .at(0)?.method;
}

/** Tokens a second of all GPUs that a method uses; 0 where the core does not know the GPU's speed. */
export function speedOf(method: Method, report: Report): number {
  return (report.step_time?.tokens_per_second ?? 0) * (method === 'none' ? 1 : choice.peek().settings.gpus);
}

function emptyResults(): Record<Method, Result> {
  const nothing: Result = { answer: undefined, stale: false };
  return Object.fromEntries(methods.map((method) => [method, nothing])) as Record<Method, Result>;
}

function startWorker(): Worker {
  return new Worker(new URL('./core/worker.ts', import.meta.url), { type: 'module' });
}

/** One core of the machine is the page's own; of two, both: the page has nothing to do while it waits for answers. */
const MOST_WORKERS = 4;
const cores = navigator.hardwareConcurrency || 2;
const workers = cores === 2 ? 2 : Math.max(1, Math.min(MOST_WORKERS, cores - 1));
const estimator = new Estimator<Method>(startWorker, workers);

/** The choice whose answers are on their way with the site, so that nothing is asked for it yet. */
const arriving = signal<Choice | undefined>(undefined);

/** Asks for every method anew; what was answered before is not asked again. */
export function estimateAll(): void {
  const wanted = choice.value;
  const loaded = config.value;
  if (loaded.state === 'loading' || loaded.of !== wanted.model || arriving.value === wanted) return markStale(methods);
  if (loaded.state === 'failed') return markStale([]);
  const jobs = jobsOf(wanted, loaded.config);
  batch(() => {
    markStale(jobs.map(({ key }) => key));
    const parts = new Map<Method, Answer[]>();
    const show = shower(new Set(jobs.map(({ key }) => key)).size);
    estimator.request(jobs, (method, answer) => {
      const all = [...(parts.get(method) ?? []), answer];
      parts.set(method, all);
      if (all.length === jobs.filter(({ key }) => key === method).length) show(method, combined(all));
    });
  });
}

const SHOWN_EVERY_MS = 200; // drawing all the bars anew takes longer than an estimate

/** Takes the answers to `count` methods and shows them: all at once where that is soon, or else what is there from time to time. */
function shower(count: number): (method: Method, answer: Answer) => void {
  const asked = choice.peek();
  let arrived: Partial<Record<Method, Result>> = {};
  let left = count;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const show = () => {
    clearTimeout(timer);
    timer = undefined;
    if (choice.peek() === asked) results.value = { ...results.peek(), ...arrived };
    arrived = {};
  };
  return (method, answer) => {
    arrived[method] = { answer, stale: false };
    if (--left === 0) show();
    else timer ??= setTimeout(show, SHOWN_EVERY_MS);
  };
}

/** The old answers of these stay until new ones are there; those of the others are gone, and nothing is being estimated. */
function markStale(stale: readonly Method[]): void {
  estimator.request([], () => undefined);
  const before = results.peek();
  results.value = Object.fromEntries(
    methods.map((method) => [method, stale.includes(method) ? { ...before[method], stale: true } : { answer: undefined, stale: false }]),
  ) as Record<Method, Result>;
}

async function loadConfig(of: Model): Promise<Config> {
  if (of.kind === 'pasted') return { state: 'ready', of, config: of.config };
  try {
    return { state: 'ready', of, config: await presetConfig(of.id) };
  } catch (error) {
    return { state: 'failed', of, message: error instanceof PresetError ? error.message : String(error) };
  }
}

async function openLink(): Promise<void> {
  const read = await readLink(location.hash);
  batch(() => {
    choice.value = read.choice;
    complaints.value = read.complaints;
  });
}

/** The first answers come with the site; a change in the meantime does not wait for them. */
async function arrive(answers: ReturnType<typeof arrivalAnswers>): Promise<void> {
  arriving.value = choice.peek();
  try {
    estimator.learn(await answers);
  } finally {
    arriving.value = undefined;
  }
}

const SIGNS_OF_USE = ['pointermove', 'pointerdown', 'touchstart', 'keydown', 'focusin'] as const;

/** With the first sign that somebody does more than read. */
function whenUsed(work: () => void): void {
  const once = () => {
    for (const sign of SIGNS_OF_USE) removeEventListener(sign, once, true);
    work();
  };
  for (const sign of SIGNS_OF_USE) addEventListener(sign, once, { capture: true, passive: true });
}

/** Sets the page in motion. `address`: whether the page's own address follows the choice. */
export async function start({ address }: { address: boolean }): Promise<void> {
  const answers = location.hash === '' ? arrivalAnswers() : undefined;
  if (address && answers) leftOff.value = remembered();
  await openLink();
  if (answers) void arrive(answers);
  window.addEventListener('hashchange', () => void openLink());

  const model = computed(() => choice.value.model);
  effect(() => {
    const wanted = model.value;
    void loadConfig(wanted).then((loaded) => {
      if (model.peek() === wanted) config.value = loaded;
    });
  });
  effect(estimateAll);
  // The core is large, and who only reads does without it. Otherwise it comes before it is needed.
  whenUsed(() => estimator.warmUp());
  effect(() => {
    const arrived = choice.value;
    void writeLink(arrived).then((written) => {
      if (choice.peek() !== arrived) return;
      const untouched = link.peek() === '';
      link.value = written;
      // What someone arrives with stays in the address as it came; only a change of theirs rewrites it.
      if (!address || untouched) return;
      if (location.hash !== written) history.replaceState(null, '', written);
      remember(written);
    });
  });
}
