import { render } from 'preact';
import './style/page.css';
import { start } from './store';
import { Embed } from './view/Embed';
import { acceptDrops } from './view/fromFile';
import { Page } from './view/Page';

const OFFLINE_AFTER_MS = 3000; // everything that the first view needs comes first

// Both index.html and embed.html, which says so on its root element.
const embedded = document.documentElement.dataset.view === 'embed';
const root = document.getElementById('page');
if (root) {
  render(embedded ? <Embed /> : <Page />, root);
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

/** Takes the theme that the host asks for, and tells it how tall the content is: src/element.ts listens. */
function fitInto(host: Window, content: HTMLElement): void {
  const theme = new URLSearchParams(location.search).get('theme');
  if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
  if (host === window) return;
  new ResizeObserver(() => {
    // To whichever page is around: the number is no secret.
    host.postMessage({ type: 'llmem-height', height: Math.ceil(content.getBoundingClientRect().height) }, '*');
  }).observe(content);
}
