import { useSignal } from '@preact/signals';
import { link } from '../store';
import { share as text } from '../text/page';
import { Lazy } from './Lazy';

/** The link to this very answer, and the ways to put it into another page. */
export function Share() {
  const embedding = useSignal(false);
  const more = useSignal(false);
  const launch = useSignal(false);
  return (
    <section class="share" aria-label={text.name}>
      <Copy name={text.link} copied={() => new URL(link.value, location.href.replace(/#.*$/, '')).href} />
      <button type="button" aria-expanded={embedding.value} onClick={() => (embedding.value = !embedding.value)}>
        {text.embed}
      </button>
      <button type="button" aria-expanded={more.value} onClick={() => (more.value = !more.value)}>
        {text.export}
      </button>
      <button type="button" aria-expanded={launch.value} onClick={() => (launch.value = !launch.value)}>
        {text.launch}
      </button>
      {launch.value && <Lazy load={() => import('./ToFile')} with={{}} height={240} />}
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
      <Snippet id="snippet-frame" label={text.frame} snippet={frame} />
      <Snippet id="snippet-element" label={text.element} snippet={element} />
      <a href="./embedding.html">{text.embedding}</a>
    </div>
  );
}

function Snippet({ id, label, snippet }: { id: string; label: string; snippet: string }) {
  return (
    <div>
      <label for={id}>{label}</label> <Copy name={text.copy} copied={() => snippet} />
      <textarea id={id} readOnly rows={3} value={snippet} spellcheck={false} onFocus={(event) => event.currentTarget.select()} />
    </div>
  );
}

function Copy({ name, copied }: { name: string; copied: () => string }) {
  const said = useSignal('');
  const copy = async () => {
    said.value = await navigator.clipboard.writeText(copied()).then(
      () => text.copied,
      () => text.refused,
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
