import { useSignal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useEffect } from 'preact/hooks';
import { afterPaint } from './afterPaint';

/** What can wait until all that stands above it is painted, the first time. */
export function Later({ ready, children }: { ready: boolean; children: ComponentChildren }) {
  const due = useSignal(false);
  useEffect(() => {
    if (ready && !due.value) afterPaint(() => (due.value = true));
  }, [ready]);
  return <>{due.value && children}</>;
}
