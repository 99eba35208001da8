import Axe from '@axe-core/playwright';
import { test as base, expect, type Page } from '@playwright/test';
import { serve, type Site } from './site';

interface Fixtures {
  /** Complaints of the browser that a test provokes on purpose; all others fail it. */
  tolerated: RegExp[];
  guarded: void;
}

/** The configuration has it blocked, but for one test. */
const BLOCKED = /Service Worker registration blocked by Playwright/;

/** Every test runs the site below a path, and fails on a console error, a CSP violation or a request to any other host. */
export const test = base.extend<Fixtures, { site: Site }>({
  site: [
    async ({}, use) => {
      const site = await serve('/some/path/llmem/');
      await use(site);
      site.close();
    },
    { scope: 'worker' },
  ],
  tolerated: [[], { option: true }],
  guarded: [
    async ({ page, tolerated }, use) => {
      const wrong: string[] = [];
      const note = (text: string) => {
        if (![...tolerated, BLOCKED].some((pattern) => pattern.test(text))) wrong.push(text);
      };
      page.on('console', (message) => {
        if (['error', 'warning'].includes(message.type())) note(message.text());
      });
      page.on('pageerror', (error) => note(error.message));
      page.on('request', (request) => {
        if (!/^(http:\/\/127\.0\.0\.1:|data:|blob:)/.test(request.url())) note(`request to ${request.url()}`);
      });
      await use();
      expect(wrong).toEqual([]);
    },
    { auto: true },
  ],
});

export { expect };

/** What is shown without a link, as one: with a link the worker is asked. */
export const ARRIVAL = '#v=1&model=meta-llama/Llama-3.1-8B&gpu=h100-sxm-80gb&gpus=8';

export const verdict = (page: Page) => page.locator('.verdict p').first();
/** The bar of a method: its name, or how that begins. */
export const bar = (page: Page, method: string) =>
  page.locator('button.bar').filter({ has: page.locator('strong', { hasText: new RegExp(`^${method}`) }) });

/** Opens the page, or a link to it, and waits for the answer. */
export async function open(page: Page, site: Site, link = ''): Promise<void> {
  await page.goto(site.root + link);
  await settled(page);
}

/** Waits until what is shown is the answer to what is asked. */
export async function settled(page: Page): Promise<void> {
  // A long step with accumulation takes seconds, and more on a machine that builds and tests at once.
  await expect(page.locator('.verdict[aria-busy="false"]:not(:has(.waiting))')).toBeVisible({ timeout: 25_000 });
}

/** axe finds nothing to complain of; `without`: what it is not to look at. */
export async function expectAccessible(page: Page, without?: string): Promise<void> {
  const axe = new Axe({ page });
  const { violations } = await (without ? axe.exclude(without) : axe).analyze();
  expect(violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(' ')}`)).toEqual([]);
}
