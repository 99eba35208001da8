import { render } from 'preact';
import './style/page.css';
import { start } from './store';
import { Embed } from './view/Embed';

const root = document.getElementById('page');
if (root) {
  const theme = new URLSearchParams(location.search).get('theme');
  if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
  render(<Embed />, root);
  tellHeight(root);
  // The address belongs to the host: it is read, never written.
  void start({ address: false });
}

/** Tells the page around, whichever it is, how tall the content is: src/element.ts listens. The number is no secret. */
function tellHeight(content: HTMLElement): void {
  if (window.parent === window) return;
  new ResizeObserver(() => {
    window.parent.postMessage({ type: 'llmem-height', height: Math.ceil(content.getBoundingClientRect().height) }, '*');
  }).observe(content);
}
