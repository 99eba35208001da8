// PyTorch's out-of-memory message → its numbers, and what they come to. The message is c10/cuda/CUDACachingAllocator.cpp's; its
// wording changed over the years, and every form since 1.0 is read.

export interface OutOfMemoryMessage {
  device: string; // "GPU 0"
  tried: number; // bytes; the message rounds all of them
  capacity: number | null;
  free: number | null;
  process: number | null; // this process in all, context and libraries included
  others: { name: string; bytes: number }[];
  allocated: number | null;
  unallocated: number | null; // reserved by PyTorch, not allocated
  allowed: number | null; // by set_per_process_memory_fraction
  pools: number | null; // in private pools (CUDA graphs)
  where: Where | null; // what a traceback around it says
  expandable: boolean | null; // whether the message was written with expandable segments on; null: not said
}

export type Where = 'load' | 'forward' | 'backward' | 'optimizer';

const GIB = 2 ** 30;
const NOISE = 0.02 * GIB; // the message has two decimals of each number
const SIZE = '([\\d.,]+)\\s*(bytes?|[KMGT]i?B)';
const MOST = 1 << 20; // characters of a log that are looked at, the last ones

const units: Record<string, number> = { byte: 1, bytes: 1, kib: 2 ** 10, mib: 2 ** 20, gib: 2 ** 30, tib: 2 ** 40 };

function bytes(amount: string | undefined, unit: string | undefined): number | null {
  if (amount === undefined || unit === undefined) return null;
  // PyTorch's own KB, MB and GB are powers of two.
  const factor = units[unit.toLowerCase().replace(/^([kmgt])b$/, '$1ib')];
  const value = Number(amount.replaceAll(',', ''));
  return factor !== undefined && Number.isFinite(value) && value >= 0 && value < 1e9 ** 2 ? value * factor : null;
}

function find(text: string, before: string, after = ''): number | null {
  const found = new RegExp(`${before}\\s*${SIZE}${after}`, 'i').exec(text);
  return bytes(found?.[1], found?.[2]);
}

/** Whether a text is about running out of GPU memory at all. */
export function isOutOfMemory(text: string): boolean {
  return /out of memory|OutOfMemoryError|Tried to allocate|CUBLAS_STATUS_ALLOC_FAILED|cuda failure 2\b/i.test(text.slice(-MOST));
}

/** The last message of a log; undefined: there are no numbers in it. */
export function readOutOfMemory(log: string): OutOfMemoryMessage | undefined {
  // A log wraps and repeats: white space is white space, and the last message counts.
  const text = log.slice(-MOST).replace(/\s+/g, ' ');
  const start = text.toLowerCase().lastIndexOf('tried to allocate');
  if (start < 0) return undefined;
  const before = text.slice(Math.max(0, start - 4000), start);
  const message = text.slice(start, start + 2500);
  const tried = find(message, 'Tried to allocate');
  if (tried === null) return undefined;
  const mps = /MPS backend/i.test(before);

  const old = new RegExp(`\\((?:GPU|HIP|XPU) (\\d+);`, 'i').exec(message);
  const allocated =
    find(message, '(?:Of the allocated memory|\\(GPU \\d+;[^)]*capacity;)', '(?: is allocated by PyTorch| already allocated)') ??
    (mps ? find(before, 'MPS allocated:') : null);
  const reserved = find(message, 'already allocated;[^)]*free;', ' reserved in total');
  // PyTorch 1.0 to 1.3 say “cached”, and mean what is held beyond the allocated.
  const unallocated =
    find(message, 'allocated by PyTorch.{0,160}?(?:, and|,| and)', ' is reserved by PyTorch but unallocated') ??
    find(message, 'already allocated;[^)]*free;', ' cached') ??
    (reserved !== null && allocated !== null ? Math.max(0, reserved - allocated) : null);
  const others = [...message.matchAll(new RegExp(`Process (\\d+) has ${SIZE} memory in use`, 'gi'))].flatMap(([, name, amount, unit]) => {
    const value = bytes(amount, unit);
    return value === null ? [] : [{ name: `process ${name}`, bytes: value }];
  });
  const own = find(message, 'this process has', ' memory in use');
  // In a container the list has this very process among the others: the smallest that can hold what PyTorch holds.
  const held = (allocated ?? 0) + (unallocated ?? 0);
  const self = own === null ? others.filter((one) => one.bytes >= held - NOISE).sort((a, b) => a.bytes - b.bytes)[0] : undefined;
  const named = /(GPU|HIP|XPU|device) (\d+)/i.exec(message);
  return {
    device: old
      ? `GPU ${old[1]}`
      : named
        ? `${(named[1] ?? 'GPU').toUpperCase().replace('DEVICE', 'GPU')} ${named[2]}`
        : mps
          ? 'MPS'
          : 'GPU',
    tried,
    capacity: find(message, '(?:total capac?i?ty of|GPU \\d+;)', '') ?? (mps ? find(before, 'max allowed:') : null),
    free: find(message, 'of which', ' is free') ?? find(message, 'already allocated;', ' free'),
    process: own ?? self?.bytes ?? null,
    others: others.filter((one) => one !== self),
    allocated,
    unallocated,
    allowed: find(message, '', ' allowed'),
    pools: find(message, 'with', ' allocated in private pools'),
    where: whereOf(before),
    expandable: /expandable_segments/i.test(message) ? false : null,
  };
}

function whereOf(trace: string): Where | null {
  const marks: readonly (readonly [Where, RegExp])[] = [
    ['load', /from_pretrained|_load_(?:pretrained|state_dict)|load_checkpoint|\.to\(device|_apply\(fn/gi],
    ['forward', /in forward|training_step|compute_loss/gi],
    ['backward', /\.backward\(|in backward|run_backward|_engine_run_backward/gi],
    ['optimizer', /optimizer\.step|_multi_tensor_\w+|_single_tensor_\w+|_fused_adamw?|_init_group|optim\/\w+\.py/gi],
  ];
  let last: Where | null = null;
  let at = -1;
  for (const [where, pattern] of marks) {
    for (const found of trace.matchAll(pattern)) {
      if (found.index < at) continue;
      at = found.index;
      last = where;
    }
  }
  // Re-run layers are forward frames inside a backward.
  return last === 'forward' && /run_backward|\.backward\(/.test(trace) && /recompute|checkpoint/i.test(trace) ? 'backward' : last;
}

/** A part of the GPU's memory as the message accounts for it. */
export interface Share {
  name: string;
  bytes: number;
  meaning: string;
}

export interface Explanation {
  shares: Share[]; // sum to the capacity, as far as the message says
  reasons: string[]; // sentences, the strongest first
}

const words = (value: number) => (value >= GIB / 10 ? `${(value / GIB).toFixed(2)} GiB` : `${(value / 2 ** 20).toFixed(1)} MiB`);

/** Where the memory is, and why it was not enough. */
export function explainOutOfMemory(message: OutOfMemoryMessage): Explanation {
  const { capacity, free, process, others, allocated, unallocated } = message;
  const shares: Share[] = [];
  const add = (name: string, value: number | null, meaning: string) => {
    if (value !== null && value > 0) shares.push({ name, bytes: value, meaning });
  };
  const reserved = allocated === null ? null : allocated + (unallocated ?? 0);
  add('Allocated by PyTorch', allocated, 'tensors that were alive');
  add('Reserved, not allocated', unallocated, 'held by PyTorch’s allocator, in holes between tensors and in its cache');
  if (process !== null && reserved !== null)
    add(
      'This process, outside PyTorch',
      process - reserved > NOISE ? process - reserved : null,
      'CUDA context, NCCL, kernels of libraries',
    );
  for (const other of others) add(`Other: ${other.name}`, other.bytes, 'another process on the same GPU');
  add('Free', free, 'free on the GPU');
  const known = shares.reduce((sum, one) => sum + one.bytes, 0);
  if (capacity !== null && capacity - known > NOISE) {
    const all = process !== null || others.length > 0;
    add(
      'Not accounted for',
      capacity - known,
      all
        ? 'the driver, or processes of other users, which the message does not list'
        : 'CUDA context and NCCL of this process, the driver, and other processes: this form of the message does not tell them apart',
    );
  }
  return { shares, reasons: reasonsOf(message) };
}

function reasonsOf({ tried, capacity, free, others, unallocated, allowed, pools, expandable, allocated }: OutOfMemoryMessage): string[] {
  const reasons: string[] = [];
  if (allowed !== null && capacity !== null && allowed < capacity - NOISE) {
    reasons.push(
      `A limit of ${words(allowed)} is set for this process (set_per_process_memory_fraction): it failed there, not at the GPU’s ${words(capacity)}.`,
    );
  }
  const elsewhere = others.reduce((sum, one) => sum + one.bytes, 0);
  const missing = tried - (free ?? 0);
  if (capacity !== null && tried > capacity) {
    reasons.push(
      `One tensor of ${words(tried)} is more than the whole GPU (${words(capacity)}): no allocator setting helps, only a smaller tensor.`,
    );
  } else if (unallocated !== null && unallocated >= tried) {
    const share =
      allocated !== null && allocated > 0 ? ` (${Math.round((100 * unallocated) / (allocated + unallocated))} % of what it holds)` : '';
    reasons.push(
      `Fragmentation: PyTorch held ${words(unallocated)} that no tensor used${share}, but in no piece of ${words(tried)}. ${expandable === false ? 'PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True' : 'Expandable segments'} would most likely have let this one through.`,
    );
  } else if (unallocated !== null && missing > 0 && unallocated >= missing) {
    reasons.push(
      `Fragmentation had a share: the ${words(unallocated)} that PyTorch held unused and the ${words(free ?? 0)} that were free would have been enough together. Expandable segments may be enough.`,
    );
  }
  if (elsewhere > NOISE) {
    const names = others.map((one) => one.name).join(', ');
    reasons.push(
      `${names[0]?.toUpperCase() ?? ''}${names.slice(1)} held ${words(elsewhere)} of this GPU${elsewhere >= missing ? ': without that, this allocation would have passed' : ''}.`,
    );
  }
  if (pools !== null && pools > NOISE) reasons.push(`${words(pools)} lie in private pools (CUDA graphs), which nothing else can use.`);
  if (reasons.length === 0 && free !== null && missing <= 0) {
    reasons.push(
      `${words(free)} were free when the message was written, more than the ${words(tried)} asked for: what is free is read after the failure, and the driver may keep some back (a display, Windows, WSL), or another process let go in between.`,
    );
  }
  if (capacity !== null && allocated !== null && allocated > capacity + NOISE) {
    reasons.push(
      `More was allocated (${words(allocated)}) than the GPU has (${words(capacity)}): the driver was already spilling into the host’s memory, as on Windows.`,
    );
  }
  if (reasons.length === 0 && missing > 0) {
    reasons.push(
      `A real shortage: ${words(missing)} were missing after all that was free${unallocated !== null ? `, and only ${words(unallocated)} were held unused` : ''}. Less has to be alive at once.`,
    );
  }
  return reasons;
}
