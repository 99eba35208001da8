import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, test } from './fixtures';

/** A page of someone else's, on another origin. */
async function host(body: string): Promise<{ address: string; close: () => void }> {
  const server = createServer((_request, response) => {
    response.writeHead(200, { 'Content-Type': 'text/html' });
    response.end(`<!doctype html><html lang="en"><title>Host</title><link rel="icon" href="data:,">${body}`);
  });
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
  return { address: `http://127.0.0.1:${(server.address() as AddressInfo).port}/article#part-2`, close: () => void server.close() };
}

const LINK = '#v=1&amp;model=meta-llama/Llama-3.1-8B&amp;gpu=a100-sxm-80gb&amp;gpus=4&amp;micro_batch=2';

test('a plain frame shows the chart of a link, without any script of the host', async ({ page, site }) => {
  const { address, close } = await host(`<iframe src="${site.root}embed.html${LINK}" width="700" height="420"></iframe>`);
  await page.goto(address);
  const frame = page.frameLocator('iframe');
  await expect(frame.locator('.verdict p').first()).toContainText('GiB');
  await expect(frame.locator('button.bar').nth(2)).toBeVisible();
  await expect(frame.getByRole('link', { name: 'Open in LLMem' })).toHaveAttribute(
    'href',
    './index.html#v=1&model=meta-llama/Llama-3.1-8B&gpu=a100-sxm-80gb&gpus=4&micro_batch=2',
  );
  await expect(page).toHaveURL(address);
  close();
});

test('the element is as tall as its content, takes the host’s theme, and leaves its address alone', async ({ page, site }) => {
  const { address, close } = await host(
    `<script src="${site.root}llmem-estimate.js"></script><llmem-estimate theme="dark" link="${LINK}"></llmem-estimate>`,
  );
  await page.goto(address);
  const frame = page.frameLocator('iframe');
  await expect(frame.locator('button.bar').nth(2)).toBeVisible();
  const tall = () => page.locator('iframe').evaluate((element) => element.getBoundingClientRect().height);
  const content = () => frame.locator('#page').evaluate((element) => Math.ceil(element.getBoundingClientRect().height));
  await expect.poll(async () => (await tall()) - (await content())).toBe(0);
  await page.setViewportSize({ width: 400, height: 800 });
  await expect.poll(async () => (await tall()) - (await content())).toBe(0);
  await expect(frame.locator('body')).toHaveCSS('background-color', 'rgb(19, 22, 25)');
  await frame.locator('button.bar').first().click();
  await expect(page).toHaveURL(address);
  close();
});

test('the snippets that the page offers work as they stand', async ({ page, site }) => {
  await page.goto(site.root);
  await page.getByRole('button', { name: 'Embed' }).click();
  const snippets = await page.locator('.snippets textarea').evaluateAll((areas) => areas.map((area) => (area as HTMLTextAreaElement).value));
  const { address, close } = await host(snippets.join('\n'));
  await page.goto(address);
  for (const index of [0, 1]) await expect(page.frameLocator(`iframe >> nth=${index}`).locator('button.bar').nth(2)).toBeVisible();
  close();
});
