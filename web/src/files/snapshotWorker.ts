import { readSnapshot, SnapshotError, type SnapshotSummary } from './snapshot';

// A snapshot has up to a gigabyte: it is read where the page does not wait for it.

export type SnapshotAnswer = { ok: true; summary: SnapshotSummary } | { ok: false; message: string };

async function unpacked(file: Blob): Promise<Uint8Array> {
  const head = new Uint8Array(await file.slice(0, 2).arrayBuffer());
  if (head[0] !== 0x1f || head[1] !== 0x8b) return new Uint8Array(await file.arrayBuffer());
  const reader = file.stream().pipeThrough(new DecompressionStream('gzip')).getReader();
  const parts: Uint8Array[] = [];
  let size = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    size += value.length;
    if (size > MOST_BYTES) throw new SnapshotError('This unpacks to more than 1 GiB.');
    parts.push(value);
  }
  const all = new Uint8Array(size);
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

const MOST_BYTES = 2 ** 30;

self.addEventListener('message', async (event: MessageEvent<Blob>) => {
  let answer: SnapshotAnswer;
  try {
    if (event.data.size > MOST_BYTES) throw new SnapshotError('This file is larger than 1 GiB.');
    answer = { ok: true, summary: readSnapshot(await unpacked(event.data)) };
  } catch (error) {
    answer = {
      ok: false,
      message:
        error instanceof SnapshotError ? error.message : `This could not be read (${error instanceof Error ? error.message : 'unknown'}).`,
    };
  }
  self.postMessage(answer);
});
