// What the views behind a bar say.

export const chart = {
  save: 'Save as',
  numbers: 'The numbers as a table',
  copied: 'Copied.',
  refused: 'The browser did not allow it.',
  cancel: 'Cancel',
  apply: 'Apply',
};

export const ledger = {
  peak: 'Ledger at the peak',
  at: (event: string) => `Ledger after event ${event}`,
  exact: 'exact bytes',
  find: 'Find in the ledger',
  findHint: 'Find a module or an op',
  order: 'Order',
  bySize: 'largest first',
  byName: 'by name',
  what: 'What',
  total: 'Total, what nvidia-smi shows',
  totalAllocated: 'Total allocated',
  others: (count: number) => `${count} others`,
  blocks: (bytes: string) => `, in blocks of ${bytes}`,
};

export const timeline = {
  waits: 'Playing the step once more, with its shapes…',
  failed: (why: string) => `There is no timeline: ${why}`,
  name: 'Timeline: an instant of the step',
  show: 'Show',
  lane: 'Stage of the pipeline',
  whole: 'the whole run',
  loading: 'loading',
  step: (step: string) => `step ${step}`,
  toPeak: 'Go to the peak',
  closer: 'Closer',
  zoomIn: 'Zoom in',
  wholeRun: 'Whole run',
  peak: (gib: string) => `peak ${gib}`,
  legend: 'Categories in the timeline',
  reserved: 'Reserved',
  how: (events: string) =>
    `From left to right in the order of ${events} allocations and frees, not of time; each column is the fullest instant of its events. Arrow keys go from instant to instant; drag, + and − zoom, as does the wheel with Shift or Ctrl.`,
  event: (event: string) => `event ${event}`,
  allocated: (gib: string) => `${gib} GiB allocated`,
  reservedThen: (gib: string) => `${gib} reserved`,
  ledger: 'Ledger at this instant',
  looking: (event: string) => `Looking at event ${event}…`,
  allocates: (what: string, tensor: string, life: string) => `Allocates ${what}: ${tensor}${life}.`,
  frees: (what: string, tensor: string) => `Frees ${what}: ${tensor}.`,
  aTensor: 'a tensor',
  of: (op: string, module: string) => `${op} of ${module}`,
  stays: '; stays to the end',
  lives: (until: string) => `; lives until event ${until}`,
};

export const curves = {
  against: (method: string) => `${method}: memory against`,
  name: (axis: string) => `Memory on each GPU against ${axis}, GiB`,
  table: (axis: string) => `Memory against ${axis}`,
  columns: ['Needed, GiB', 'Capacity, GiB', 'Fits'],
  yes: 'yes',
  no: 'no',
  done: 'Estimates done',
  progress: (done: number, of: number) => `${done} of about ${of} estimates`,
  none: 'There is no estimate along this axis.',
  unknown: 'How much memory this GPU has is not known.',
  all: (most: string) => `Everything up to ${most} fits.`,
  nothing: 'Nothing on this axis fits.',
  fewest: (gpus: string) => `The fewest GPUs that fit of those tried: ${gpus}`,
  largest: (axis: string, value: string) => `The largest ${axis} that fits: ${value}`,
  from: (value: string) => `fits from ${value}`,
  upTo: (value: string) => `fits up to ${value}`,
  capacity: (gib: string) => `capacity ${gib}`,
};

export const compare = {
  pin: 'Pin this answer',
  pinAgain: 'Pin this one instead',
  how: 'Then change anything, or open another bar, and see the difference here.',
  same: 'Nothing was changed since this answer was pinned.',
  changes: 'What changed',
  table: 'The two answers, row by row',
  pinned: (name: string) => `pinned: ${name}`,
  now: (name: string) => `now: ${name}`,
  difference: 'difference',
  total: 'Total',
  model: (before: string, after: string) => `Model: ${before} → ${after}`,
  method: (before: string, after: string) => `Method: ${before} → ${after}`,
};

export const ranks = {
  alone: 'One GPU does everything: there are no other ranks.',
  same: (ranks: string, played: number) =>
    `All ${ranks} ranks hold and do the same, but for what does not divide evenly: rank ${played} was played, which holds at least as much as any other.`,
  noEstimate: (stage: number) => `stage ${stage} has no estimate`,
  waits: (stages: number) => `Playing ${stages} stages…`,
  title: 'One stage of the pipeline a line, GiB',
  worst: (stage: number, gib: string) =>
    `Stage ${stage} needs most and decides: ${gib} GiB. A stage holds activations of as many microbatches as are under way in it; the first has the embedding, the last the logits.`,
  stage: (stage: number) => `Stage ${stage}`,
  table: 'Memory of each stage, GiB',
  columns: ['Stage', 'Allocated', 'Reserved', 'nvidia-smi'],
};

export const advice = {
  waitsForModel: 'Waiting for the model…',
  what: (method: string) => `What to change about ${method}`,
  trying: 'Trying changes…',
  noneFaster: 'Nothing that is tried makes it faster and still fit.',
  noneFits: 'Nothing that is tried makes it fit.',
  table: 'What to change',
  change: 'Change',
  step: 'a step',
  other: 'trains something else',
  applyThis: (label: string) => `Apply: ${label}`,
  which: 'Which method',
  search: (gpus: string) => `Search every way to use ${gpus} GPUs`,
  searchAgain: 'Search again',
  stale: 'Something was changed since this search.',
  enumerating: 'Enumerating…',
  screened: 'Strategies estimated',
  progress: (done: number, of: number) => `${done} of ${of} strategies`,
  nothing: (of: string) => `None of ${of} strategies fits.`,
  strategies: 'Strategies that fit, fastest first',
  fits: 'What fits, fastest first',
  speed: 'tokens/s',
  front: 'on the front',
  more: (count: number) => `${count} more`,
  leftOut: 'What was left out, and why',
  example: (count: string, example: string) => `${count}, such as ${example}`,
  scatter: 'Tokens a second against memory on each GPU; the table below has the numbers',
  memory: 'GiB on each GPU',
};

export const share = {
  markdown: 'Copy as Markdown',
  spec: 'Copy the JSON spec',
  image: 'Copy as image',
};
