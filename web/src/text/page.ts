import type { Method } from '../choice/methods';
import type { Status } from '../core/answer';

// What the first view says, but for the settings (names.ts) and the core's own sentences.

export const masthead = {
  name: 'LLMem',
  claim: 'GPU memory for training a language model, played allocation by allocation',
  fromFile: 'From a file',
  resume: 'Go on where you left off',
  undo: 'Undo',
  redo: 'Redo',
};

export const inputs = {
  name: 'What to estimate',
  model: 'Model',
  recipe: 'Recipe',
  gpus: 'GPUs',
  all: 'All settings',
  models: 'all models',
  reset: 'Put all of these back to their defaults',
  parameters: (count: string) => `${count} parameters`,
  layers: (count: number) => `${count} layers`,
  about: (control: string) => `About ${control}`,
  modelHelp: 'A model that comes with this page. For any other, paste its config.json below.',
  unread: (typed: string, expected: string, used: string) => `“${typed}” is not ${expected}. The answer still uses ${used || 'none'}.`,
  fromLink: (value: string) => `${value} (from the link)`,
  notYet: (name: string) => `${name} (not yet)`,
  described: 'another one, described under Cluster',
};

export const verdict = {
  waits: 'Playing the step…',
  none: 'There is no estimate for this: see what is wrong below.',
  broke: 'The estimate broke off. This is a defect of the calculator, not of your settings.',
  again: 'Try again',
  stages: (others: number) => (others === 1 ? 'The other stage needs no more.' : `The other ${others} stages need no more.`),
  refused: (name: string, why: string) => `${name}, which was asked for, is not estimated here: ${why}.`,
  /** How many of the methods that were estimated fit, and why the one is named. */
  others: (fitting: number, of: number, timed: boolean) => {
    const why = fitting === 0 ? '; the one that comes closest is named' : fitting > 1 ? (timed ? '; the fastest is named' : '; the one with the most memory to spare is named') : '';
    return `${fitting} of ${of} methods ${fitting === 1 ? 'fits' : 'fit'}${why}.`;
  },
};

export const outcomes: Record<Status, string> = {
  fits: 'fits',
  fits_barely: 'fits, barely',
  fits_after_retry: 'fits after a retry',
  may_not_fit: 'may not fit',
  does_not_fit: 'does not fit',
  unknown: '',
};

export const bars = {
  name: 'Memory on each GPU, by method',
  title: 'Memory on each GPU at its fullest, GiB',
  methods: 'Methods',
  categories: 'Categories',
  more: (count: number) => `${count} more ${count === 1 ? 'method' : 'methods'} without an estimate, and why`,
  broke: (message: string) => `No estimate: the calculator broke off (${message}).`,
  notYet: 'Not estimated yet.',
  step: (time: string, tokens: string) => `${time} a step · ${tokens} tokens/s`,
  stepRange: (low: string, high: string) => `${low} to ${high} a step`,
  spoken: (method: string, gib: string, outcome: string, parts: string) => `${method}: ${gib} GiB, ${outcome}. ${parts}. Show details.`,
  capacity: (gpu: string, gib: string) => `${gpu} has ${gib} GiB`,
  limit: (limit: string, all: string) => `limit of ${limit} GiB for PyTorch, ${all} GiB with what lies outside it`,
  capacitySpoken: (gib: string) => `The card has ${gib} GiB.`,
};

export const methodNames: Record<Method, string> = {
  none: 'One GPU',
  ddp: 'DDP',
  zero_redundancy: 'ZeroRedundancyOptimizer',
  zero1: 'ZeRO-1',
  zero2: 'ZeRO-2',
  zero3: 'ZeRO-3',
  fsdp1: 'FSDP1',
  fsdp2: 'FSDP2',
  hsdp: 'HSDP',
  tensor: 'Tensor parallel',
  tensor_fsdp2: 'Tensor × FSDP2',
  pipeline: 'Pipeline',
  custom: 'Own mix',
};

export const whyNot = {
  custom: 'Choose “own mix” under Parallelism to set every degree yourself.',
  split: (gpus: number, parts: number) => `${gpus} GPUs cannot be split into ${parts} parts for tensor, pipeline and context.`,
  one: 'Needs more than one GPU.',
  copies: 'Needs more than one node, or a number of copies.',
  copiesSplit: (gpus: number, copies: number) => `${gpus} GPUs cannot be split into ${copies} copies.`,
  multiple: (degree: number) => `Needs a multiple of ${degree} GPUs, and more than one.`,
};

/** What the bar of a method assumes. */
export const assumed = {
  idle: 'One works alone, the others idle',
  alone: 'Everything on one card',
  ddp: (mib: number) => `A full copy on each GPU, gradients averaged in ${mib} MiB buckets`,
  zero_redundancy: (gpus: number) => `DDP, each GPU keeping the optimizer states of 1/${gpus} of the parameters`,
  zero1: (gpus: number) => `DeepSpeed: optimizer states cut in ${gpus}`,
  zero2: (gpus: number) => `DeepSpeed: gradients and optimizer states cut in ${gpus}`,
  zero3: (gpus: number) => `DeepSpeed: weights, gradients and optimizer states cut in ${gpus}`,
  fsdp1: (gpus: number) => `Weights, gradients and optimizer states cut in ${gpus} flat pieces`,
  fsdp2: (gpus: number) => `Weights, gradients and optimizer states cut in ${gpus}, each layer gathered while it runs`,
  hsdp: (parts: number, copies: number) => `FSDP2 cut in ${parts}, ${copies} copies of it`,
  tensor: (gpus: number) => `Each matrix cut in ${gpus}`,
  tensor_fsdp2: (degree: number, parts: number) => `Each matrix cut in ${degree}, and what is left in ${parts} by FSDP2`,
  pipeline: (stages: number, microbatches: number) => `Layers cut in ${stages} stages, ${microbatches} microbatches under way`,
  custom: (kind: string, ranks: number, tensor: number, pipeline: number) => `${kind} × ${ranks}, tensor ${tensor}, pipeline ${pipeline}`,
  heldAndComputed: (held: string) => `held and computed in ${held}`,
  autocast: (held: string, computed: string) => `held in ${held}, computed under ${computed} autocast`,
  reduced: (how: string) => `, gradients reduced ${how}`,
  asTheyAre: 'as they are',
  inDtype: (dtype: string) => `in ${dtype}`,
  gathered: (held: string, computed: string) => `held in ${held}, gathered and computed in ${computed} (its own mixed precision in place of autocast)`,
  quantised: (bits: string, computed: string | undefined) => `the base held in ${bits} bits, adapters trained${computed ? `, products in ${computed}` : ''}`,
};

export const details = {
  title: (method: string) => `${method}, in detail`,
  refused: (method: string) => `${method} has no estimate here`,
  showBest: 'Show the best method',
  views: 'Views',
  allocated: 'Allocated',
  allocatedMeaning: 'in tensors, at the peak',
  reserved: 'Reserved',
  reservedMeaning: 'held by PyTorch’s allocator, at most',
  reservedLate: (most: string) => `held by PyTorch’s allocator, at most; up to ${most} where memory that other streams have used comes back late`,
  shown: 'nvidia-smi shows',
  shownMeaning: (low: string, high: string) => `with the context and libraries: ${low} to ${high}`,
  host: 'Host memory',
  hostMeaning: (points: string) => `of a node: ${points}`,
  hostPoint: { loading: 'loading the model', training: 'offloaded', saving: 'saving a full state dict' },
  step: 'A step takes',
  stepMeaning: (low: string, high: string, percent: number) => `an estimate between ${low} and ${high}; ${percent} % of the GPU’s peak`,
  peak: 'The peak comes in ',
  at: ', at ',
  sure: (equal: number, all: number) =>
    equal === all
      ? `How sure: ${all} recorded PyTorch ${all === 1 ? 'run' : 'runs'} of this kind, ${all === 1 ? 'equal' : 'all equal'} to the byte in every peak.`
      : `How sure: of ${all} recorded PyTorch runs of this kind ${equal} are equal to the byte in every peak.`,
  unsure: 'How sure: no run of this kind was recorded, so nothing was held against PyTorch.',
  warnings: 'Warnings',
  assumptions: 'Assumptions',
};

export const views = {
  ledger: 'Ledger at the peak',
  timeline: 'Timeline',
  curves: 'Curves',
  advice: 'Which method',
  compare: 'Compare',
  ranks: 'Ranks',
} as const;

export const points = {
  title: 'Along the step',
  region: 'Memory at each point of the step',
  after: 'After, GiB',
  allocated: 'Allocated',
  peak_allocated: 'Peak allocated',
  reserved: 'Reserved',
  peak_reserved: 'Peak reserved',
  how: 'The bar is what stays allocated, its frame what is reserved, the tick the peak since the step began (torch.cuda.max_memory_allocated()).',
};

export const problems = {
  name: 'Problems',
  go: (at: string) => `Go to the control for ${at}`,
};

export const complaints = {
  name: 'About this link',
  some: 'Not everything in this link could be used:',
  dismiss: 'Dismiss',
};

export const lazy = {
  notLoaded: 'This part of the page could not be loaded.',
  again: 'Try again',
};

export const share = {
  name: 'Share',
  link: 'Copy link',
  embed: 'Embed',
  export: 'Export',
  launch: 'Launch command',
  copy: 'Copy',
  copied: 'Copied.',
  refused: 'The browser did not allow it; copy the address bar instead.',
  frame: 'A frame, no script needed',
  element: 'An element that is as tall as it needs to be',
  embedding: 'How it goes into MkDocs, Docusaurus, Sphinx, Jupyter, a README, and the engine into your own code',
};

export const embed = {
  title: 'GPU memory for training',
  open: 'Open in LLMem',
  picks: 'What can be changed',
};

export const picker = {
  list: 'Models',
  notYet: (family: string) => `${family}: not yet`,
  failed: 'The list of models could not be loaded. Type again to retry.',
  loading: 'Loading the list of models…',
  none: 'No model of this name, family or size. Paste its config.json below.',
  more: (count: number) => `${count} more: type to narrow them down.`,
  found: (count: number) => `${count} found.`,
};

export const paste = {
  title: 'Paste a config.json',
  label: 'Its text, as on the model’s page or from ',
  notYet: (shown: string) => `This text is not a config.json yet; the answer still shows ${shown}.`,
  place: (line: number, column: number) => `line ${line}, column ${column}`,
  pasted: (type: string) => `pasted ${type}`,
  model: 'pasted model',
};
