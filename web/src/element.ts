// <llmem-estimate link="#v=1&…" mode="pick" pick="gpus"></llmem-estimate>: an estimate in someone else's page, as tall as it needs to
// be, light or dark as the page around it. One classic script (a module from another origin would need headers that plain file
// hosts do not send), no dependencies; what it shows is embed.html from where this script lies. embedding.html documents it.

const here = (document.currentScript as HTMLScriptElement).src;
const FIRST_HEIGHT = 420; // px, until the content says how tall it is
const MOST_HEIGHT = 8000;

class LlmemEstimate extends HTMLElement {
  static observedAttributes = ['link', 'theme', 'mode', 'pick'];
  #frame = document.createElement('iframe');
  #watch = new MutationObserver(() => this.#paint());
  #media = matchMedia('(prefers-color-scheme: dark)');
  #theme = '';
  // Out of the way of hosts that compare the page with what they rendered on a server, as React does.
  #root = this.attachShadow({ mode: 'open' });

  constructor() {
    super();
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(':host { display: block }');
    this.#root.adoptedStyleSheets = [sheet];
  }

  connectedCallback(): void {
    this.#frame.title = 'LLMem: GPU memory for training';
    this.#frame.loading = 'lazy';
    // Set through the object model, which a host's Content-Security-Policy leaves alone.
    Object.assign(this.#frame.style, { border: '0', width: '100%', height: `${FIRST_HEIGHT}px`, display: 'block' });
    this.#show();
    this.#frame.addEventListener('load', this.#tell); // what changed while it came
    this.#root.replaceChildren(this.#frame);
    addEventListener('message', this.#hear);
    // Themes of other pages are attributes of the root or the body, whatever their names.
    for (const root of [document.documentElement, document.body]) this.#watch.observe(root, { attributes: true });
    this.#media.addEventListener('change', this.#paint);
  }

  disconnectedCallback(): void {
    removeEventListener('message', this.#hear);
    this.#watch.disconnect();
    this.#media.removeEventListener('change', this.#paint);
  }

  attributeChangedCallback(name: string): void {
    if (!this.isConnected) return;
    if (name === 'theme') this.#paint();
    else this.#show();
  }

  #show(): void {
    const source = new URL('embed.html', here);
    this.#theme = this.#themeNow();
    source.searchParams.set('theme', this.#theme);
    for (const name of ['mode', 'pick']) {
      const value = this.getAttribute(name);
      if (value) source.searchParams.set(name, value);
    }
    source.hash = this.getAttribute('link') ?? '';
    if (this.#frame.src !== source.href) this.#frame.src = source.href;
  }

  /** Tells the frame, which keeps what was chosen in it. */
  #paint = (): void => {
    const theme = this.#themeNow();
    if (theme === this.#theme) return;
    this.#theme = theme;
    this.#tell();
  };

  #tell = (): void => this.#frame.contentWindow?.postMessage({ type: 'llmem-theme', theme: this.#theme }, '*'); // no secret

  /** As asked for, else as the page is here: by the background that is behind the element. */
  #themeNow(): string {
    const asked = this.getAttribute('theme');
    if (asked === 'light' || asked === 'dark') return asked;
    for (let around: Element | null = this; around; around = around.parentElement) {
      const style = getComputedStyle(around);
      const [red = 0, green = 0, blue = 0, alpha = 1] = (/^rgba?\(([^)]+)\)/.exec(style.backgroundColor)?.[1] ?? '0,0,0,0')
        .split(/[\s,/]+/)
        .map(Number);
      // ITU-R BT.601's weights: how bright a colour looks.
      if (alpha > 0.5) return 0.299 * red + 0.587 * green + 0.114 * blue < 128 ? 'dark' : 'light';
    }
    // No background anywhere: the browser's own, which is dark only where the page says that it can be.
    const scheme = getComputedStyle(document.documentElement).colorScheme;
    return scheme.includes('dark') && (this.#media.matches || !scheme.includes('light')) ? 'dark' : 'light';
  }

  #hear = (event: MessageEvent<unknown>): void => {
    if (event.source !== this.#frame.contentWindow) return;
    const { data } = event;
    if (typeof data !== 'object' || data === null || !('type' in data)) return;
    if (data.type === 'llmem-height' && 'height' in data && typeof data.height === 'number' && data.height > 0) {
      this.#frame.style.height = `${Math.min(data.height, MOST_HEIGHT)}px`;
    } else if (data.type === 'llmem-link' && 'link' in data && typeof data.link === 'string') {
      this.dispatchEvent(new CustomEvent('llmem-change', { detail: { link: data.link }, bubbles: true }));
    }
  };
}

if (!customElements.get('llmem-estimate')) customElements.define('llmem-estimate', LlmemEstimate);
