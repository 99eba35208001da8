import { signal } from '@preact/signals';

// What was dropped on the page, or pasted past every field, for view/FromFile.tsx, which comes when it is wanted.

export interface Arrived {
  files: readonly File[];
  text: string; // pasted
}

export const fromFile = signal(false); // whether it is open
export const arrived = signal<Arrived>({ files: [], text: '' });

export function openFromFile(): void {
  fromFile.value = true;
}

/** A file dropped anywhere on the page is read, not opened in the page's place. */
export function acceptDrops(): void {
  addEventListener('dragover', (event) => {
    if (event.dataTransfer?.types.includes('Files')) event.preventDefault();
  });
  addEventListener('drop', (event) => {
    const files = [...(event.dataTransfer?.files ?? [])];
    if (files.length === 0) return;
    event.preventDefault();
    arrived.value = { files, text: '' };
    fromFile.value = true;
  });
  addEventListener('paste', (event) => {
    if (event.target instanceof HTMLElement && event.target.closest('input, textarea, [contenteditable]')) return;
    const files = [...(event.clipboardData?.files ?? [])];
    const text = event.clipboardData?.getData('text/plain') ?? '';
    if (files.length === 0 && !text.includes('\n') && text.length < 60) return; // a word is not a file
    arrived.value = { files, text };
    fromFile.value = true;
  });
}
