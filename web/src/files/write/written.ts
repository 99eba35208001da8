import type { Json, JsonObject } from '../../choice/choice';

// A spec in the words of a tool. What the tool cannot say is listed, never dropped silently: each leaf of the spec is either said
// (reading the files gives it back) or lost (with the reason).

export interface WrittenFile {
  name: string;
  text: string;
}

export interface Written {
  files: WrittenFile[];
  command: string;
  said: string[]; // JSON pointers into the spec
  lost: { at: string; why: string }[];
}

export type Export = { ok: true; written: Written } | { ok: false; why: string };

/** A spec (the wire format), with what it leaves out at its default. */
export class View {
  readonly said = new Set<string>();
  readonly lost = new Map<string, string>();

  constructor(readonly spec: JsonObject) {}

  get(at: string): Json | undefined {
    let value: Json | undefined = this.spec;
    for (const key of at.slice(1).split('/')) {
      if (typeof value !== 'object' || value === null || Array.isArray(value) || !Object.hasOwn(value, key)) return undefined;
      value = value[key];
    }
    return value;
  }

  text(at: string, fallback: string): string {
    const value = this.get(at);
    return typeof value === 'string' ? value : fallback;
  }

  number(at: string, fallback: number): number {
    const value = this.get(at);
    return typeof value === 'number' ? value : fallback;
  }

  flag(at: string, fallback: boolean): boolean {
    const value = this.get(at);
    return typeof value === 'boolean' ? value : fallback;
  }

  /** Marks leaves as said by the files. */
  say(...at: string[]): void {
    for (const one of at) if (this.get(one) !== undefined) this.said.add(one);
  }

  lose(at: string, why: string): void {
    if (this.get(at) !== undefined) this.lost.set(at, why);
  }

  /** Says it where the tool's own value is the spec's, else loses it. */
  match(at: string, tools: Json, why: string): void {
    const value = this.get(at);
    if (value === undefined) return;
    if (JSON.stringify(value) === JSON.stringify(tools)) this.say(at);
    else this.lose(at, why);
  }

  get model(): string {
    const model = this.get('/model');
    if (typeof model === 'string') return model;
    return this.text('/model/name', 'model');
  }

  get kind(): string {
    return this.text('/parallel/data/kind', 'none');
  }

  get degree(): number {
    return this.number('/parallel/data/degree', 1);
  }

  degreeOf(what: 'tensor' | 'pipeline' | 'context' | 'expert'): number {
    return this.number(`/parallel/${what}/degree`, 1);
  }

  get world(): number {
    return this.degree * this.degreeOf('tensor') * this.degreeOf('pipeline') * this.degreeOf('context');
  }

  get perNode(): number {
    return Math.min(this.world, this.number('/cluster/gpus_per_node', 8));
  }

  get nodes(): number {
    return Math.ceil(this.world / this.perNode);
  }

  get lora(): boolean {
    return this.text('/training/method', 'full') === 'lora';
  }

  get bits(): number {
    return this.number('/training/base_quantization/bits', 0);
  }

  get weights(): string {
    return this.text('/training/weights', 'bfloat16');
  }

  get autocast(): string | null {
    const value = this.get('/training/autocast');
    return typeof value === 'string' ? value : null;
  }

  /** Every leaf that was neither said nor lost is lost for a reason of the tool's. */
  done(files: WrittenFile[], command: string, tool: string): Written {
    for (const at of leaves(this.spec)) {
      if (this.said.has(at) || this.lost.has(at) || IMPLIED.some((pattern) => pattern.test(at))) continue;
      this.lost.set(at, `${tool} has no setting for it`);
    }
    return { files, command, said: [...this.said], lost: [...this.lost].map(([at, why]) => ({ at, why })) };
  }
}

/** The format's own, what the machine is, and how PyTorch is started: not a trainer's to say. */
const IMPLIED = [/^\/version$/, /^\/model/, /^\/cluster\/(gpu|memory)/, /^\/software/, /^\/allocator/, /^\/parallel\/rank$/];

export function leaves(json: Json, at = ''): string[] {
  if (typeof json === 'object' && json !== null && !Array.isArray(json) && Object.keys(json).length > 0) {
    return Object.entries(json).flatMap(([key, value]) => leaves(value, `${at}/${key}`));
  }
  return at === '' ? [] : [at];
}

type Plain = Json | undefined;

/** YAML of one level of tables; what is undefined is left out. */
export function yaml(entries: Readonly<Record<string, Plain>>, indent = ''): string {
  return Object.entries(entries)
    .filter(([, value]) => value !== undefined)
    .map(([key, value]) => {
      if (Array.isArray(value)) return `${indent}${key}: [${value.map(scalar).join(', ')}]\n`;
      if (typeof value === 'object' && value !== null) return `${indent}${key}:\n${yaml(value, `${indent}  `)}`;
      return `${indent}${key}: ${scalar(value ?? null)}\n`;
    })
    .join('');
}

function scalar(value: Json): string {
  if (typeof value !== 'string') return JSON.stringify(value);
  const plain = /^[A-Za-z_][\w./@+-]*$/.test(value) && !/^(true|false|yes|no|on|off|null|y|n)$/i.test(value);
  return plain ? value : JSON.stringify(value);
}

export function toml(sections: Readonly<Record<string, Readonly<Record<string, Plain>>>>): string {
  return Object.entries(sections)
    .map(([name, entries]) => {
      const lines = Object.entries(entries).filter(([, value]) => value !== undefined && value !== null);
      return lines.length === 0 ? '' : `[${name}]\n${lines.map(([key, value]) => `${key} = ${JSON.stringify(value)}\n`).join('')}`;
    })
    .filter(Boolean)
    .join('\n');
}

/** PYTORCH_CUDA_ALLOC_CONF, where the allocator is not left at its default. */
export function allocator(view: View): string {
  const parts = [
    ...(view.flag('/allocator/expandable_segments', false) ? ['expandable_segments:True'] : []),
    ...(view.number('/allocator/max_split_size_mb', 0) > 0 ? [`max_split_size_mb:${view.number('/allocator/max_split_size_mb', 0)}`] : []),
  ];
  return parts.length > 0 ? `PYTORCH_CUDA_ALLOC_CONF=${parts.join(',')} ` : '';
}

export function torchrun(view: View): string {
  const nodes = view.nodes > 1 ? ` --nnodes ${view.nodes} --rdzv_backend c10d --rdzv_endpoint HEAD_NODE:29500` : '';
  return `torchrun --nproc_per_node ${view.perNode}${nodes}`;
}
