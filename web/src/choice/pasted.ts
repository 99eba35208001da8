import type { Json, JsonObject } from './choice';

// A pasted config.json: strict JSON, read so that every fault is found at once, each with its place, and so that a place in the
// value (a JSON pointer, as the core complains of it) can be found again in the text.

export interface Fault {
  line: number; // from 1
  column: number; // from 1
  message: string;
}

export interface PastedConfig {
  config: JsonObject | undefined; // undefined: there are faults
  faults: Fault[];
  places: Map<string, number>; // JSON pointer → offset in the text
}

const MOST_FAULTS = 20;
const DEEPEST = 100; // levels: a configuration has a handful
const PYTHON: Record<string, Json> = { True: true, False: false, None: null };

export function readPasted(text: string): PastedConfig {
  const reader = new Reader(text);
  const value = reader.document();
  const isObject = typeof value === 'object' && value !== null && !Array.isArray(value);
  if (!isObject && reader.faults.length === 0) reader.fault(0, 'A config.json is an object: { "model_type": … }.');
  const faults = reader.faults.slice(0, MOST_FAULTS).map(({ offset, message }) => ({ ...lineAndColumn(text, offset), message }));
  return { config: isObject && faults.length === 0 ? (value as JsonObject) : undefined, faults, places: reader.places };
}

/** The place of a pointer, or of the nearest thing around it that the text has. */
export function placeOf(text: string, places: Map<string, number>, pointer: string): { line: number; column: number } {
  let at = pointer;
  while (at !== '' && !places.has(at)) at = at.slice(0, at.lastIndexOf('/'));
  return lineAndColumn(text, places.get(at) ?? 0);
}

export function lineAndColumn(text: string, offset: number): { line: number; column: number } {
  const before = text.slice(0, offset).split('\n');
  return { line: before.length, column: (before.at(-1)?.length ?? 0) + 1 };
}

/** Reads on after a fault wherever what was meant is plain, so that one look shows them all. */
class Reader {
  readonly faults: { offset: number; message: string }[] = [];
  readonly places = new Map<string, number>();
  #at = 0;
  #depth = 0;

  constructor(private readonly text: string) {}

  fault(offset: number, message: string): void {
    this.faults.push({ offset, message });
  }

  document(): Json {
    this.#space();
    if (this.#at >= this.text.length) {
      this.fault(0, 'Nothing is pasted yet.');
      return null;
    }
    const value = this.#value('');
    this.#space();
    if (this.#at < this.text.length) this.fault(this.#at, `Nothing may follow the end, but “${this.#peek()}” does.`);
    return value;
  }

  #value(pointer: string): Json {
    this.#space();
    this.places.set(pointer, this.#at);
    const next = this.text[this.#at];
    if ((next === '{' || next === '[') && this.#depth >= DEEPEST) {
      this.fault(this.#at, `Nothing may be nested more than ${DEEPEST} levels deep.`);
      this.#at = this.text.length;
      return null;
    }
    if (next === '{' || next === '[') {
      this.#depth++;
      const inner = next === '{' ? this.#object(pointer) : this.#array(pointer);
      this.#depth--;
      return inner;
    }
    if (next === '"' || next === "'") return this.#string();
    return this.#word();
  }

  #object(pointer: string): JsonObject {
    const object: JsonObject = {};
    const seen = new Set<string>();
    this.#at++;
    this.#list('}', () => {
      const start = this.#at;
      const key = this.#key();
      if (seen.has(key)) this.fault(start, `“${key}” is given twice.`);
      seen.add(key);
      this.#space();
      if (this.text[this.#at] === ':') this.#at++;
      else this.fault(this.#at, `A “:” is missing after “${key}”.`);
      const value = this.#value(`${pointer}/${key.replace(/~/g, '~0').replace(/\//g, '~1')}`);
      Object.defineProperty(object, key, { value, enumerable: true, configurable: true, writable: true });
    });
    return object;
  }

  #array(pointer: string): Json[] {
    const array: Json[] = [];
    this.#at++;
    this.#list(']', () => array.push(this.#value(`${pointer}/${array.length}`)));
    return array;
  }

  /** Items with commas between them, up to and with `end`. */
  #list(end: string, item: () => void): void {
    this.#space();
    for (let first = true; ; first = false) {
      if (this.text[this.#at] === end) {
        this.#at++;
        return;
      }
      if (this.#at >= this.text.length || this.text[this.#at] === '}' || this.text[this.#at] === ']') {
        this.fault(this.#at, `A “${end}” is missing.`);
        return;
      }
      if (!first) this.#comma(end);
      const before = this.#at;
      if (this.text[this.#at] !== end) item();
      if (this.#at === before && this.text[this.#at] !== end) this.#at++; // always on, whatever stands here
      this.#space();
    }
  }

  #comma(end: string): void {
    if (this.text[this.#at] !== ',') {
      this.fault(this.#at, 'A “,” is missing before this.');
      return;
    }
    const comma = this.#at++;
    this.#space();
    if (this.text[this.#at] === end) this.fault(comma, `A “,” may not stand before “${end}”.`);
  }

  #key(): string {
    const next = this.text[this.#at];
    if (next === '"' || next === "'") return this.#string();
    const word = /^[^\s:,{}[\]]*/.exec(this.text.slice(this.#at))?.[0] ?? '';
    this.fault(this.#at, word ? `A name stands in double quotes: "${word}".` : 'A name in double quotes is missing.');
    this.#at += word.length;
    return word;
  }

  #string(): string {
    const start = this.#at;
    const quote = this.text[start] ?? '"';
    const pattern = quote === '"' ? /^"(?:[^"\\\n]|\\.)*"/ : /^'(?:[^'\\\n]|\\.)*'/;
    const raw = pattern.exec(this.text.slice(start))?.[0];
    if (raw === undefined) {
      this.fault(start, `The text that begins here has no closing ${quote}.`);
      const end = this.text.indexOf('\n', start);
      this.#at = end < 0 ? this.text.length : end;
      return this.text.slice(start + 1, this.#at);
    }
    this.#at += raw.length;
    if (quote === "'") {
      this.fault(start, `Text stands in double quotes: "${raw.slice(1, -1)}".`);
      return raw.slice(1, -1);
    }
    return this.#parsed(raw, start, 'This text has a character or an escape that JSON does not allow.') as string;
  }

  #word(): Json {
    const start = this.#at;
    const word = /^[^\s,:{}[\]"']*/.exec(this.text.slice(start))?.[0] ?? '';
    this.#at += word.length;
    if (word in PYTHON) {
      const value = PYTHON[word] ?? null;
      this.fault(start, `“${word}” is Python; JSON writes ${JSON.stringify(value)}.`);
      return value;
    }
    return this.#parsed(word, start, word ? `“${word}” is no JSON value.` : 'A value is missing here.');
  }

  #parsed(raw: string, start: number, message: string): Json {
    try {
      return JSON.parse(raw) as Json;
    } catch {
      this.fault(start, message);
      return raw;
    }
  }

  /** White space, and comments, which JSON has not. */
  #space(): void {
    for (;;) {
      this.#at += /^[ \t\r\n]*/.exec(this.text.slice(this.#at))?.[0].length ?? 0;
      const comment = /^(\/\/[^\n]*|#[^\n]*|\/\*[\s\S]*?\*\/)/.exec(this.text.slice(this.#at))?.[0];
      if (!comment) return;
      this.fault(this.#at, 'JSON has no comments.');
      this.#at += comment.length;
    }
  }

  #peek(): string {
    return this.text.slice(this.#at, this.#at + 12).trim();
  }
}
