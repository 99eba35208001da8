import type { Category } from '../core/answer';
import { PickleError, readPickle, type Pickled } from './pickle';

// A PyTorch memory snapshot (torch.cuda.memory._snapshot(), pickled) → what was alive at its peak, by the page's categories.
//
// A snapshot has the blocks that are alive at its end and, where recording was on, every allocation and free with the Python frames
// that made it. It does not say what a tensor is for: that is read off the frames by the rules below, and told as such.

export interface SnapshotPart {
  category: Category;
  bytes: number;
  largest: { bytes: number; where: string }[];
}

export interface SnapshotSummary {
  device: number;
  events: number; // 0: recording was off; then it is the end of the snapshot, not its peak
  allocated: number; // at the peak, or at the end; blocks as the allocator rounds them
  reserved: number; // at that moment
  peakReserved: number;
  end: { allocated: number; reserved: number };
  parts: SnapshotPart[]; // sum to `allocated`
  outOfMemory: { tried: number; free: number } | null; // the last one recorded
  before: number; // bytes that were alive before recording began: their frames are not known
}

export class SnapshotError extends Error {}

const MOST_BYTES = 2 ** 30;
const MOST_EVENTS = 20_000_000;

export function readSnapshot(data: Uint8Array): SnapshotSummary {
  if (data.length > MOST_BYTES) throw new SnapshotError(`${data.length.toLocaleString('en')} bytes: more than 1 GiB is not read here.`);
  let root: Pickled;
  try {
    root = readPickle(data);
  } catch (error) {
    if (error instanceof PickleError) throw new SnapshotError(error.message);
    throw error;
  }
  if (!(root instanceof Map) || !Array.isArray(root.get('segments'))) {
    throw new SnapshotError(
      'This pickle is no memory snapshot: it has no “segments”. Take one with torch.cuda.memory._dump_snapshot("snapshot.pickle").',
    );
  }
  const segments = maps(root.get('segments'));
  const traces = Array.isArray(root.get('device_traces')) ? (root.get('device_traces') as Pickled[]) : [];
  const device = busiest(segments, traces);
  return summarise(
    device,
    segments.filter((segment) => number(segment, 'device') === device),
    maps(traces[device] ?? []),
  );
}

type Row = Map<Pickled, Pickled>;

function maps(list: Pickled | undefined): Row[] {
  if (!Array.isArray(list)) return [];
  if (list.length > MOST_EVENTS) throw new SnapshotError(`More than ${MOST_EVENTS.toLocaleString('en')} entries are not read here.`);
  return list.filter((one): one is Row => one instanceof Map);
}

function number(row: Row, key: string): number {
  const value = row.get(key);
  return typeof value === 'number' && Number.isFinite(value) && value >= 0 ? value : 0;
}

function text(row: Row, key: string): string {
  const value = row.get(key);
  return typeof value === 'string' ? value : '';
}

/** The device with the most memory; a snapshot of a rank is of one. */
function busiest(segments: readonly Row[], traces: readonly Pickled[]): number {
  const held = new Map<number, number>();
  for (const segment of segments)
    held.set(number(segment, 'device'), (held.get(number(segment, 'device')) ?? 0) + number(segment, 'total_size'));
  traces.forEach((trace, device) => held.set(device, (held.get(device) ?? 0) + (Array.isArray(trace) ? trace.length : 0)));
  return [...held].sort((a, b) => b[1] - a[1])[0]?.[0] ?? 0;
}

interface Block {
  bytes: number;
  frames: Pickled | undefined;
  born: number; // index of the event; -1: before the recording
  freed: number; // Infinity: alive at the end
  freedBy: Pickled | undefined;
}

/** c10/cuda/CUDACachingAllocator.h: every block is a multiple of 512 bytes. */
const rounded = (bytes: number) => Math.max(512, Math.ceil(bytes / 512) * 512);

function summarise(device: number, segments: readonly Row[], events: readonly Row[]): SnapshotSummary {
  const blocks: Block[] = [];
  const alive = new Map<number, Block>(); // by address
  let now = 0;
  let outOfMemory: SnapshotSummary['outOfMemory'] = null;

  // What is alive at the end was made in the recording, or before it.
  const atEnd = new Map<number, { bytes: number; frames: Pickled | undefined }>();
  let endReserved = 0;
  for (const segment of segments) {
    endReserved += number(segment, 'total_size');
    let address = number(segment, 'address');
    for (const block of maps(segment.get('blocks'))) {
      const at = number(block, 'address') || address;
      if (text(block, 'state').startsWith('active')) atEnd.set(at, { bytes: number(block, 'size'), frames: framesOf(block) });
      address = at + number(block, 'size');
    }
  }
  const endAllocated = [...atEnd.values()].reduce((sum, one) => sum + one.bytes, 0);

  // The free of what was never seen to be made: alive before.
  const seen = new Set<number>();
  const earlier: { address: number; bytes: number; index: number; by: Pickled | undefined }[] = [];
  let segmentsAtStart = endReserved;
  events.forEach((event, index) => {
    const action = text(event, 'action');
    const address = number(event, 'addr');
    if (action === 'alloc') seen.add(address);
    else if (action === 'free_completed' && !seen.delete(address))
      earlier.push({ address, bytes: rounded(number(event, 'size')), index, by: event.get('frames') });
    else if (action === 'segment_alloc' || action === 'segment_map') segmentsAtStart -= number(event, 'size');
    else if (action === 'segment_free' || action === 'segment_unmap') segmentsAtStart += number(event, 'size');
  });
  for (const one of earlier) {
    const block: Block = { bytes: one.bytes, frames: undefined, born: -1, freed: Infinity, freedBy: undefined };
    blocks.push(block);
    alive.set(one.address, block);
  }
  for (const [address, { bytes, frames }] of atEnd) {
    if (seen.has(address) || alive.has(address)) continue;
    const block: Block = { bytes, frames, born: -1, freed: Infinity, freedBy: undefined };
    blocks.push(block);
    alive.set(address, block);
  }
  now = [...alive.values()].reduce((sum, block) => sum + block.bytes, 0);

  let reserved = Math.max(0, segmentsAtStart);
  let peak = { index: -1, allocated: now, reserved };
  let peakReserved = reserved;
  let lastRequest: Pickled | undefined;
  events.forEach((event, index) => {
    const action = text(event, 'action');
    const address = number(event, 'addr');
    if (action === 'alloc') {
      const block: Block = {
        bytes: rounded(number(event, 'size')),
        frames: framesOf(event),
        born: index,
        freed: Infinity,
        freedBy: undefined,
      };
      blocks.push(block);
      alive.set(address, block);
      now += block.bytes;
      if (now > peak.allocated) peak = { index, allocated: now, reserved };
    } else if (action === 'free_requested') lastRequest = framesOf(event);
    else if (action === 'free_completed') {
      const block = alive.get(address);
      if (!block) return;
      alive.delete(address);
      block.freed = index;
      block.freedBy = framesOf(event) ?? lastRequest;
      now -= block.bytes;
    } else if (action === 'segment_alloc' || action === 'segment_map') {
      reserved += number(event, 'size');
      peakReserved = Math.max(peakReserved, reserved);
    } else if (action === 'segment_free' || action === 'segment_unmap') reserved -= number(event, 'size');
    else if (action === 'oom') outOfMemory = { tried: number(event, 'size'), free: number(event, 'device_free') || address };
  });
  const live = events.length === 0 ? [...alive.values()] : blocks.filter((block) => block.born <= peak.index && block.freed > peak.index);
  const sum = live.reduce((total, block) => total + block.bytes, 0);
  return {
    device,
    events: events.length,
    allocated: sum,
    reserved: Math.max(peak.reserved, sum),
    peakReserved: Math.max(peakReserved, sum),
    end: { allocated: endAllocated, reserved: endReserved },
    parts: partsOf(live, layersOf(blocks)),
    outOfMemory,
    before: live.filter((block) => block.born < 0 && block.frames === undefined).reduce((total, block) => total + block.bytes, 0),
  };
}

function framesOf(row: Row): Pickled | undefined {
  const frames = row.get('frames') ?? maps(row.get('history'))[0]?.get('frames');
  return Array.isArray(frames) && frames.length > 0 ? frames : undefined;
}

// What a tensor is for, by where it was made and where it died.

interface Frame {
  name: string;
  file: string;
  line: number;
}

const cache = new WeakMap<Pickled[], Frame[]>();

function frames(value: Pickled | undefined): Frame[] {
  if (!Array.isArray(value)) return [];
  const known = cache.get(value);
  if (known) return known;
  const made = value
    .slice(0, 64)
    .flatMap((one) => (one instanceof Map ? [{ name: text(one, 'name'), file: text(one, 'filename'), line: number(one, 'line') }] : []));
  cache.set(value, made);
  return made;
}

const has = (list: readonly Frame[], pattern: RegExp) => list.some(({ name, file }) => pattern.test(`${file}:${name}`));

/** cuBLAS workspaces as PyTorch makes them (aten/src/ATen/cuda/CUDABlas.cpp): 4096 × 2 KiB + 8 × 16 KiB, or 32 MiB on Hopper. */
const WORKSPACES = [8_519_680, 33_554_432];

const OPTIMIZERS =
  /(torch\/optim|bitsandbytes\/optim|apex\/optimizers|transformers\/optimization|torchao\/optim|lion_pytorch|schedulefree)[^:]*:|deepspeed\/[^:]*optimizer[^:]*:/;
const COMMUNICATION = /distributed\/(fsdp|_composable|algorithms|distributed_c10d)|nn\/parallel\/distributed|deepspeed\/runtime\/zero/;
const LOADING =
  /:(_apply|to|cuda|to_empty|from_pretrained|_load\w*|load_\w+|materiali[sz]e\w*|__init__|reset_parameters|quantize\w*|get_peft_model)$/;

function categoryOf(block: Block, layers: Layers): Category {
  const made = frames(block.frames);
  const died = frames(block.freedBy);
  const stays = block.freed === Infinity;
  const before = block.born < 0;
  if (WORKSPACES.includes(block.bytes) && stays && !before && (made.length === 0 || has(made, /linear|matmul|backward/i)))
    return 'workspaces';
  if (has(made, OPTIMIZERS))
    return stays || has(made, /:(_init_group|init_state|zeros_like|get_state_buffer)$/) ? 'optimizer_states' : 'temporaries';
  if (has(died, /:zero_grad$/)) return 'gradients';
  if (has(made, COMMUNICATION)) return 'communication';
  const forward = has(made, /:(forward|_forward|wrapped_forward)$/);
  // Autograd's own thread has no Python frames; what it made and what nothing freed is a gradient.
  if (made.length === 0 && !before) return stays ? 'gradients' : 'temporaries';
  if (!forward && (before || has(made, LOADING))) return stays || before ? 'weights' : 'temporaries';
  if (!forward && has(made, /:(backward|_engine_run_backward)$/)) return 'temporaries';
  return activation(made, layers);
}

// Frames name functions, not modules. In Transformers' models the third frame of modeling_….py from outside is a line of a decoder
// layer: what is called there (attention, the MLP, a norm) shows in the names below it, seen over the whole recording.

type Layers = Map<string, Category>;
const MODEL = /modeling_(?!layers|utils|rope_utils|attn_mask_utils|flash_attention_utils|outputs)\w+\.py$/;

const INNER: readonly (readonly [Category, RegExp])[] = [
  ['attention', /attention|attn|sdpa|rotary|rope/i],
  ['mlp', /mlp|swiglu|geglu|act_fn|activations|silu|gelu|expert|moe/i],
  ['norms', /norm/i],
];

function layerLine(made: readonly Frame[]): { key: string; below: readonly Frame[] } | undefined {
  const own = made.flatMap(({ file }, index) => (MODEL.test(file) ? [index] : []));
  const index = own.at(-3);
  const frame = index === undefined ? undefined : made[index];
  return frame && index !== undefined ? { key: `${frame.file}:${frame.line}`, below: made.slice(0, index) } : undefined;
}

function layersOf(blocks: readonly Block[]): Layers {
  const layers: Layers = new Map();
  const seen = new Set<Pickled>();
  for (const { frames: value } of blocks) {
    if (value === undefined || seen.has(value)) continue;
    seen.add(value);
    const at = layerLine(frames(value));
    if (!at) continue;
    const known = layers.get(at.key);
    const found = INNER.find(([, pattern]) => at.below.some(({ name, file }) => pattern.test(`${file.split('/').at(-1)}:${name}`)))?.[0];
    if (found && (!known || known === 'norms' || found === 'attention')) layers.set(at.key, found);
    // Nothing below it but the model's own forward, or nothing at all (a residual sum).
    else if (!known && !has(at.below, /linear/i)) layers.set(at.key, 'norms');
  }
  return layers;
}

function activation(made: readonly Frame[], layers: Layers): Category {
  if (has(made, /functional\.py:(cross_entropy|log_softmax|nll_loss)$|loss_utils\.py:|CrossEntropy|cross_entropy/))
    return 'logits_and_loss';
  const own = made.filter(({ file }) => MODEL.test(file)).length;
  if (own === 1 && has(made, /linear/i)) return 'logits_and_loss'; // the head: called by the outermost forward itself
  const at = layerLine(made);
  const layer = at && layers.get(at.key);
  if (layer) return layer;
  if (own > 0) return 'other_activations';
  // Other frameworks: by the names of files and functions, from the inside.
  for (const { name, file } of made) {
    const place = `${file.split('/').at(-1)}:${name}`;
    const found = INNER.find(([, pattern]) => pattern.test(place))?.[0];
    if (found) return found;
  }
  return 'other_activations';
}

const PLUMBING = /torch\/(nn\/modules\/module|_dynamo|_prims|_refs|utils\/_contextlib|_compile|autograd)|transformers\/utils\/generic/;

function whereOf(block: Block): string {
  const made = frames(block.frames);
  const frame = made.find(({ file }) => !PLUMBING.test(file)) ?? made[0];
  if (!frame) return block.born < 0 ? 'made before the recording began' : 'made by autograd, without Python';
  return `${frame.name} (${frame.file.split('/').slice(-2).join('/')}:${frame.line})`;
}

const LARGEST = 8;

function partsOf(live: readonly Block[], layers: Layers): SnapshotPart[] {
  const parts = new Map<Category, { bytes: number; places: Map<string, number> }>();
  for (const block of live) {
    const category = categoryOf(block, layers);
    const part = parts.get(category) ?? { bytes: 0, places: new Map<string, number>() };
    part.bytes += block.bytes;
    const where = whereOf(block).slice(0, 160);
    part.places.set(where, (part.places.get(where) ?? 0) + block.bytes);
    parts.set(category, part);
  }
  return [...parts].map(([category, { bytes, places }]) => ({
    category,
    bytes,
    largest: [...places]
      .sort((a, b) => b[1] - a[1])
      .slice(0, LARGEST)
      .map(([where, size]) => ({ where, bytes: size })),
  }));
}
