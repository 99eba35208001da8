import { createServer } from 'node:http';
import { existsSync, readFileSync, statSync } from 'node:fs';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { expect, expectAccessible, test } from './fixtures';
import { dist } from './site';

// The element's modes, its theme, and the documented page with its live examples. embed.spec.ts has the plain frame.

const LINK = '#v=1&amp;model=meta-llama/Llama-3.1-8B&amp;gpu=a100-sxm-80gb&amp;gpus=4';

async function host(body: string): Promise<{ address: string; close: () => void }> {
  const server = createServer((_request, response) => {
    response.writeHead(200, { 'Content-Type': 'text/html' });
    response.end(`<!doctype html><html lang="en"><title>Host</title><link rel="icon" href="data:,">${body}`);
  });
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
  return { address: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`, close: () => void server.close() };
}

test('the script is at most 3 kB', () => {
  expect(gzipSync(readFileSync(join(dist, 'llmem-estimate.js')), { level: 9 }).length).toBeLessThanOrEqual(3000);
});

test('pick one thing: only that can be changed, and the host hears of it', async ({ page, site }) => {
  const { address, close } = await host(
    `<script src="${site.root}llmem-estimate.js"></script><llmem-estimate mode="pick" pick="gpus" link="${LINK}"></llmem-estimate><p id="heard"></p>` +
      `<script>addEventListener('llmem-change', (event) => (document.getElementById('heard').textContent = event.detail.link))</script>`,
  );
  await page.goto(address);
  const frame = page.frameLocator('iframe');
  await expect(frame.locator('button.bar').nth(2)).toBeVisible();
  await expect(frame.locator('input, select')).toHaveCount(1);
  await frame.getByLabel('Number of GPUs', { exact: true }).fill('2');
  await expect(page.locator('#heard')).toHaveText('#v=1&model=meta-llama/Llama-3.1-8B&gpu=a100-sxm-80gb&gpus=2');
  await expect(frame.locator('button.bar', { hasText: 'FSDP2 × 2' })).toContainText('GiB');
  await page.locator('llmem-estimate').evaluate((element) => element.setAttribute('pick', 'micro_batch sequence'));
  await expect(frame.getByLabel('Sequence', { exact: true })).toBeVisible();
  close();
});

test('read-only has no control; full has them all, and its details', async ({ page, site }) => {
  const { address, close } = await host(
    `<script src="${site.root}llmem-estimate.js"></script><llmem-estimate link="${LINK}"></llmem-estimate><llmem-estimate mode="full" link="${LINK}"></llmem-estimate>`,
  );
  await page.goto(address);
  const [plain, full] = [page.frameLocator('iframe >> nth=0'), page.frameLocator('iframe >> nth=1')];
  await expect(plain.locator('button.bar').nth(2)).toBeVisible();
  await expect(plain.locator('input, select, textarea')).toHaveCount(0);
  await page.locator('llmem-estimate').nth(1).scrollIntoViewIfNeeded();
  await expect(full.getByLabel('Sequence', { exact: true })).toBeVisible();
  await expect(full.locator('.details .three')).toBeVisible();
  await expect(page).toHaveURL(address);
  close();
});

test('light or dark as the host is behind it, also when that changes', async ({ page, site }) => {
  const { address, close } = await host(
    `<style>body{background:#fff}[data-any=night] body{background:rgb(20,20,24)}</style><script src="${site.root}llmem-estimate.js"></script><llmem-estimate link="${LINK}"></llmem-estimate>`,
  );
  await page.goto(address);
  const body = page.frameLocator('iframe').locator('body');
  await expect(body).toHaveCSS('background-color', 'rgb(252, 252, 251)');
  await page.frameLocator('iframe').locator('button.bar').first().click(); // what is chosen stays
  const chosen = await page.frameLocator('iframe').locator('button.bar').first().getAttribute('aria-pressed');
  await page.evaluate(() => document.documentElement.setAttribute('data-any', 'night'));
  await expect(body).toHaveCSS('background-color', 'rgb(19, 22, 25)');
  expect(await page.frameLocator('iframe').locator('button.bar').first().getAttribute('aria-pressed')).toBe(chosen);
  await page.locator('llmem-estimate').evaluate((element) => element.setAttribute('theme', 'light'));
  await expect(body).toHaveCSS('background-color', 'rgb(252, 252, 251)');
  close();
});

for (const [mode, theme] of [
  ['pick&pick=gpus,model', 'dark'],
  ['full', 'light'],
] as const) {
  test(`axe finds nothing in a frame with mode=${mode}, ${theme}`, async ({ page, site }) => {
    await page.goto(`${site.root}embed.html?theme=${theme}&mode=${mode}${LINK.replaceAll('&amp;', '&')}`);
    await expect(page.locator('button.bar').nth(2)).toBeVisible();
    await expect(page.locator('.verdict[aria-busy="false"]')).toBeVisible();
    await expectAccessible(page);
  });
}

test.describe('what is not there is not there', () => {
  test.use({ tolerated: [/404/] });
  test('a hostile host or link changes nothing but what it may', async ({ page, site }) => {
    const { address, close } = await host(
      `<iframe id="one" src="${site.root}embed.html?mode=<script>&pick=__proto__,constructor,gpus&theme=evil#v=1&model=x"></iframe>`,
    );
    await page.goto(address);
    const frame = page.frameLocator('iframe');
    await expect(frame.getByLabel('Number of GPUs', { exact: true })).toBeVisible();
    await page.locator('#one').evaluate((one) => {
      for (const message of [
        null,
        7,
        { type: 'llmem-theme' },
        { type: 'llmem-theme', theme: '"><script>' },
        { type: 'llmem-theme', theme: { toString: 1 } },
      ]) {
        (one as HTMLIFrameElement).contentWindow?.postMessage(message, '*');
      }
    });
    await expect(frame.locator('html')).not.toHaveAttribute('data-theme');
    close();
  });
});

test('the documented page: live examples, snippets with its own address, the module, no violation', async ({ page, site }) => {
  await page.goto(`${site.root}embedding.html`);
  await expect(page.locator('pre').first()).toContainText(`${site.root}llmem-estimate.js`);
  await expect(page.frameLocator('llmem-estimate >> nth=0 >> iframe').locator('button.bar').nth(2)).toBeVisible();
  await page.locator('llmem-estimate').nth(1).scrollIntoViewIfNeeded();
  await expect(page.frameLocator('llmem-estimate >> nth=1 >> iframe').getByLabel('Number of GPUs', { exact: true })).toHaveValue('4');
  await page.getByRole('button', { name: 'Light or dark' }).click();
  await expect(page.frameLocator('llmem-estimate >> nth=0 >> iframe').locator('body')).toHaveCSS('background-color', 'rgb(19, 22, 25)');
  await page.getByRole('button', { name: 'Run it here' }).click();
  await expect(page.locator('#said')).toHaveText(/fits|does not fit/);
  await expectAccessible(page, 'llmem-estimate');
});

test.describe('what is not there is not there', () => {
  test.use({ tolerated: [/404/] });
  test('the engine as a module of another page, with its types', async ({ page, site }) => {
    await page.goto(`${site.root}embedding.html`);
    const answers = await page.evaluate(async (address) => {
      const { estimate, models } = (await import(address)) as typeof import('../../web/src/module');
      const [good, bad, broken, unknown, rare] = await Promise.all([
        estimate({ model: 'Qwen/Qwen2.5-7B', training: { micro_batch: 2 } }),
        estimate({ model: 'Qwen/Qwen2.5-7B', training: { micro_batch: 'two' } }),
        estimate('{'),
        estimate({ model: 'no/such-model' }),
        // Of what the core's second file has.
        estimate({
          model: 'Qwen/Qwen2.5-7B',
          training: { method: 'lora', optimizer: { name: 'adafactor_hf' }, base_quantization: { bits: 4 } },
        }),
      ]);
      return {
        good: good.ok && good.value.parameters.total,
        bad: bad.ok ? [] : bad.problems.map(({ at }) => at),
        broken: broken.ok,
        unknown: unknown.ok ? [] : unknown.problems.map(({ at }) => at),
        rare: rare.ok,
        models: (await models()).length,
      };
    }, `${site.root}llmem.js`);
    expect(answers).toMatchObject({ good: 7615616512, bad: ['/training/micro_batch'], broken: false, unknown: ['/model'], rare: true });
    expect(answers.models).toBeGreaterThan(5);
    expect(existsSync(join(dist, 'llmem.d.ts')) && statSync(join(dist, 'llmem.d.ts')).size).toBeGreaterThan(1000);
    expect(readFileSync(join(dist, 'llmem.d.ts'), 'utf8')).toContain('export function estimate(spec: Spec | string): Promise<Envelope>;');
  });
});
