import { render } from 'preact';
import './style/page.css';
import { link, start } from './store';
import { Embed, embeddedAs } from './view/Embed';
import { acceptDrops } from './view/fromFile';
import { Page } from './view/Page';

const OFFLINE_AFTER_MS = 3000; // everything that the first view needs comes first

// Both index.html and embed.html, which says so on its root element.
const embedded = document.documentElement.dataset.view === 'embed';
const root = document.getElementById('page');
if (root) {
  render(embedded ? <Embed {...embeddedAs(new URLSearchParams(location.search))} /> : <Page />, root);
  if (embedded) fitInto(window.parent, root);
  else acceptDrops();
}
// The address of an embed belongs to its host: it is read, never written.
void start({ address: !embedded });
if (!embedded && import.meta.env.PROD && 'serviceWorker' in navigator) {
  // After everything that is needed now; without it the page works all the same.
  window.addEventListener('load', () => setTimeout(() => void keepOffline().catch(() => undefined), OFFLINE_AFTER_MS));
}

/** Has a service worker keep this version of the site, and the models that were looked at before it was there. */
async function keepOffline(): Promise<void> {
  await navigator.serviceWorker.register('./sw.js');
  const { active } = await navigator.serviceWorker.ready;
  active?.postMessage({ keep: performance.getEntriesByType('resource').flatMap(({ name }) => (name.includes('/presets/') ? [name] : [])) });
}

/** Takes the theme that the host asks for, tells it how tall the content is and what was chosen: src/element.ts is the other side. */
function fitInto(host: Window, content: HTMLElement): void {
  const take = (theme: unknown) => {
    if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
  };
  take(new URLSearchParams(location.search).get('theme'));
  if (host === window) return;
  window.addEventListener('message', ({ source, data }: MessageEvent<unknown>) => {
    if (source === host && typeof data === 'object' && data !== null && 'type' in data && data.type === 'llmem-theme' && 'theme' in data) take(data.theme);
  });
  // To whichever page is around: neither the height nor the link is a secret.
  new ResizeObserver(() => {
    host.postMessage({ type: 'llmem-height', height: Math.ceil(content.getBoundingClientRect().height) }, '*');
  }).observe(content);
  let before = '';
  link.subscribe((now) => {
    if (before !== '' && now !== before) host.postMessage({ type: 'llmem-link', link: now }, '*');
    before = now;
  });
}
