import { useSignal } from '@preact/signals';
import type { ComponentType } from 'preact';
import { useEffect } from 'preact/hooks';
import { lazy as text } from '../text/page';

interface LazyProps<Props> {
  load: () => Promise<{ default: ComponentType<Props> }>;
  with: Props;
  /** Height to keep free until it is there, in px. */
  height?: number;
}

/** A part of the page that is fetched when it is first wanted. */
export function Lazy<Props extends object>({ load, with: props, height }: LazyProps<Props>) {
  const part = useSignal<{ View: ComponentType<Props> } | 'failed' | undefined>(undefined);
  const fetchIt = () => {
    part.value = undefined;
    load().then(
      (module) => (part.value = { View: module.default }),
      () => (part.value = 'failed'),
    );
  };
  useEffect(fetchIt, []);
  if (part.value === 'failed') {
    return (
      <p class="quiet">
        {text.notLoaded}{' '}
        <button type="button" class="plain" onClick={fetchIt}>
          {text.again}
        </button>
      </p>
    );
  }
  if (!part.value) return <p class="quiet" style={height ? { minHeight: height } : undefined} aria-busy="true" />;
  const { View } = part.value;
  return <View {...props} />;
}
