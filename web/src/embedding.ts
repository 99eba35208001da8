import './style/page.css';
import './style/article.css';

// embedding.html: the snippets get this site's own address, and the examples are the real thing.

const base = location.href.replace(/[^/]*$/, '');
for (const code of document.querySelectorAll('pre code')) code.textContent = (code.textContent ?? '').replaceAll('https://SITE/', base);
for (const block of document.querySelectorAll('pre')) block.tabIndex = 0; // it scrolls

const script = document.createElement('script');
script.src = `${base}llmem-estimate.js`;
document.head.append(script);

document.getElementById('theme')?.addEventListener('click', () => {
  const { dataset } = document.documentElement;
  const dark = dataset.theme ? dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  dataset.theme = dark ? 'light' : 'dark';
});

type Module = typeof import('./module');

document.getElementById('run')?.addEventListener('click', async () => {
  const said = document.getElementById('said');
  if (!said) return;
  said.textContent = 'Loading…';
  try {
    const { estimate } = (await import(/* @vite-ignore */ `${base}llmem.js`)) as Module;
    const answer = await estimate({ model: 'Qwen/Qwen2.5-7B', training: { micro_batch: 4 }, cluster: { gpu: 'h100-sxm-80gb' } });
    said.textContent = answer.ok ? answer.value.verdict.sentence : answer.problems.map(({ message }) => message).join(' ');
  } catch (error) {
    said.textContent = error instanceof Error ? error.message : String(error);
  }
});
