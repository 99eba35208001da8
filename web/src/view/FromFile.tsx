import { useSignal, useSignalEffect } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import type { Choice } from '../choice/choice';
import { apply, type Applied } from '../files/apply';
import type { Given, Import, Reading } from '../files/index';
import { isOutOfMemory, readOutOfMemory, type OutOfMemoryMessage } from '../files/oom';
import type { SnapshotAnswer } from '../files/snapshotWorker';
import type { SnapshotSummary } from '../files/snapshot';
import { loadPresetIndex, presetIndex } from '../presets';
import { changeAll, choice, selected, undo } from '../store';
import { fromFile as text } from '../text/files';
import '../style/files.css';
import { arrived, fromFile } from './fromFile';
import { ImportList } from './ImportList';
import { OutOfMemory } from './OutOfMemory';
import { SnapshotView } from './SnapshotView';

type Read =
  | { kind: 'import'; readings: (Reading & { name: string })[]; applied: Applied | undefined; before: Choice }
  | { kind: 'oom'; message: OutOfMemoryMessage | undefined }
  | { kind: 'snapshot'; name: string; summary: SnapshotSummary }
  | { kind: 'failed'; name: string; message: string };

const TYPED_MS = 250; // from the last key to reading
const BARE_MESSAGE = 2000; // characters: longer, and without numbers, it is something else that speaks of memory
const LARGEST_TEXT = 1 << 20; // bytes of a file that is read as text

/** Drop, choose or paste: the form is filled, and what became of each line is listed. */
export default function FromFile() {
  const read = useSignal<Read[]>([]);
  const reading = useSignal(false);
  const typed = useSignal('');
  const heading = useRef<HTMLHeadingElement>(null);
  const turn = useRef(0);

  const take = async (files: readonly File[], pasted: string) => {
    const mine = ++turn.current;
    reading.value = true;
    const made = await readAll(files, pasted);
    if (mine !== turn.current) return;
    reading.value = false;
    read.value = made;
  };
  useSignalEffect(() => {
    const { files, text: pasted } = arrived.value;
    if (files.length === 0 && pasted === '') return;
    arrived.value = { files: [], text: '' };
    typed.value = pasted;
    void take(files, pasted);
  });
  useEffect(() => heading.current?.focus(), []);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);

  return (
    <section class="from-file" aria-labelledby="from-file-title" aria-busy={reading.value}>
      <div class="title">
        <h2 id="from-file-title" tabIndex={-1} ref={heading}>
          {text.title}
        </h2>
        <button type="button" class="plain" onClick={() => (fromFile.value = false)}>
          {text.close}
        </button>
      </div>
      <p class="quiet" id="from-file-about">
        {text.about}
      </p>
      <div class="from-file-ways">
        <input
          type="file"
          multiple
          id="from-file-files"
          class="spoken"
          onChange={(event) => void take([...(event.currentTarget.files ?? [])], '')}
        />
        <label class="button" for="from-file-files">
          {text.choose}
        </label>
        <label for="from-file-text">{text.paste}</label>
      </div>
      <textarea
        id="from-file-text"
        rows={4}
        spellcheck={false}
        autocomplete="off"
        aria-describedby="from-file-about"
        value={typed.value}
        placeholder={text.example}
        onInput={(event) => {
          typed.value = event.currentTarget.value;
          clearTimeout(timer.current);
          timer.current = setTimeout(() => {
            if (typed.value.trim() !== '') void take([], typed.value);
          }, TYPED_MS);
        }}
      />
      <div role="status">
        {reading.value && <p class="quiet">{text.reading}</p>}
        {!reading.value && read.value.length > 0 && <p class="spoken">{read.value.map(summaryOf).join(' ')}</p>}
      </div>
      {read.value.map((one, index) => (
        <Result key={`${turn.current}:${index}`} read={one} onUndone={() => (read.value = read.value.filter((other) => other !== one))} />
      ))}
    </section>
  );
}

function Result({ read, onUndone }: { read: Read; onUndone: () => void }) {
  if (read.kind === 'failed') {
    return (
      <p class="fault">
        {read.name && <strong>{read.name}: </strong>}
        {read.message}
      </p>
    );
  }
  if (read.kind === 'oom') return <OutOfMemory message={read.message} />;
  if (read.kind === 'snapshot') return <SnapshotView name={read.name} summary={read.summary} />;
  const back =
    read.applied && choice.value === read.applied.choice
      ? () => {
          undo();
          onUndone();
        }
      : undefined;
  return <ImportList readings={read.readings} applied={read.applied} {...(back ? { onUndo: back } : {})} />;
}

function summaryOf(read: Read): string {
  if (read.kind === 'failed') return read.message;
  if (read.kind === 'oom') return text.oom;
  if (read.kind === 'snapshot') return text.snapshot;
  const lines = read.readings.flatMap((one) => (one.ok ? one.import.lines : []));
  const count = (status: string) => lines.filter((line) => line.status === status).length;
  return text.summary(count('understood'), count('assumed'), count('ignored'), count('asked'));
}

async function readAll(files: readonly File[], pasted: string): Promise<Read[]> {
  const results: Read[] = [];
  const texts: Given[] = pasted === '' ? [] : [{ name: '', text: pasted }];
  for (const file of files) {
    if (await isSnapshot(file)) results.push(await snapshot(file));
    else if (file.size > LARGEST_TEXT)
      results.push({
        kind: 'failed',
        name: file.name,
        message: text.tooLarge(file.size),
      });
    else texts.push({ name: file.name, text: await file.text() });
  }
  const configurations: Given[] = [];
  for (const given of texts) {
    const message = readOutOfMemory(given.text);
    if (message || (isOutOfMemory(given.text) && given.text.length < BARE_MESSAGE)) results.push({ kind: 'oom', message });
    else configurations.push(given);
  }
  if (configurations.length > 0) results.push(await configuration(configurations));
  return results;
}

async function configuration(given: readonly Given[]): Promise<Read> {
  const [{ readFiles }] = await Promise.all([import('../files/index'), loadPresetIndex()]);
  const index = presetIndex.value;
  const presets = index.state === 'ready' ? index.presets.map(({ id }) => id) : [];
  const before = choice.value;
  const around =
    selected.value === 'custom'
      ? before.settings.kind
      : { hsdp: 'fsdp2', tensor_fsdp2: 'fsdp2', tensor: 'none', pipeline: 'none' }[selected.value as string];
  const chosen = before.settings.data === 'best' ? undefined : (around ?? selected.value);
  const { readings, spec } = await readFiles(given, { presets, around: chosen });
  const kinds = readings.flatMap((one): Import['kind'][] => (one.ok ? [one.import.kind] : []));
  if (kinds.length === 0) return { kind: 'import', readings, applied: undefined, before };
  const applied = apply(before, selected.value, spec, kinds);
  changeAll(applied.choice);
  return { kind: 'import', readings, applied, before };
}

async function isSnapshot(file: File): Promise<boolean> {
  const head = new Uint8Array(await file.slice(0, 2).arrayBuffer());
  const packed = head[0] === 0x1f && head[1] === 0x8b;
  return packed || (head[0] === 0x80 && (head[1] ?? 9) <= 5) || /\.(pickle|pkl)$/i.test(file.name);
}

function snapshot(file: File): Promise<Read> {
  const worker = new Worker(new URL('../files/snapshotWorker.ts', import.meta.url), { type: 'module' });
  return new Promise<Read>((resolve) => {
    const failed = (message: string) => resolve({ kind: 'failed', name: file.name, message });
    worker.addEventListener('message', ({ data }: MessageEvent<SnapshotAnswer>) => {
      if (data.ok) resolve({ kind: 'snapshot', name: file.name, summary: data.summary });
      else failed(data.message);
    });
    worker.addEventListener('error', () => failed(text.noMemory));
    worker.postMessage(file);
  }).finally(() => worker.terminate());
}
