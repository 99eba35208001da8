import { calculate } from './shell';
import { scalar, shorten, table, type Fault, type Table, type Value } from './tree';

// Python source, as far as it says arguments: Name(key=value, …) with values that are written out, or named above. Nothing is
// run; what is computed is left out and told.

export interface Call {
  name: string; // the last part: "TrainingArguments"
  line: number;
  first: Value | undefined; // the first positional argument
  arguments: Table;
}

interface Token {
  kind: 'name' | 'number' | 'string' | 'sign' | 'line';
  text: string;
  line: number;
}

const MOST_TOKENS = 40_000;
const MOST_DEPTH = 24;
const CALLS =
  /^(TrainingArguments|Seq2SeqTrainingArguments|\w*(SFT|DPO|GRPO|KTO|ORPO|CPO|RLOO|PPO|Reward|BCO|XPO|GKD|OnlineDPO|NashMD|PRM|Model)Config|LoraConfig|PeftConfig|BitsAndBytesConfig|from_pretrained|get_peft_model|FastLanguageModel|ScriptArguments|FullyShardedDataParallelPlugin|DeepSpeedPlugin|\w*Trainer|Accelerator|dict)$/;

/** Of these a value that is not known matters; objects are not values. */
const SETTINGS = /(Arguments|SFTConfig|DPOConfig|LoraConfig|BitsAndBytesConfig|from_pretrained)$/;
const OBJECTS = [
  'quantization_config',
  'peft_config',
  'revision',
  'trust_remote_code',
  'token',
  'use_cache',
  'cache_dir',
  'device_map',
  'report_to',
  'output_dir',
  'run_name',
  'eval_strategy',
  'model_init_kwargs',
  'chat_template_path',
  'lora_alpha',
  'local_files_only',
  'tokenizer',
  'config',
];

export function looksLikePython(text: string): boolean {
  return (
    /\b(TrainingArguments|Seq2SeqTrainingArguments|SFTConfig|DPOConfig|GRPOConfig|KTOConfig|ORPOConfig|LoraConfig|BitsAndBytesConfig|SFTTrainer|DPOTrainer|Trainer)\s*\(/.test(
      text,
    ) || /^\s*\w+\s*=\s*[^=\n]+,\s*(#.*)?$/m.test(text)
  );
}

export function readPython(text: string): { calls: Call[]; faults: Fault[] } {
  const reader = new Reader(lex(text));
  return reader.program();
}

function lex(text: string): Token[] {
  const tokens: Token[] = [];
  let line = 1;
  let at = 0;
  let open = 0;
  const pattern =
    /[ \t\f\r]+|\\\r?\n|#[^\n]*|\n|(?:[rbuf]{0,2})("""|'''|"|')|\d[\d_]*(?:\.\d[\d_]*)?(?:e[+-]?\d+)?|\.\d+(?:e[+-]?\d+)?|[^\W\d]\w*|\*\*|\/\/|->|==|!=|<=|>=|:=|\S/giuy;
  while (at < text.length && tokens.length < MOST_TOKENS) {
    pattern.lastIndex = at;
    const match = pattern.exec(text);
    if (!match) break;
    const piece = match[0];
    at += piece.length;
    if (match[1]) {
      const quote = match[1];
      const from = line;
      let end = at;
      while (end < text.length && !text.startsWith(quote, end)) {
        if (text[end] === '\\') end++;
        else if (text[end] === '\n') {
          if (quote.length === 1) break;
          line++;
        }
        end++;
      }
      const inner = text.slice(at, end).replace(/\\(.)/g, '$1');
      tokens.push({ kind: 'string', text: /f/i.test(piece.slice(0, 2)) && inner.includes('{') ? '' : inner, line: from });
      at = Math.min(text.length, end + quote.length);
    } else if (piece.includes('\n')) {
      if (piece === '\n' && open === 0) tokens.push({ kind: 'line', text: '\n', line });
      line++;
    } else if (/^[ \t\f\r#]/.test(piece)) continue;
    else if (/^[\d.]\d*/.test(piece) && /\d/.test(piece)) tokens.push({ kind: 'number', text: piece.replaceAll('_', ''), line });
    else if (/^[^\W\d]/u.test(piece)) tokens.push({ kind: 'name', text: piece, line });
    else {
      if ('([{'.includes(piece)) open++;
      if (')]}'.includes(piece)) open = Math.max(0, open - 1);
      tokens.push({ kind: 'sign', text: piece, line });
    }
  }
  tokens.push({ kind: 'line', text: '\n', line });
  return tokens;
}

class Reader {
  #at = 0;
  readonly #names = new Map<string, Value>();
  readonly #calls: Call[] = [];
  readonly #faults: Fault[] = [];

  constructor(private readonly tokens: readonly Token[]) {}

  program(): { calls: Call[]; faults: Fault[] } {
    // A bare piece of arguments, as cut out of a call.
    const bare = this.#bareArguments();
    if (bare) this.#calls.push({ name: '', line: 1, first: undefined, arguments: bare });
    else {
      while (this.#at < this.tokens.length) {
        const before = this.#at;
        this.#statement();
        if (this.#at === before) this.#at++;
      }
    }
    return { calls: this.#calls, faults: this.#faults.slice(0, 20) };
  }

  #peek(ahead = 0): Token | undefined {
    return this.tokens[this.#at + ahead];
  }

  #is(text: string, ahead = 0): boolean {
    const token = this.#peek(ahead);
    return token?.kind === 'sign' && token.text === text;
  }

  #bareArguments(): Table | undefined {
    const entries = new Map<string, Value>();
    let commas = 0;
    while (this.#at < this.tokens.length) {
      const token = this.#peek();
      if (token?.kind === 'line' || this.#is(',')) {
        if (this.#is(',')) commas++;
        this.#at++;
        continue;
      }
      if (token?.kind !== 'name' || !this.#is('=', 1)) break;
      this.#at += 2;
      const value = this.#value(0);
      if (value) entries.set(token.text, withLine(value, token.line));
      if (!this.#is(',') && this.#peek()?.kind !== 'line' && this.#at < this.tokens.length) break;
    }
    if (this.#at >= this.tokens.length && entries.size > 0 && commas > 0) return table(entries, 1);
    this.#at = 0;
    return undefined;
  }

  #statement(): void {
    const token = this.#peek();
    if (token?.kind === 'name' && (this.#is('=', 1) || this.#is(':', 1))) {
      let skip = 1;
      if (this.#is(':', 1)) {
        while (this.#peek(skip) && !this.#is('=', skip) && this.#peek(skip)?.kind !== 'line' && skip < 12) skip++;
        if (!this.#is('=', skip)) {
          this.#at++;
          return;
        }
      }
      this.#at += skip + 1;
      const value = this.#value(0);
      if (value) this.#names.set(token.text, withLine(value, token.line));
      return;
    }
    if (token?.kind === 'name' || token?.kind === 'string') {
      this.#value(0);
      return;
    }
    this.#at++;
  }

  /** A value that is written out; undefined where it is computed. Always moves on past what it could read. */
  #value(depth: number): Value | undefined {
    if (depth > MOST_DEPTH) {
      this.#at++;
      return undefined;
    }
    const start = this.#peek();
    const first = this.#atom(depth);
    let value = first;
    const sign = this.#peek();
    if (sign?.kind === 'sign' && ['*', '/', '+', '-', '//', '**', '%'].includes(sign.text) && start) {
      const parts: string[] = [numberText(first)];
      while (this.#peek()?.kind === 'sign' && ['*', '/', '+', '-', '//', '**', '%'].includes(this.#peek()?.text ?? '')) {
        parts.push(this.#peek()?.text ?? '');
        this.#at++;
        parts.push(numberText(this.#atom(depth + 1)));
      }
      const made = parts.every((part) => part !== '') ? calculate(parts.join(' ')) : undefined;
      value = made === undefined ? undefined : scalar(made, start.line);
    }
    // a if b else c, a or b, comparisons: computed
    const next = this.#peek();
    if (
      (next?.kind === 'name' && ['if', 'or', 'and', 'not', 'in', 'is', 'for'].includes(next.text)) ||
      (next?.kind === 'sign' && ['==', '!=', '<', '>', '<=', '>='].includes(next.text))
    ) {
      this.#skip();
      return undefined;
    }
    return value;
  }

  /** On to what ends an expression at this depth. */
  #skip(): void {
    let open = 0;
    while (this.#at < this.tokens.length) {
      const token = this.#peek();
      if (token?.kind === 'line' && open === 0) return;
      if (token?.kind === 'sign') {
        if (open === 0 && [',', ')', ']', '}'].includes(token.text)) return;
        if ('([{'.includes(token.text)) open++;
        if (')]}'.includes(token.text)) open--;
      }
      this.#at++;
    }
  }

  #atom(depth: number): Value | undefined {
    const token = this.#peek();
    if (!token) return undefined;
    this.#at++;
    if (token.kind === 'number') return scalar(Number(token.text), token.line);
    if (token.kind === 'string') {
      let text = token.text;
      while (this.#peek()?.kind === 'string') text += this.tokens[this.#at++]?.text ?? '';
      return scalar(text.slice(0, 20_000), token.line);
    }
    if (token.kind === 'line') {
      this.#at--;
      return undefined;
    }
    if (token.kind === 'name') return this.#named(token, depth);
    if (token.text === '-') {
      const value = this.#atom(depth + 1);
      return value?.kind === 'scalar' && typeof value.value === 'number' ? scalar(-value.value, token.line) : undefined;
    }
    if (token.text === '[' || token.text === '(') return this.#list(token, token.text === '[' ? ']' : ')', depth);
    if (token.text === '{') return this.#dict(token, depth);
    this.#at--;
    return undefined;
  }

  #named(token: Token, depth: number): Value | undefined {
    const constants: Record<string, boolean | null> = { True: true, False: false, None: null };
    if (Object.hasOwn(constants, token.text)) return scalar(constants[token.text] ?? null, token.line);
    let name = token.text;
    let path = name;
    while (this.#is('.') && this.#peek(1)?.kind === 'name') {
      name = this.#peek(1)?.text ?? name;
      path += `.${name}`;
      this.#at += 2;
    }
    if (this.#is('(')) return this.#call(name, path, token.line, depth);
    if (this.#is('[')) {
      this.#at++;
      this.#skip();
      while (this.#is(',')) {
        this.#at++;
        this.#skip();
      }
      if (this.#is(']')) this.#at++;
      return undefined;
    }
    if (path.startsWith('torch.')) return scalar(path, token.line);
    return this.#names.get(path) ?? (/^[A-Z]\w*\./.test(path) ? scalar(name, token.line) : undefined);
  }

  #call(name: string, path: string, line: number, depth: number): Value | undefined {
    this.#at++; // "("
    const entries = new Map<string, Value>();
    let first: Value | undefined;
    let position = 0;
    while (this.#at < this.tokens.length && !this.#is(')')) {
      const before = this.#at;
      if (this.#peek()?.kind === 'line' || this.#is(',')) {
        this.#at++;
        continue;
      }
      if (this.#is('**')) {
        this.#at++;
        const spread = this.#value(depth + 1);
        if (spread?.kind === 'table') for (const [key, value] of spread.entries) entries.set(key, value);
      } else if (this.#peek()?.kind === 'name' && this.#is('=', 1)) {
        const key = this.#peek();
        this.#at += 2;
        const from = this.#at;
        const value = this.#value(depth + 1);
        if (key && value) entries.set(key.text, withLine(value, key.line));
        else if (key && depth < 2 && SETTINGS.test(name) && !OBJECTS.includes(key.text)) {
          const words = this.tokens
            .slice(from, from + 8)
            .map((one) => one.text.trim())
            .join(' ');
          this.#faults.push({ line: key.line, key: key.text, value: shorten(words, 40), message: 'computed when it runs: not known here' });
        }
        this.#skip();
      } else {
        const value = this.#value(depth + 1);
        if (position++ === 0) first = value;
        this.#skip();
      }
      if (this.#at === before) this.#at++;
    }
    if (this.#is(')')) this.#at++;
    const made = table(entries, line);
    if (name === 'dict') return made;
    const known = path.includes('from_pretrained') ? (/Tokenizer|Processor|GenerationConfig/.test(path) ? '' : 'from_pretrained') : name;
    if (known && CALLS.test(known)) this.#calls.push({ name: known, line, first, arguments: made });
    // What follows a call is not followed: .to("cuda")
    while (this.#is('.') && this.#peek(1)?.kind === 'name') {
      this.#at += 2;
      if (this.#is('(')) {
        this.#at++;
        let open = 1;
        while (this.#at < this.tokens.length && open > 0) {
          if (this.#is('(')) open++;
          if (this.#is(')')) open--;
          this.#at++;
        }
      }
    }
    return /Config$/.test(name) ? made : undefined;
  }

  #list(token: Token, end: string, depth: number): Value | undefined {
    const items: Value[] = [];
    let commas = 0;
    while (this.#at < this.tokens.length && !this.#is(end)) {
      const before = this.#at;
      if (this.#is(',')) {
        commas++;
        this.#at++;
        continue;
      }
      const value = this.#value(depth + 1);
      if (value) items.push(value);
      if (this.#at === before) this.#at++;
    }
    if (this.#is(end)) this.#at++;
    if (end === ')' && commas === 0) return items[0];
    return { kind: 'list', items, line: token.line };
  }

  #dict(token: Token, depth: number): Value {
    const entries = new Map<string, Value>();
    while (this.#at < this.tokens.length && !this.#is('}')) {
      const before = this.#at;
      if (this.#is(',')) {
        this.#at++;
        continue;
      }
      const key = this.#value(depth + 1);
      if (this.#is(':')) {
        this.#at++;
        const value = this.#value(depth + 1);
        if (key?.kind === 'scalar' && value) entries.set(String(key.value), value);
      }
      if (this.#at === before) this.#at++;
    }
    if (this.#is('}')) this.#at++;
    return table(entries, token.line);
  }
}

function withLine(value: Value, line: number): Value {
  return { ...value, line };
}

function numberText(value: Value | undefined): string {
  return value?.kind === 'scalar' && typeof value.value === 'number' ? (value.value < 0 ? `(${value.value})` : String(value.value)) : '';
}
