import { scalar, shorten, table, type Fault, type Table, type Value } from './tree';

// What a launch script passes to its trainer. Nothing is run: variables, arrays, ${x:-y}, $((…)) and plain comparisons are followed
// as text; what a command would print is not known, and stays empty. Every loop here ends, for words and depth are counted.

export interface Word {
  text: string;
  line: number;
}
interface Token extends Word {
  kind: 'word' | 'end' | 'and' | 'or';
}

export interface Launch {
  launcher: Map<string, Word>; // torchrun's, accelerate launch's, deepspeed's own options, with _ for -
  program: string; // "pretrain_gpt.py"
  options: Table; // the trainer's options, with _ for -
  faults: Fault[];
}

const MOST_WORDS = 5_000;
const LONGEST_WORD = 20_000;
const CONTINUED = /^\\[ \t]*\r?\n/; // a stray space after it is what was meant

/** Undefined: there are no options in it. */
export function readLaunch(text: string): Launch | undefined {
  const faults: Fault[] = [];
  const shell = new Shell(faults);
  shell.run(tokens(text));
  const words = pick(shell.commands, shell.held());
  if (!words) return undefined;
  return { ...split(words), faults };
}

/** Words as bash cuts them, still with their quotes and dollars. */
function tokens(text: string): Token[] {
  const made: Token[] = [];
  let line = 1;
  let at = 0;
  const push = (kind: Token['kind'], word: string, where: number) => {
    if (made.length >= MOST_WORDS * 4) return;
    made.push({ kind, text: word.slice(0, LONGEST_WORD), line: where });
  };
  while (at < text.length) {
    const next = text[at] ?? '';
    if (next === '\n') {
      push('end', '', line);
      line++;
      at++;
    } else if (next === '\\' && CONTINUED.test(text.slice(at, at + 80))) {
      at += (CONTINUED.exec(text.slice(at, at + 80))?.[0] ?? '\\').length;
      line++;
    } else if (/\s/.test(next)) at++;
    else if (next === '#') {
      const end = text.indexOf('\n', at);
      at = end < 0 ? text.length : end;
    } else if (text.startsWith('&&', at)) {
      push('and', '', line);
      at += 2;
    } else if (text.startsWith('||', at)) {
      push('or', '', line);
      at += 2;
    } else if (next === ';' || next === '&' || next === '|') {
      push('end', '', line);
      at++;
    } else {
      const start = at;
      const from = line;
      let array = 0; // inside NAME=( … )
      while (at < text.length) {
        const now = text[at] ?? '';
        if (now === '\\') {
          if (text[at + 1] === '\n') line++;
          at += 2;
        } else if (now === "'") {
          const end = text.indexOf("'", at + 1);
          const stop = end < 0 ? text.length : end + 1;
          line += newlines(text, at, stop);
          at = stop;
        } else if (now === '"') {
          const stop = closingQuote(text, at);
          line += newlines(text, at, stop);
          at = stop;
        } else if (now === '$' && (text[at + 1] === '(' || text[at + 1] === '{')) {
          const stop = closing(text, at + 1);
          line += newlines(text, at, stop);
          at = stop;
        } else if (now === '(' && /[A-Za-z_]\w*\+?=$/.test(text.slice(Math.max(start, at - 80), at))) {
          array++;
          at++;
        } else if (array > 0 && now === ')') {
          array--;
          at++;
          if (array === 0) break;
        } else if (array > 0 && now === '#' && /\s|\(/.test(text[at - 1] ?? ' ')) {
          const end = text.indexOf('\n', at);
          at = end < 0 ? text.length : end;
        } else if (now === '\n' && array > 0) {
          line++;
          at++;
        } else if (array === 0 && /[\s;&|]/.test(now)) break;
        else at++;
      }
      push('word', text.slice(start, at), from);
    }
  }
  push('end', '', line);
  return made;
}

function newlines(text: string, from: number, to: number): number {
  let count = 0;
  for (let at = from; at < to; at++) if (text[at] === '\n') count++;
  return count;
}

function closingQuote(text: string, open: number): number {
  let at = open + 1;
  while (at < text.length && text[at] !== '"') at += text[at] === '\\' ? 2 : 1;
  return Math.min(at + 1, text.length);
}

/** Past the bracket that closes the one at `open`. */
function closing(text: string, open: number): number {
  const opener = text[open] ?? '(';
  const closer = opener === '{' ? '}' : ')';
  let depth = 0;
  for (let at = open; at < text.length; at++) {
    if (text[at] === '\\') at++;
    else if (text[at] === opener) depth++;
    else if (text[at] === closer && --depth === 0) return at + 1;
  }
  return text.length;
}

interface Branch {
  taken: boolean; // one of its branches has run
  running: boolean;
}

class Shell {
  readonly commands: Word[][] = [];
  readonly #scalars = new Map<string, Word>();
  readonly #arrays = new Map<string, Word[]>();
  #words = 0;

  constructor(private readonly faults: Fault[]) {}

  /** What variables hold that looks like options. */
  held(): Word[] {
    const texts = [...this.#scalars.values()].filter(({ text }) => /^\s*(\\\s*)?--[a-z]/.test(text));
    return [...[...this.#arrays.values()].flat(), ...texts.flatMap(({ text, line }) => cut(text, line))];
  }

  run(all: readonly Token[]): void {
    const branches: Branch[] = [];
    let skipping = 0; // inside case … esac
    let status = true;
    let joined: 'and' | 'or' | undefined;
    let command: Token[] = [];
    for (const token of all) {
      if (token.kind === 'word') {
        command.push(token);
        continue;
      }
      let words = command;
      command = [];
      const link = joined;
      joined = token.kind === 'end' ? undefined : token.kind;
      if (words.length === 0) continue;
      const first = () => words[0]?.text ?? '';
      if (first() === 'case') skipping++;
      if (skipping > 0) {
        if (words.some((word) => word.text === 'esac')) skipping--;
        else if (first() === 'case')
          this.faults.push({
            line: words[0]?.line ?? 0,
            key: 'case',
            value: shorten(words.map((word) => word.text).join(' ')),
            message: 'a choice between cases is not followed',
          });
        continue;
      }
      const active = () => branches.every((branch) => branch.running);
      if (first() === 'fi') {
        branches.pop();
        continue;
      }
      if (first() === 'if') {
        const before = active();
        const yes = before && this.#test(words.slice(1));
        branches.push({ taken: yes, running: yes });
        status = yes;
        continue;
      }
      if (first() === 'elif') {
        const branch = branches.at(-1);
        if (branch) {
          branch.running = false;
          const outer = branches.slice(0, -1).every((one) => one.running);
          branch.running = outer && !branch.taken && this.#test(words.slice(1));
          branch.taken ||= branch.running;
        }
        continue;
      }
      if (first() === 'else') {
        const branch = branches.at(-1);
        if (branch) branch.running = !branch.taken;
        words = words.slice(1);
      }
      while (['then', 'do', 'done', '{', '}', '!', 'time', 'exec', 'nohup'].includes(first())) words = words.slice(1);
      if (words.length === 0 || !active()) continue;
      if (link === 'and' && !status) continue;
      if (link === 'or' && status) continue;
      if (['[', '[[', 'test'].includes(first())) {
        status = this.#test(words);
        continue;
      }
      status = true;
      this.#command(words);
    }
  }

  #command(words: readonly Token[]): void {
    let rest = [...words];
    if (['export', 'declare', 'local', 'readonly', 'typeset'].includes(rest[0]?.text ?? ''))
      rest = rest.slice(1).filter((word) => !/^-\w+$/.test(word.text));
    while (rest[0]) {
      const assigned = /^([A-Za-z_]\w*)(\+?)=([\s\S]*)$/.exec(rest[0].text);
      if (!assigned) break;
      this.#assign(assigned[1] ?? '', assigned[2] === '+', assigned[3] ?? '', rest[0].line);
      rest = rest.slice(1);
    }
    if (rest.length === 0) return;
    this.commands.push(rest.flatMap((word) => this.#expand(word.text, word.line)));
  }

  #assign(name: string, append: boolean, raw: string, line: number): void {
    if (raw.startsWith('(') && raw.endsWith(')')) {
      const inner = tokens(raw.slice(1, -1)).filter((token) => token.kind === 'word');
      const words = inner.flatMap((word) => this.#expand(word.text, line + word.line - 1));
      this.#arrays.set(name, append ? [...(this.#arrays.get(name) ?? []), ...words] : words);
      this.#scalars.delete(name);
      return;
    }
    const text = this.#text(raw, line);
    const before = append ? (this.#scalars.get(name)?.text ?? '') : '';
    this.#arrays.delete(name);
    this.#scalars.set(name, { text: (before + text).slice(0, LONGEST_WORD), line });
  }

  /** One raw word → the words it comes to: an array gives several, and so does unquoted text with spaces. */
  #expand(raw: string, line: number): Word[] {
    if (this.#words > MOST_WORDS) return [];
    const array =
      /^"?\$\{([A-Za-z_]\w*)\[[@*]\]\}"?$/.exec(raw) ?? /^"?\$([A-Za-z_]\w*)"?$/.exec(raw) ?? /^"?\$\{([A-Za-z_]\w*)\}"?$/.exec(raw);
    const held = array && this.#arrays.get(array[1] ?? '');
    if (held) {
      this.#words += held.length;
      return held.flatMap((word) => cut(word.text, word.line));
    }
    const plain = array && this.#scalars.get(array[1] ?? '');
    if (plain) {
      const words = raw.startsWith('"') && !/\s--?\w/.test(plain.text) ? [plain] : cut(plain.text, plain.line);
      this.#words += words.length;
      return words;
    }
    const text = this.#text(raw, line);
    const words = /^\s*--?[A-Za-z]/.test(text) || /\s--[A-Za-z]/.test(text) ? cut(text, line) : [{ text, line }];
    this.#words += words.length;
    return words.filter((word) => word.text !== '' || /["']/.test(raw));
  }

  /** A word with its quotes gone and its variables filled in. */
  #text(raw: string, line: number): string {
    let made = '';
    let at = 0;
    while (at < raw.length && made.length < LONGEST_WORD) {
      const now = raw[at] ?? '';
      if (now === "'") {
        const end = raw.indexOf("'", at + 1);
        made += raw.slice(at + 1, end < 0 ? raw.length : end);
        at = end < 0 ? raw.length : end + 1;
      } else if (now === '"') {
        const stop = closingQuote(raw, at);
        made += this.#dollars(raw.slice(at + 1, Math.max(at + 1, stop - 1)), line);
        at = stop;
      } else if (now === '\\') {
        made += raw[at + 1] === '\n' ? '\n' : (raw[at + 1] ?? '');
        at += 2;
      } else if (now === '$' && /[{(]/.test(raw[at + 1] ?? '')) {
        const stop = closing(raw, at + 1);
        made += this.#dollars(raw.slice(at, stop), line);
        at = stop;
      } else {
        const end = raw.slice(at).search(now === '$' ? /["'\\]/ : /["'\\$]/);
        const piece = end < 0 ? raw.slice(at) : raw.slice(at, at + end);
        made += this.#dollars(piece, line);
        at += Math.max(1, piece.length);
      }
    }
    return made.slice(0, LONGEST_WORD);
  }

  #dollars(text: string, line: number, depth = 0): string {
    if (!text.includes('$') || depth > 8) return text.replace(/\\\n/g, '\n').replace(/\\(["$`\\])/g, '$1');
    let made = '';
    let at = 0;
    while (at < text.length && made.length < LONGEST_WORD) {
      const dollar = text.indexOf('$', at);
      if (dollar < 0) return made + text.slice(at).replace(/\\\n/g, '\n');
      made += text.slice(at, dollar).replace(/\\\n/g, '\n');
      if (text.startsWith('$((', dollar)) {
        const stop = closing(text, dollar + 1);
        made += this.#arithmetic(text.slice(dollar + 3, Math.max(dollar + 3, stop - 2)), line, depth);
        at = stop;
      } else if (text.startsWith('$(', dollar)) at = closing(text, dollar + 1);
      else if (text.startsWith('${', dollar)) {
        const stop = closing(text, dollar + 1);
        made += this.#braces(text.slice(dollar + 2, Math.max(dollar + 2, stop - 1)), line, depth);
        at = stop;
      } else {
        const name = /^\$([A-Za-z_]\w*|\d|[@*#?])/.exec(text.slice(dollar, dollar + 100))?.[1];
        made += name === undefined ? '$' : this.#value(name);
        at = dollar + 1 + (name?.length ?? 0);
      }
    }
    return made;
  }

  #value(name: string): string {
    return (
      this.#scalars.get(name)?.text ??
      this.#arrays
        .get(name)
        ?.map((word) => word.text)
        .join(' ')
        .slice(0, LONGEST_WORD) ??
      ''
    );
  }

  #braces(inner: string, line: number, depth: number): string {
    const parts = /^([A-Za-z_]\w*|\d+)(?:\[[@*]\])?(?:(:?[-=+?])([\s\S]*))?$/.exec(inner);
    if (!parts) return '';
    const value = this.#value(parts[1] ?? '');
    const operator = parts[2] ?? '';
    if (operator.endsWith('-') || operator.endsWith('=')) return value !== '' ? value : this.#unquoted(parts[3] ?? '', line, depth);
    if (operator.endsWith('+')) return value === '' ? '' : this.#unquoted(parts[3] ?? '', line, depth);
    return value;
  }

  #unquoted(text: string, line: number, depth: number): string {
    return this.#dollars(text.replace(/^(["'])([\s\S]*)\1$/, '$2'), line, depth + 1);
  }

  #arithmetic(text: string, line: number, depth: number): string {
    const filled = this.#dollars(text, line, depth + 1).replace(/[A-Za-z_]\w*/g, (name) => this.#value(name) || 'x');
    const value = calculate(filled);
    return value === undefined ? '' : String(value);
  }

  /** [[ a == b ]] and the like. What cannot be known is no. */
  #test(words: readonly Token[]): boolean {
    const raw = words.map((word) => word.text);
    const inner = raw.filter((word) => !['[', '[[', ']', ']]', 'test', ';'].includes(word));
    const line = words[0]?.line ?? 0;
    const value = (word: string | undefined) => (word === undefined ? '' : this.#text(word, line));
    const not = inner[0] === '!';
    const [a, b, c] = not ? inner.slice(1) : inner;
    const answer = ((): boolean | undefined => {
      if (a === '-z') return value(b) === '';
      if (a === '-n') return value(b) !== '';
      if (a !== undefined && /^-[defrsx]$/.test(a)) return not; // of files nothing is known: the branch is not taken
      if (b === undefined)
        return a === 'true' ? true : a === 'false' ? false : a?.startsWith('$') || a?.startsWith('"') ? value(a) !== '' : undefined;
      const [left, right] = [value(a), value(c)];
      if (b === '==' || b === '=') return right.includes('*') ? left.startsWith(right.replace(/\*.*$/, '')) : left === right;
      if (b === '!=') return left !== right;
      const numbers: Record<string, (x: number, y: number) => boolean> = {
        '-eq': (x, y) => x === y,
        '-ne': (x, y) => x !== y,
        '-gt': (x, y) => x > y,
        '-ge': (x, y) => x >= y,
        '-lt': (x, y) => x < y,
        '-le': (x, y) => x <= y,
      };
      const compare = Object.hasOwn(numbers, b) ? numbers[b] : undefined;
      return compare && left !== '' && right !== '' ? compare(Number(left), Number(right)) : undefined;
    })();
    if (answer === undefined) {
      this.faults.push({
        line,
        key: 'if',
        value: shorten(raw.join(' ')),
        message: 'this condition is not known here; it is taken as not met',
      });
      return false;
    }
    return not ? !answer : answer;
  }
}

/** + - * / % of whole numbers, with brackets. */
export function calculate(text: string): number | undefined {
  const parts = text.match(/\d+(?:\.\d+)?(?:e[+-]?\d+)?|\*\*|\/\/|[-+*/%()]|\S/gi) ?? [];
  if (parts.length > 200) return undefined;
  let at = 0;
  let depth = 0;
  const atom = (): number => {
    const part = parts[at++];
    if (part === '-') return -atom();
    if (part === '(') {
      if (++depth > 20) return NaN;
      const value = sum();
      depth--;
      return parts[at++] === ')' ? value : NaN;
    }
    return part !== undefined && /^\d/.test(part) ? Number(part) : NaN;
  };
  const power = (): number => {
    const base = atom();
    if (parts[at] !== '**') return base;
    at++;
    return base ** power();
  };
  const product = (): number => {
    let value = power();
    while (['*', '/', '//', '%'].includes(parts[at] ?? '')) {
      const operator = parts[at++];
      const right = power();
      value =
        operator === '*' ? value * right : operator === '%' ? value % right : operator === '//' ? Math.floor(value / right) : value / right;
    }
    return value;
  };
  const sum = (): number => {
    let value = product();
    while (parts[at] === '+' || parts[at] === '-') value = parts[at++] === '+' ? value + product() : value - product();
    return value;
  };
  const value = sum();
  return at === parts.length && Number.isFinite(value) ? (Number.isInteger(value) ? value : value) : undefined;
}

/** Text at spaces, quotes kept together; each word with its own line. */
function cut(text: string, line: number): Word[] {
  const words: Word[] = [];
  let here = line;
  for (const [piece] of text.matchAll(/\n|(?:[^\s"']|"[^"]*"|'[^']*'|["'])+/g)) {
    if (piece === '\n') here++;
    else if (piece !== '\\') words.push({ text: piece.replace(/"([^"]*)"|'([^']*)'/g, '$1$2'), line: here });
    if (words.length > MOST_WORDS) break;
  }
  return words;
}

const LAUNCHERS = /(^|\/)(torchrun|python[\d.]*|accelerate|deepspeed|srun|mpirun|llamafactory-cli|axolotl|trl|tune|uv|bash|sh)$/;

/** The command that trains: the last one of a launcher with options; failing that, everything that looks like options. */
function pick(commands: readonly Word[][], held: readonly Word[]): Word[] | undefined {
  const options = (words: readonly Word[]) => words.filter((word) => /^--?[A-Za-z]/.test(word.text)).length;
  const launches = commands.filter((words) => words.some((word) => LAUNCHERS.test(word.text)) && options(words) > 0);
  const best = launches.reduce<Word[] | undefined>((most, words) => (most && options(most) > options(words) ? most : words), undefined);
  // A script cut off before its launch line still says what it would pass.
  const all = [...held, ...commands.flat()];
  if (best && options(best) >= 2) return best;
  return options(all) > 0 ? all : undefined;
}

function split(words: readonly Word[]): { launcher: Map<string, Word>; program: string; options: Table } {
  const starts = (word: Word) => /^--?[A-Za-z]/.test(word.text);
  const program = words.findIndex(
    (word, index) =>
      /\.py$/.test(word.text) ||
      (word.text === '-m' && words[index + 1] !== undefined && !/torch\.distributed|accelerate/.test(words[index + 1]?.text ?? '')),
  );
  const subcommand = words.findIndex(
    (word, index) =>
      ['sft', 'dpo', 'grpo', 'train', 'kto', 'reward', 'rloo'].includes(word.text) &&
      /(trl|llamafactory-cli|axolotl)$/.test(words[index - 1]?.text ?? ''),
  );
  const from = program >= 0 ? program + (words[program]?.text === '-m' ? 2 : 1) : subcommand >= 0 ? subcommand + 1 : 0;
  const name = words[program >= 0 ? program + (words[program]?.text === '-m' ? 1 : 0) : Math.max(0, subcommand)]?.text ?? '';
  const launcher = new Map<string, Word>();
  const head = words.slice(0, from);
  head.forEach((word, index) => {
    if (!starts(word)) return;
    const [key = '', inline] = pair(word.text);
    const after = head[index + 1];
    const value = inline ?? (after && !starts(after) ? after.text : 'true');
    launcher.set(key, { text: value, line: word.line });
  });
  const entries = new Map<string, Value>();
  const tail = words.slice(from);
  for (let index = 0; index < tail.length; index++) {
    const word = tail[index];
    if (!word || !starts(word)) continue;
    const [key = '', inline] = pair(word.text);
    const values: Word[] = inline === undefined ? [] : [{ text: inline, line: word.line }];
    while (inline === undefined && tail[index + 1] && !starts(tail[index + 1] as Word)) values.push(tail[++index] as Word);
    const made = values.map((value) => literal(value.text, word.line));
    entries.set(
      key,
      made.length === 0 ? scalar(true, word.line) : made.length === 1 ? (made[0] as Value) : { kind: 'list', items: made, line: word.line },
    );
  }
  return { launcher, program: name, options: table(entries, tail[0]?.line ?? 1) };
}

function pair(text: string): [string, string?] {
  const found = /^--?([\w.-]+)(?:=([\s\S]*))?$/.exec(text);
  const key = (found?.[1] ?? text).replaceAll('-', '_');
  return found?.[2] === undefined ? [key] : [key, found[2]];
}

function literal(text: string, line: number): Value {
  if (/^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(text)) return scalar(Number(text), line);
  return scalar(text, line);
}
