import type { Status } from '../files/draft';
import type { Where } from '../files/oom';

// What the page says around files: of training tools, of what a run leaves behind, and for tools. What became of each line of a file
// is said where it is read (../files).

export const fromFile = {
  title: 'From a file',
  close: 'Close',
  about:
    'A training configuration (axolotl, LLaMA-Factory, TRL, DeepSpeed, accelerate, torchtune, torchtitan, a Megatron-LM script, TrainingArguments in Python or on a command line), an out-of-memory message, or a PyTorch memory snapshot. Drop it anywhere on this page. Nothing of it leaves your browser, and nothing in it is run.',
  choose: 'Choose files',
  paste: 'or paste its text',
  example: 'base_model: meta-llama/Llama-3.1-8B\nsequence_len: 4096\n…',
  reading: 'Reading…',
  oom: 'An out-of-memory message.',
  snapshot: 'A memory snapshot.',
  summary: (understood: number, assumed: number, ignored: number, open: number) =>
    `${understood} settings understood, ${assumed} assumed, ${ignored} ignored, ${open} left open.`,
  tooLarge: (bytes: number) => `${bytes.toLocaleString('en')} bytes: a training configuration has far fewer.`,
  noMemory: 'This file could not be read: there was not enough memory for it, perhaps.',
};

export const statuses: Record<Status, { name: string; meaning: string }> = {
  asked: { name: 'open', meaning: 'the file does not say it; what is chosen here stays' },
  assumed: { name: 'assumed', meaning: 'not in the file, or not as such' },
  understood: { name: 'understood', meaning: 'taken over' },
  ignored: { name: 'ignored', meaning: 'does not change what the step holds, or is not played' },
};

export const imports = {
  filled: 'The form is filled.',
  undo: 'Undo: as it was before',
  notHere: 'Understood, but not to be set on this page',
  unread: (name: string) => `${name || 'This text'} could not be read`,
  someUnread: 'Not everything in it reads:',
  open: 'Left open by the file:',
  atLine: (line: number) => `Line ${line}:`,
  which: 'Which lines are shown',
  all: (count: number) => `all ${count}`,
  byLine: 'Line by line',
  columns: { line: 'Line', setting: 'Setting', became: 'What became of it' },
};

export const oom = {
  bare: 'Out of memory, without numbers',
  bareWhy:
    'This form of the message does not say how much there was. The line that begins with “CUDA out of memory. Tried to allocate …” does: paste the log that has it. “CUBLAS_STATUS_ALLOC_FAILED” and NCCL’s “out of memory” mean that PyTorch held everything when a library asked the driver for its own part.',
  title: (device: string, tried: string, where: Where | null) =>
    `${device} had no room for ${tried} GiB${where ? `, ${places[where]}` : ''}`,
  shares: 'Where the memory was, as the message says',
  part: 'Part',
  gib: 'GiB',
  gpu: 'The GPU',
  none: 'There is no estimate to lay beside it: fill the form with what was run.',
  beside: (method: string) => `Beside the estimate of ${method}`,
  message: 'Message, GiB',
  estimate: 'Estimate, GiB',
  rows: {
    allocated: ['Allocated by PyTorch', 'the message: what was alive, and what was asked for; the estimate: at its peak'],
    reserved: ['Reserved by PyTorch', 'the message: at the failure; the estimate: at most'],
    outside: ['Outside PyTorch', 'context and libraries of this process'],
    gpu: ['The GPU', 'as CUDA reports it'],
  } as const,
  more: (gib: string) =>
    `The run wanted ${gib} GiB more at that moment than the estimate has at its peak: what was run is not what the form says, or it holds something that is not played.`,
  fits: 'The estimate fits, and its peak is above what the run had reached: compare the form with what was run, and look at the memory that others held.',
  doesNot: (what: string | undefined) => `The estimate does not fit either${what ? `: it fails allocating ${what}` : ''}.`,
};

const places: Record<Where, string> = {
  load: 'while the model was loaded',
  forward: 'in forward',
  backward: 'in backward',
  optimizer: 'in the optimizer’s step',
};

export const snapshot = {
  title: (name: string, device: number) => `${name}: GPU ${device}`,
  replayed: (events: string, allocated: string, reserved: string) =>
    `Replayed from ${events} events: at its peak ${allocated} GiB were allocated, and at most ${reserved} GiB reserved.`,
  bare: (allocated: string, reserved: string) =>
    `No history was recorded (torch.cuda.memory._record_memory_history()): this is what was allocated when the snapshot was taken, ${allocated} of ${reserved} GiB reserved.`,
  oom: (tried: string) => `It ran out of memory asking for ${tried} GiB.`,
  before: (gib: string) => `${gib} GiB were there before recording began; they are counted as weights.`,
  how: 'A snapshot does not say what a tensor is for. That is read off the Python lines that made it and let it go: weights, optimizer states and gradients are sure; attention, MLP and norms are as sure as those lines are telling.',
  caption: (method: string | undefined) => `At the peak${method ? `, beside the estimate of ${method}` : ''}`,
  columns: { part: 'Part', snapshot: 'Snapshot, GiB', estimate: 'Estimate, GiB', difference: 'Difference' },
  allocated: 'Allocated',
  overhead: 'Reserved beyond it',
};

export const toFile = {
  for: (method: string) => `${method} as a configuration for`,
  command: 'Launch command',
  copyCommand: 'Copy the command',
  download: 'Download',
  refused: 'The browser did not allow it.',
  lost: (count: number, files: number, tool: string) =>
    `Not in ${files === 1 ? 'it' : 'them'}: ${count} ${count === 1 ? 'setting' : 'settings'} that ${tool} does not say, or says elsewhere`,
};
