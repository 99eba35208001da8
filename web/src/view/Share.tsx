import { useSignal } from '@preact/signals';
import { link } from '../store';
import { Lazy } from './Lazy';

/** The link to this very answer, and the ways to put it into another page. */
export function Share() {
  const embedding = useSignal(false);
  const more = useSignal(false);
  return (
    <section class="share" aria-label="Share">
      <Copy name="Copy link" text={() => new URL(link.value, location.href.replace(/#.*$/, '')).href} />
      <button type="button" aria-expanded={embedding.value} onClick={() => (embedding.value = !embedding.value)}>
        Embed
      </button>
      <button type="button" aria-expanded={more.value} onClick={() => (more.value = !more.value)}>
        Export
      </button>
      {more.value && <Lazy load={() => import('./ShareMore')} with={{}} height={36} />}
      {embedding.value && <Snippets />}
    </section>
  );
}

function Snippets() {
  const frame = `<iframe src="${attribute(new URL(`embed.html${link.value}`, location.href).href)}" width="100%" height="420" title="LLMem estimate"></iframe>`;
  const element = `<script src="${new URL('llmem-estimate.js', location.href).href}"></script>\n<llmem-estimate link="${attribute(link.value)}"></llmem-estimate>`;
  return (
    <div class="snippets">
      <Snippet label="A frame, no script needed" text={frame} />
      <Snippet label="An element that is as tall as it needs to be" text={element} />
    </div>
  );
}

function Snippet({ label, text }: { label: string; text: string }) {
  return (
    <label>
      {label} <Copy name="Copy" text={() => text} />
      <textarea readOnly rows={3} value={text} spellcheck={false} onFocus={(event) => event.currentTarget.select()} />
    </label>
  );
}

function Copy({ name, text }: { name: string; text: () => string }) {
  const said = useSignal('');
  const copy = async () => {
    said.value = await navigator.clipboard.writeText(text()).then(
      () => 'Copied.',
      () => 'The browser did not allow it; copy the address bar instead.',
    );
  };
  return (
    <>
      <button type="button" onClick={() => void copy()}>
        {name}
      </button>
      <span class="quiet" role="status">
        {said.value}
      </span>
    </>
  );
}

function attribute(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('"', '&quot;');
}
