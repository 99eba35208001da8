// Builds a page with <llmem-estimate> in each of the tools that embedding.html documents, and looks at it in Chromium.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';

import { serve } from '../serve.mjs';

const root = new URL('../../', import.meta.url).pathname;
const { chromium } = createRequire(join(root, 'web/package.json'))('@playwright/test');
const work = process.env.HOSTS_WORK ?? join(root, 'build/hosts');
const dist = join(root, 'web/dist');
const LINK = '#v=1&model=meta-llama/Llama-3.1-8B&gpu=a100-sxm-80gb&gpus=4';
const ESCAPED = LINK.replaceAll('&', '&amp;');
const ELEMENT = `<llmem-estimate link="${ESCAPED}"></llmem-estimate>`;

if (!existsSync(join(dist, 'llmem-estimate.js'))) throw new Error('web/dist is not built: npm --prefix web run build');

function run(command, args, cwd) {
  const { status, stdout, stderr } = spawnSync(command, args, { cwd, encoding: 'utf8', env: { ...process.env, CI: '1', DOCUSAURUS_NO_TELEMETRY: '1' } });
  if (status !== 0) throw new Error(`${command} ${args.join(' ')}: ${status}\n${stdout}\n${stderr}`.slice(-4000));
}

function files(folder, content) {
  rmSync(folder, { recursive: true, force: true });
  for (const [name, text] of Object.entries(content)) {
    mkdirSync(join(folder, name, '..'), { recursive: true });
    writeFileSync(join(folder, name), text);
  }
}

/** Python's tools, in an environment of their own. */
function python() {
  const bin = join(work, 'py/bin');
  if (!existsSync(join(bin, 'mkdocs'))) {
    run('python3', ['-m', 'venv', join(work, 'py')], root);
    run(join(bin, 'pip'), ['-q', 'install', 'mkdocs', 'sphinx'], root);
  }
  return bin;
}

const hosts = {
  'plain HTML': (site) => {
    const folder = join(work, 'plain');
    files(folder, {
      'index.html': `<!doctype html><html lang="en"><title>Host</title><style>body{background:#fff}.night{background:#111}</style><body><h1>Host</h1>\n<script src="${site}llmem-estimate.js"></script>\n${ELEMENT}</body></html>`,
    });
    return { folder, page: '', dark: () => document.body.classList.add('night') };
  },
  MkDocs: (site) => {
    const folder = join(work, 'mkdocs');
    files(folder, {
      'mkdocs.yml': `site_name: Host\nuse_directory_urls: false\nextra_javascript:\n  - ${site}llmem-estimate.js\n`,
      'docs/index.md': `# Will it fit?\n\nSome *Markdown* before.\n\n${ELEMENT}\n\nSome after.\n`,
    });
    run(join(python(), 'mkdocs'), ['build', '-q', '-d', 'out'], folder);
    return { folder: join(folder, 'out'), page: 'index.html', dark: () => document.body.style.setProperty('background-color', '#101114', 'important') };
  },
  Sphinx: (site) => {
    const folder = join(work, 'sphinx');
    files(folder, {
      'conf.py': `project = "Host"\nextensions = []\nhtml_js_files = ["${site}llmem-estimate.js"]\n`,
      'index.rst': `Will it fit?\n============\n\n.. raw:: html\n\n   ${ELEMENT}\n\nSome text after.\n`,
    });
    run(join(python(), 'sphinx-build'), ['-q', '-b', 'html', '.', 'out'], folder);
    return { folder: join(folder, 'out'), page: 'index.html', dark: () => document.querySelector('.body').style.setProperty('background-color', '#101114', 'important') };
  },
  Docusaurus: (site) => {
    const folder = join(work, 'docusaurus');
    const modules = join(folder, 'node_modules');
    const kept = join(work, 'docusaurus-modules');
    if (existsSync(modules) && !existsSync(kept)) spawnSync('mv', [modules, kept]);
    files(folder, {
      'package.json': JSON.stringify({ name: 'host', private: true, dependencies: { '@docusaurus/core': '^3.10.2', '@docusaurus/preset-classic': '^3.10.2', react: '^19.0.0', 'react-dom': '^19.0.0' } }),
      'docusaurus.config.js': `module.exports = { title: 'Host', url: 'https://example.org', baseUrl: '/', onBrokenLinks: 'throw', scripts: [{ src: '${site}llmem-estimate.js', defer: true }], presets: [['classic', { docs: { routeBasePath: '/', sidebarPath: undefined }, blog: false }]], themeConfig: { colorMode: { respectPrefersColorScheme: false } } };`,
      'docs/index.md': `---\nslug: /\n---\n\n# Will it fit?\n\n<llmem-estimate link={"${LINK}"} />\n\nSome text after.\n`,
    });
    if (existsSync(kept)) spawnSync('mv', [kept, modules]);
    else run('npm', ['install', '--no-audit', '--no-fund', '--loglevel=error'], folder);
    run('npx', ['docusaurus', 'build'], folder);
    // As a reader does it: the switch in the bar.
    return { folder: join(folder, 'build'), page: '', dark: () => document.documentElement.setAttribute('data-theme', 'dark') };
  },
};

const wanted = process.argv.slice(2);
mkdirSync(work, { recursive: true });
const site = await serve(dist);
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox'] });
let passed = 0;
let failed = 0;
for (const [name, build] of Object.entries(hosts)) {
  if (wanted.length > 0 && !wanted.includes(name)) continue;
  try {
    const { folder, page: path, dark } = build(site.root);
    const host = await serve(folder);
    const page = await browser.newPage({ colorScheme: 'light' });
    const address = host.root + path;
    await page.goto(address);
    const frame = page.frameLocator('llmem-estimate iframe');
    await page.locator('llmem-estimate').scrollIntoViewIfNeeded();
    await frame.locator('button.bar').nth(2).waitFor({ timeout: 60_000 });
    await frame.getByText('GiB').first().waitFor();
    const tall = () => page.locator('llmem-estimate iframe').evaluate((element) => element.getBoundingClientRect().height);
    const content = () => frame.locator('#page').evaluate((element) => Math.ceil(element.getBoundingClientRect().height));
    const background = () => frame.locator('body').evaluate((body) => getComputedStyle(body).backgroundColor);
    const until = async (what, holds) => {
      for (let round = 0; round < 100; round++) {
        if (await holds()) return;
        await page.waitForTimeout(100);
      }
      throw new Error(what);
    };
    await until('as tall as its content', async () => (await tall()) === (await content()));
    await until('light, as the host', async () => (await background()) === 'rgb(252, 252, 251)');
    await page.evaluate(dark);
    // A theme is an attribute of the root or the body: one that is not wakes the element with the next such change.
    await page.evaluate(() => document.documentElement.setAttribute('data-touched', ''));
    await until('dark, as the host', async () => (await background()) === 'rgb(19, 22, 25)');
    if (page.url() !== address) throw new Error(`the address became ${page.url()}`);
    if (process.env.HOSTS_SHOTS) await page.screenshot({ path: join(process.env.HOSTS_SHOTS, `host-${name.replace(' ', '-')}.png`) });
    await page.close();
    host.close();
    passed++;
    console.log(`ok ${name}`);
  } catch (error) {
    failed++;
    console.log(`FAILED ${name}: ${error.message}`);
  }
}
await browser.close();
site.close();
console.log(`hosts: ${passed} passed, ${failed} failed`);
process.exit(failed ? 1 : 0);
