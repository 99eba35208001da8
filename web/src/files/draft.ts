import type { Json, JsonObject } from '../choice/choice';
import { gpuRemarks, shorten, shown, type Fault, type List, type Table, type Value } from './tree';

// What comes of a file: a part of a spec (the wire format), and for each line what became of it.

export type Kind = 'axolotl' | 'llamafactory' | 'trl' | 'trainer' | 'deepspeed' | 'accelerate' | 'torchtune' | 'torchtitan' | 'megatron';

export const kindNames: Record<Kind, string> = {
  axolotl: 'axolotl YAML',
  llamafactory: 'LLaMA-Factory YAML',
  trl: 'TRL configuration',
  trainer: 'Transformers’ TrainingArguments',
  deepspeed: 'DeepSpeed JSON',
  accelerate: 'accelerate YAML',
  torchtune: 'torchtune YAML',
  torchtitan: 'torchtitan TOML',
  megatron: 'Megatron-LM arguments',
};

/** understood: it sets something. assumed: not in the file, or not as such. ignored: it does not matter here, or nothing here has it. asked: the file leaves it open. */
export type Status = 'understood' | 'assumed' | 'ignored' | 'asked';

export interface Line {
  key: string;
  value: string;
  line: number; // from 1; 0: not in the file
  status: Status;
  text: string; // what it means, or why it is ignored
  at: string[]; // JSON pointers into the spec that it set, or that are asked for
}

export interface Import {
  kind: Kind;
  spec: JsonObject;
  lines: Line[];
  faults: Fault[];
}

export interface Entry {
  key: string; // with its path: "fsdp_config.offload_params"
  value: Value;
}

export type Values = Readonly<Record<string, Json>>;

export class Draft {
  readonly spec: JsonObject = {};
  readonly lines: Line[] = [];
  readonly faults: Fault[] = [];
  /** The data-parallel kind that another file, or the form, says. */
  around: string | undefined;

  constructor(
    readonly kind: Kind,
    private readonly source: string,
  ) {}

  understood(entry: Entry, text: string, values: Values = {}): void {
    this.#line(entry.key, shown(entry.value), entry.value.line, 'understood', text, values);
  }

  /** Something in the file that leads to more than it says. */
  inferred(entry: Entry, text: string, values: Values = {}): void {
    this.#line(entry.key, shown(entry.value), entry.value.line, 'assumed', text, values);
  }

  assumed(key: string, text: string, values: Values = {}): void {
    this.#line(key, '', 0, 'assumed', text, values);
  }

  ignored(entry: Entry, why: string): void {
    this.#line(entry.key, shown(entry.value), entry.value.line, 'ignored', why);
  }

  asked(key: string, text: string, at: string): void {
    this.lines.push({ key, value: '', line: 0, status: 'asked', text, at: [at] });
  }

  /** A value of the wrong kind: named with its place; the line counts as ignored. */
  wrong(entry: Entry, expected: string): void {
    const value = shown(entry.value);
    this.faults.push({ line: entry.value.line, key: entry.key, value, message: `must be ${expected}, not ${value || 'empty'}` });
    this.ignored(entry, `not ${expected}`);
  }

  set(pointer: string, value: Json): void {
    const keys = pointer.slice(1).split('/');
    let object = this.spec;
    for (const key of keys.slice(0, -1)) {
      const inner = Object.hasOwn(object, key) ? object[key] : undefined;
      const next: JsonObject = typeof inner === 'object' && inner !== null && !Array.isArray(inner) ? inner : {};
      object[key] = next;
      object = next;
    }
    object[keys.at(-1) ?? ''] = value;
  }

  get(pointer: string): Json | undefined {
    let value: Json | undefined = this.spec;
    for (const key of pointer.slice(1).split('/')) {
      if (typeof value !== 'object' || value === null || Array.isArray(value) || !Object.hasOwn(value, key)) return undefined;
      value = value[key];
    }
    return value;
  }

  get dataKind(): string {
    return String(this.get('/parallel/data/kind') ?? this.around ?? '');
  }

  has(pointer: string): boolean {
    return this.get(pointer) !== undefined;
  }

  /** The number of GPUs is often said by the launcher alone. What a comment says is shown, not taken. */
  askGpus(text: string): void {
    const remarks = gpuRemarks(this.source).map((one) => ` A comment (line ${one.line}) says: “${one.text}”.`);
    this.asked('number of GPUs', text + remarks.join(''), '/parallel/data/degree');
  }

  done(): Import {
    const order = (line: Line) => (line.line === 0 ? Number.MAX_SAFE_INTEGER : line.line);
    return { kind: this.kind, spec: this.spec, lines: [...this.lines].sort((a, b) => order(a) - order(b)), faults: this.faults };
  }

  #line(key: string, value: string, line: number, status: Status, text: string, values: Values = {}): void {
    for (const [at, one] of Object.entries(values)) this.set(at, one);
    this.lines.push({ key: shorten(key), value, line, status, text, at: Object.keys(values) });
  }
}

type Handler<T> = (value: T, entry: Entry) => void;

const BIGGEST = Number.MAX_SAFE_INTEGER;

/** One table of a file, read key by key. What is null counts as absent. Keys that nobody asked for are the rest. */
export class Section {
  readonly #seen = new Set<string>();

  constructor(
    private readonly from: Table,
    private readonly draft: Draft,
    private readonly path = '',
  ) {}

  entry(key: string): Entry | undefined {
    const value = this.from.entries.get(key);
    if (!value || this.#seen.has(key)) return undefined;
    this.#seen.add(key);
    const entry = { key: this.path === '--' ? `--${key.replaceAll('_', '-')}` : this.path + key, value };
    if (value.kind === 'scalar' && (value.value === null || value.value === '')) {
      this.draft.ignored(entry, 'empty: as if it were not there');
      return undefined;
    }
    return entry;
  }

  has(key: string): boolean {
    const value = this.from.entries.get(key);
    return value !== undefined && !(value.kind === 'scalar' && value.value === null);
  }

  /** A look without reading it. */
  peek(key: string): string | number | boolean | undefined {
    const value = this.from.entries.get(key);
    return value?.kind === 'scalar' ? (value.value ?? undefined) : undefined;
  }

  get keys(): string[] {
    return [...this.from.entries.keys()];
  }

  integer(key: string, handle: Handler<number> = () => undefined, least = 1): number | undefined {
    const entry = this.entry(key);
    if (!entry) return undefined;
    const value = asNumber(entry.value);
    if (value === undefined || !Number.isInteger(value) || value < least || value > BIGGEST) {
      this.draft.wrong(entry, `a whole number from ${least}`);
      return undefined;
    }
    handle(value, entry);
    return value;
  }

  number(key: string, handle: Handler<number> = () => undefined, least = 0): number | undefined {
    const entry = this.entry(key);
    if (!entry) return undefined;
    const value = asNumber(entry.value);
    if (value === undefined || !(value >= least) || !Number.isFinite(value)) {
      this.draft.wrong(entry, `a number from ${least}`);
      return undefined;
    }
    handle(value, entry);
    return value;
  }

  flag(key: string, handle: Handler<boolean> = () => undefined): boolean | undefined {
    const entry = this.entry(key);
    if (!entry) return undefined;
    const value = asFlag(entry.value);
    if (value === undefined) {
      this.draft.wrong(entry, 'true or false');
      return undefined;
    }
    handle(value, entry);
    return value;
  }

  /** A flag, or one of the words that the tool also takes. */
  flagOr(key: string, words: readonly string[], handle: Handler<boolean | string>): boolean | string | undefined {
    const entry = this.entry(key);
    if (!entry) return undefined;
    const text = asText(entry.value)?.toLowerCase();
    const value = asFlag(entry.value) ?? (text !== undefined && words.includes(text) ? text : undefined);
    if (value === undefined) {
      this.draft.wrong(entry, ['true', 'false', ...words].join(', '));
      return undefined;
    }
    handle(value, entry);
    return value;
  }

  text(key: string, handle: Handler<string> = () => undefined): string | undefined {
    const entry = this.entry(key);
    if (!entry) return undefined;
    const value = asText(entry.value);
    if (value === undefined) {
      this.draft.wrong(entry, 'text');
      return undefined;
    }
    handle(value, entry);
    return value;
  }

  /** A list of words, or words with commas or spaces between them. */
  words(key: string, handle: Handler<string[]> = () => undefined): string[] | undefined {
    const entry = this.entry(key);
    if (!entry) return undefined;
    const value = asWords(entry.value);
    if (!value) {
      this.draft.wrong(entry, 'a list of words');
      return undefined;
    }
    handle(value, entry);
    return value;
  }

  /** The table at a key; its own keys are read in their turn. */
  section(key: string): Section | undefined {
    const entry = this.entry(key);
    if (!entry) return undefined;
    if (entry.value.kind !== 'table') {
      this.draft.wrong(entry, 'a table of settings');
      return undefined;
    }
    return new Section(entry.value, this.draft, `${this.path}${key}.`);
  }

  rest(): Entry[] {
    return this.keys.flatMap((key) => {
      const entry = this.entry(key);
      return entry ? [entry] : [];
    });
  }
}

export function asNumber(value: Value): number | undefined {
  if (value.kind !== 'scalar') return undefined;
  if (typeof value.value === 'number') return value.value;
  // 2e-5 is text in YAML 1.1; the tools turn it into a number.
  if (typeof value.value === 'string' && /^\s*[+-]?(\d[\d_]*\.?\d*|\.\d+)(e[+-]?\d+)?\s*$/i.test(value.value))
    return Number(value.value.replaceAll('_', ''));
  return undefined;
}

export function asFlag(value: Value): boolean | undefined {
  if (value.kind !== 'scalar') return undefined;
  if (typeof value.value === 'boolean') return value.value;
  if (value.value === 0 || value.value === 1) return value.value === 1;
  const text = typeof value.value === 'string' ? value.value.trim().toLowerCase() : '';
  if (['true', 'yes', 'on', '1'].includes(text)) return true;
  return ['false', 'no', 'off', '0', 'none'].includes(text) ? false : undefined;
}

export function asText(value: Value): string | undefined {
  return value.kind === 'scalar' && value.value !== null ? String(value.value) : undefined;
}

export function asWords(value: Value): string[] | undefined {
  if (value.kind === 'list') {
    const words = (value as List).items.map(asText);
    return words.every((word) => word !== undefined) ? words.map((word) => word.trim()) : undefined;
  }
  const text = asText(value);
  return text?.split(/[\s,]+/).filter(Boolean);
}
