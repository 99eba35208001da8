import type { Json } from '../choice/choice';
import { lineAndColumn, readPasted } from '../choice/pasted';

// Text of a configuration file → a tree of plain values, each with its line. Data only: no tag makes an object, no alias is copied
// (a bomb of aliases is as large as its text), and text that is long, deep or wide is refused before it costs time.

export type Value = Scalar | List | Table;
export interface Scalar {
  kind: 'scalar';
  value: string | number | boolean | null;
  line: number; // from 1
}
export interface List {
  kind: 'list';
  items: Value[];
  line: number;
}
export interface Table {
  kind: 'table';
  entries: Map<string, Value>;
  line: number;
}

/** What is wrong with a file: where, which value, what would be right. */
export interface Fault {
  line: number; // from 1; 0: the whole file
  key: string; // "fsdp_config.fsdp_version"; empty: no key in particular
  value: string;
  message: string;
}

export type Parsed = { ok: true; table: Table; faults: Fault[] } | { ok: false; faults: Fault[] };

export const MOST_TEXT = 1 << 18; // characters: no training configuration comes near
const MOST_DEPTH = 32;
const MOST_VALUES = 20_000;

export const scalar = (value: Scalar['value'], line: number): Scalar => ({ kind: 'scalar', value, line });
export const table = (entries: Iterable<readonly [string, Value]>, line: number): Table => ({
  kind: 'table',
  entries: new Map(entries),
  line,
});

class Refused extends Error {
  constructor(
    readonly line: number,
    message: string,
  ) {
    super(message);
  }
}

/** Counts what a tree is made of. */
class Budget {
  #values = 0;
  spend(line: number, depth: number): void {
    if (depth > MOST_DEPTH) throw new Refused(line, `Nested deeper than ${MOST_DEPTH} levels: no training configuration is.`);
    if (++this.#values > MOST_VALUES)
      throw new Refused(line, `More than ${MOST_VALUES.toLocaleString('en')} values: no training configuration has so many.`);
  }
}

const nothing = (message: string, line = 0, value = ''): Parsed => ({ ok: false, faults: [{ line, key: '', value, message }] });

/** Text that is not worth parsing at all. */
export function refusal(text: string): string | undefined {
  if (text.trim() === '') return 'Nothing is pasted yet.';
  if (text.length > MOST_TEXT) {
    return `${text.length.toLocaleString('en')} characters: a training configuration has fewer than ${MOST_TEXT.toLocaleString('en')}.`;
  }
  if (text.includes('\0')) return 'This is not text.';
  return undefined;
}

async function parsed(text: string, read: () => Promise<Parsed> | Parsed): Promise<Parsed> {
  const no = refusal(text);
  if (no) return nothing(no);
  try {
    return await read();
  } catch (error) {
    if (error instanceof Refused) return nothing(error.message, error.line);
    // The parsers recurse: text of brackets alone runs out of stack.
    if (error instanceof RangeError) return nothing('Nested too deep to be a training configuration.');
    return nothing(error instanceof Error ? shorten(error.message) : 'This could not be read.');
  }
}

const BRACKETS = /[[{]/g;

/** Flow collections nest by brackets: more of them in one line than any file has are not handed to a parser that recurses. */
function bracketsTooDeep(text: string): boolean {
  if ((text.match(BRACKETS)?.length ?? 0) < 200) return false;
  let depth = 0;
  for (const character of text) {
    if (character === '[' || character === '{') depth++;
    else if (character === ']' || character === '}') depth--;
    if (depth > 200) return true;
  }
  return false;
}

export function parseYaml(text: string): Promise<Parsed> {
  return parsed(text, async () => {
    if (bracketsTooDeep(text) || deepIndentation(text)) return nothing('Nested too deep to be a training configuration.');
    const yaml = await import('yaml');
    const lines = new yaml.LineCounter();
    // 1.1 as Python's yaml reads it: yes and no, 1_000; keys given twice are told below, as the last one wins there.
    const document = yaml.parseDocument(text, {
      version: '1.1',
      lineCounter: lines,
      uniqueKeys: false,
      merge: true,
      prettyErrors: false,
      logLevel: 'silent',
    });
    const faults: Fault[] = document.errors.slice(0, 20).map((error) => {
      const line = lines.linePos(error.pos[0]).line;
      return { line, key: '', value: lineText(text, line), message: shorten(error.message) };
    });
    if (faults.length > 0) return { ok: false, faults };

    const budget = new Budget();
    const known = new Map<unknown, Value>();
    const open = new Set<unknown>();
    const lineOf = (node: unknown, fallback: number): number => {
      const range = yaml.isNode(node) ? node.range : undefined;
      return range ? lines.linePos(range[0]).line : fallback;
    };
    const source = (node: unknown): string => {
      const range = yaml.isNode(node) ? node.range : undefined;
      return range ? text.slice(range[0], range[1]).trim() : '';
    };
    const convert = (node: unknown, fallback: number, depth: number): Value => {
      const line = lineOf(node, fallback);
      if (yaml.isAlias(node)) {
        const target = node.resolve(document);
        if (target === undefined) throw new Refused(line, `The alias “*${node.source}” refers to nothing.`);
        if (open.has(target)) throw new Refused(line, `The alias “*${node.source}” refers to what it stands in.`);
        return known.get(target) ?? convert(target, line, depth);
      }
      budget.spend(line, depth);
      if (yaml.isMap(node)) {
        open.add(node);
        const entries = new Map<string, Value>();
        for (const pair of node.items) {
          const key = yaml.isScalar(pair.key) ? String(pair.key.value ?? '') : source(pair.key);
          const value = convert(pair.value, lineOf(pair.key, line), depth + 1);
          if (key === '<<' && value.kind === 'table') {
            for (const [name, merged] of value.entries) {
              budget.spend(line, depth);
              if (!entries.has(name)) entries.set(name, merged);
            }
            continue;
          }
          const at = lineOf(pair.key, line);
          if (entries.has(key))
            faults.push({
              line: at,
              key,
              value: shorten(source(pair.value)),
              message: `“${shorten(key)}” is given twice; the last one counts.`,
            });
          entries.set(key, value.kind === 'scalar' ? { ...value, line: at } : value);
        }
        open.delete(node);
        const made: Table = { kind: 'table', entries, line };
        known.set(node, made);
        return made;
      }
      if (yaml.isSeq(node)) {
        open.add(node);
        const made: List = {
          kind: 'list',
          items: node.items.map((item) => convert(yaml.isPair(item) ? item.value : item, line, depth + 1)),
          line,
        };
        open.delete(node);
        known.set(node, made);
        return made;
      }
      if (!yaml.isScalar(node)) return scalar(null, line);
      const { value } = node;
      const plain = value === null || ['string', 'number', 'boolean'].includes(typeof value);
      const made = scalar(plain ? (value as Scalar['value']) : typeof value === 'bigint' ? Number(value) : source(node), line);
      known.set(node, made);
      return made;
    };
    const root = convert(document.contents, 1, 0);
    if (root.kind !== 'table') return nothing('A configuration is a list of “key: value” lines.', root.line, shown(root));
    return { ok: true, table: root, faults };
  });
}

function deepIndentation(text: string): boolean {
  return /^(?: {400}|\t{200})|(?:- ){64}|(?:\? ){64}/m.test(text);
}

export function parseJson(text: string): Promise<Parsed> {
  return parsed(text, () => {
    if (bracketsTooDeep(text)) return nothing('Nested too deep to be a training configuration.');
    const { config, faults, places } = readPasted(text);
    if (!config) {
      return { ok: false, faults: faults.map(({ line, message }) => ({ line, key: '', value: lineText(text, line), message })) };
    }
    const budget = new Budget();
    const convert = (value: Json, pointer: string, depth: number): Value => {
      const { line } = lineAndColumn(text, places.get(pointer) ?? 0);
      budget.spend(line, depth);
      if (Array.isArray(value))
        return { kind: 'list', items: value.map((item, index) => convert(item, `${pointer}/${index}`, depth + 1)), line };
      if (typeof value === 'object' && value !== null) {
        const entries = Object.entries(value).map(([key, item]) => {
          return [key, convert(item, `${pointer}/${key.replace(/~/g, '~0').replace(/\//g, '~1')}`, depth + 1)] as const;
        });
        return table(entries, line);
      }
      return scalar(value, line);
    };
    return { ok: true, table: convert(config, '', 0) as Table, faults: [] };
  });
}

export function parseToml(text: string): Promise<Parsed> {
  return parsed(text, async () => {
    if (bracketsTooDeep(text)) return nothing('Nested too deep to be a training configuration.');
    const { parse, TomlError } = await import('smol-toml');
    let root: Record<string, unknown>;
    try {
      root = parse(text, { maxDepth: MOST_DEPTH });
    } catch (error) {
      if (error instanceof TomlError) return nothing(shorten(error.message.split('\n')[0] ?? ''), error.line, lineText(text, error.line));
      throw error;
    }
    const lines = tomlLines(text);
    const budget = new Budget();
    const convert = (value: unknown, path: string, line: number, depth: number): Value => {
      const here = lines.get(path) ?? line;
      budget.spend(here, depth);
      if (Array.isArray(value)) return { kind: 'list', items: value.map((item) => convert(item, path, here, depth + 1)), line: here };
      if (value instanceof Date || typeof value === 'bigint') return scalar(String(value), here);
      if (typeof value === 'object' && value !== null) {
        return table(
          Object.entries(value).map(([key, item]) => [key, convert(item, path ? `${path}.${key}` : key, here, depth + 1)] as const),
          here,
        );
      }
      return scalar(value as Scalar['value'], here);
    };
    return { ok: true, table: convert(root, '', 1, 0) as Table, faults: [] };
  });
}

/** "training.seq_len" → its line. Only for showing: what is not found is shown with the line of its table. */
function tomlLines(text: string): Map<string, number> {
  const lines = new Map<string, number>();
  let section = '';
  text.split('\n').forEach((raw, index) => {
    const header = /^\s*\[\[?\s*([\w."' -]+?)\s*\]\]?\s*(#.*)?$/.exec(raw);
    const key = /^\s*([\w."'-]+)\s*=/.exec(raw);
    const bare = (name: string) => name.replace(/["'\s]/g, '');
    if (header) {
      section = bare(header[1] ?? '');
      if (!lines.has(section)) lines.set(section, index + 1);
    } else if (key) {
      const path = (section ? `${section}.` : '') + bare(key[1] ?? '');
      if (!lines.has(path)) lines.set(path, index + 1);
    }
  });
  return lines;
}

export function lineText(text: string, line: number): string {
  return shorten((text.split('\n')[line - 1] ?? '').trim());
}

const LONGEST = 80;

export function shorten(text: string, most = LONGEST): string {
  const flat = text.replace(/\s+/g, ' ');
  return flat.length > most ? `${flat.slice(0, most - 1)}…` : flat;
}

/** A value in a few words. */
export function shown(value: Value | undefined): string {
  if (!value) return '';
  return shorten(words(value, 0));
}

function words(value: Value, depth: number): string {
  if (value.kind === 'scalar') return value.value === null ? 'null' : String(value.value).slice(0, 2 * LONGEST);
  if (depth > 2) return '…';
  if (value.kind === 'list')
    return `[${value.items
      .slice(0, 8)
      .map((item) => words(item, depth + 1))
      .join(', ')}${value.items.length > 8 ? ', …' : ''}]`;
  const entries = [...value.entries].slice(0, 8).map(([key, item]) => `${key.slice(0, LONGEST)}: ${words(item, depth + 1)}`);
  return `{${entries.join(', ')}${value.entries.size > 8 ? ', …' : ''}}`;
}

/** What the comments of a file say about how many GPUs or nodes it is meant for: shown beside the question, never taken. */
export function gpuRemarks(text: string): { line: number; text: string }[] {
  return text
    .slice(0, MOST_TEXT)
    .split('\n')
    .flatMap((raw, index) => {
      const comment = /(?:^|\s)#\s*(.{0,200})/.exec(raw)?.[1] ?? '';
      return /\d+\s*(?:x\s*)?(?:GPUs?|nodes?|[AHB]\d{2,3}s?|ranks?)\b/i.test(comment) ? [{ line: index + 1, text: shorten(comment) }] : [];
    })
    .slice(0, 3);
}
