import type { Page } from '@playwright/test';
import { ARRIVAL, bar, expect, open, settled, test, verdict } from './fixtures';
import { trapping } from './trapping';

// The view that someone without a link gets is drawn from answers that come with the site; whatever follows is the worker's.

const ANSWERS = '**/arrival-*.json';
const CORE = '**/*.wasm';

/** All that the answers say: the verdict, the bars, the details. */
async function shown(page: Page): Promise<string> {
  await expect(page.locator('.details')).toBeVisible(); // which come after the bars are painted
  return (await page.locator('.verdict, .bars, .details').allInnerTexts()).join('\n');
}

/** How often the core was fetched. */
function fetches(page: Page): () => number {
  let count = 0;
  page.on('request', (request) => void (count += request.url().endsWith('.wasm') ? 1 : 0));
  return () => count;
}

test('what comes with the site is what the core answers', async ({ page, site, browser }) => {
  await page.route(CORE, () => undefined); // never comes
  await open(page, site);
  const other = await browser.newPage();
  const fetched = fetches(other);
  await other.goto(site.root + ARRIVAL);
  await settled(other);
  expect(fetched()).toBeGreaterThan(0);
  expect(await shown(page)).toBe(await shown(other));
  await other.close();
});

test('a link does not fetch the answers of another view', async ({ page, site }) => {
  let asked = false;
  page.on('request', (request) => void (asked ||= /\/arrival-/.test(request.url())));
  await open(page, site, ARRIVAL.replace('gpus=8', 'gpus=4'));
  await expect(bar(page, 'FSDP2 × 4')).toContainText('GiB');
  expect(asked).toBe(false);
});

test('a change after arrival is answered by the worker, in the same words', async ({ page, site }) => {
  await open(page, site);
  const before = await shown(page);
  const form = /^\S.* fits(, .*)?: [\d.,]+ of 79\.2 GiB on each GPU, [\d.,]+ GiB to spare\.$/;
  await expect(verdict(page)).toHaveText(form);
  const input = page.getByLabel('Sequence', { exact: true });
  await input.fill('1024');
  await settled(page);
  await expect(verdict(page)).toHaveText(form);
  await expect(page.locator('button.bar').nth(2)).toBeVisible();
  expect(await shown(page)).not.toBe(before);
  await input.fill('2048');
  await settled(page);
  expect(await shown(page)).toBe(before);
});

test('a change does not wait for answers that it makes useless', async ({ page, site }) => {
  await page.route(ANSWERS, () => undefined); // never come
  await page.goto(site.root);
  await expect(page.locator('.verdict .waiting')).toBeVisible();
  await page.getByLabel('Sequence', { exact: true }).fill('1024');
  await settled(page);
  await expect(bar(page, 'FSDP2 × 8')).toContainText('GiB');
});

test('answers to other specs are not taken', async ({ page, site }) => {
  const fetched = fetches(page);
  await page.route(ANSWERS, async (route) => {
    const answers = (await (await route.fetch()).json()) as Record<string, unknown>;
    const others = Object.entries(answers).map(([spec, answer]) => [spec.replace('"sequence":2048', '"sequence":2047'), answer]);
    await route.fulfill({ json: Object.fromEntries(others) });
  });
  await open(page, site);
  await expect(page.locator('button.bar').nth(2)).toBeVisible();
  expect(fetched()).toBeGreaterThan(0);
});

for (const [what, answer] of [
  ['are absent', { status: 404, body: 'not here' }],
  ['are a page in their place', { body: '<!doctype html>', contentType: 'text/html' }],
] as const) {
  test.describe(`where the answers ${what}`, () => {
    test.use({ tolerated: [/404/] });
    test('the worker is asked', async ({ page, site }) => {
      const fetched = fetches(page);
      await page.route(ANSWERS, (route) => route.fulfill(answer));
      await open(page, site);
      await expect(verdict(page)).toContainText('GiB');
      await expect(page.locator('button.bar').nth(2)).toBeVisible();
      expect(fetched()).toBeGreaterThan(0);
      await page.getByLabel('Sequence', { exact: true }).fill('1024');
      await settled(page);
      await expect(verdict(page)).toContainText('GiB');
    });
  });
}

test.describe('a core that fails', () => {
  test.use({ tolerated: [/wasm|WebAssembly|Aborted|unreachable|instantiation|500/i] });

  test('leaves the first view alone; its trap is reported with the first change, and a new worker goes on', async ({ page, site }) => {
    await page.route(CORE, async (route) => {
      await route.fulfill({ body: trapping(await (await route.fetch()).body()), contentType: 'application/wasm' });
    });
    await open(page, site);
    await expect(verdict(page)).toContainText('GiB');
    await page.getByLabel('Sequence', { exact: true }).fill('1024');
    await expect(verdict(page)).toContainText('The estimate broke off');
    await page.unroute(CORE);
    await page.getByRole('button', { name: 'Try again' }).click();
    await settled(page);
    await expect(verdict(page)).toContainText('GiB');
    await expect(page.locator('button.bar').nth(2)).toBeVisible();
  });

  test('to load ahead of time is fetched again when it is needed', async ({ page, site }) => {
    const failed = page.waitForResponse((response) => response.url().endsWith('.wasm') && response.status() === 500);
    await page.route(CORE, (route) => route.fulfill({ status: 500, body: 'no' }));
    await open(page, site);
    await page.mouse.move(200, 200);
    await failed;
    await page.unroute(CORE);
    await page.getByLabel('Sequence', { exact: true }).fill('1024');
    await settled(page);
    await expect(verdict(page)).toContainText('GiB');
  });
});

test('the embed without a link shows the same first view', async ({ page, site }) => {
  await page.route(CORE, () => undefined); // never comes
  await page.goto(`${site.root}embed.html`);
  await settled(page);
  await expect(verdict(page)).toContainText('GiB');
  await expect(page.locator('button.bar').nth(2)).toBeVisible();
});
