// <llmem-estimate link="#v=1&…" theme="dark"></llmem-estimate>: an estimate in someone else's page, as tall as it needs to be.
// One classic script (a module from another origin would need headers that plain file hosts do not send), no dependencies; what
// it shows is embed.html from where this script lies.

const here = (document.currentScript as HTMLScriptElement).src;
const FIRST_HEIGHT = 420; // px, until the content says how tall it is

class LlmemEstimate extends HTMLElement {
  static observedAttributes = ['link', 'theme'];
  #frame = document.createElement('iframe');

  connectedCallback(): void {
    this.#frame.title = 'LLMem: GPU memory for training';
    this.#frame.loading = 'lazy';
    // Set through the object model, which a host's Content-Security-Policy leaves alone.
    Object.assign(this.#frame.style, { border: '0', width: '100%', height: `${FIRST_HEIGHT}px`, display: 'block' });
    this.#show();
    this.replaceChildren(this.#frame);
    window.addEventListener('message', this.#resize);
  }

  disconnectedCallback(): void {
    window.removeEventListener('message', this.#resize);
  }

  attributeChangedCallback(): void {
    if (this.isConnected) this.#show();
  }

  #show(): void {
    const source = new URL('embed.html', here);
    const theme = this.getAttribute('theme');
    if (theme) source.searchParams.set('theme', theme);
    source.hash = this.getAttribute('link') ?? '';
    if (this.#frame.src !== source.href) this.#frame.src = source.href;
  }

  #resize = (event: MessageEvent<unknown>): void => {
    if (event.source !== this.#frame.contentWindow) return;
    const { data } = event;
    if (typeof data !== 'object' || data === null || !('type' in data) || !('height' in data)) return;
    if (data.type === 'llmem-height' && typeof data.height === 'number' && data.height > 0) {
      this.#frame.style.height = `${Math.min(data.height, 4000)}px`;
    }
  };
}

customElements.define('llmem-estimate', LlmemEstimate);
