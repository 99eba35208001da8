import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';

export type Asked<Value> = { state: 'waiting'; before: Value | undefined } | { state: 'ready'; value: Value } | { state: 'failed'; message: string };

/** Asks anew whenever `of` changes, and forgets about the question before; until there is an answer the last one stays. */
export function useAsked<Value>(of: string, ask: (signal: AbortSignal) => Promise<Value>): Asked<Value> {
  const asked = useSignal<Asked<Value>>({ state: 'waiting', before: undefined });
  useEffect(() => {
    const controller = new AbortController();
    const last = asked.peek();
    asked.value = { state: 'waiting', before: last.state === 'ready' ? last.value : last.state === 'waiting' ? last.before : undefined };
    ask(controller.signal).then(
      (value) => (asked.value = { state: 'ready', value }),
      (error: unknown) => {
        if (!controller.signal.aborted) asked.value = { state: 'failed', message: error instanceof Error ? error.message : String(error) };
      },
    );
    return () => controller.abort();
  }, [of]);
  return asked.value;
}

export function present<Value>(asked: Asked<Value>): Value | undefined {
  return asked.state === 'ready' ? asked.value : asked.state === 'waiting' ? asked.before : undefined;
}
