import { readFileSync } from 'node:fs';
import { bar, expect, expectAccessible, open, settled, test } from './fixtures';
import type { Page } from '@playwright/test';

const LINK = '#v=1&model=Qwen/Qwen2.5-0.5B&gpu=rtx-4090&gpus=4&data=fsdp2';

async function view(page: Page, name: string): Promise<void> {
  await page.getByRole('tab', { name }).click();
}

test('the ledger is a tree from category to module to tensor, each tensor with its reason and arithmetic', async ({ page, site }) => {
  await open(page, site, LINK);
  await page.getByRole('button', { name: 'MLP', exact: true }).click();
  await page.getByRole('button', { name: 'model.layers.*.mlp', exact: true }).click();
  const tensor = page.locator('.ledger .tensor').first();
  await expect(tensor).toContainText('kept for backward');
  await expect(tensor).toContainText(/× 2 bytes = [\d,]+/);
  await page.getByLabel('Find in the ledger').fill('lm_head');
  for (const row of await page.locator('.ledger .module').all()) await expect(row).toContainText('lm_head');
});

test('the timeline shows the peak, reads out every instant by keys, zooms, and opens the ledger there', async ({ page, site }) => {
  await open(page, site, LINK);
  await view(page, 'Timeline');
  const slider = page.getByRole('slider', { name: /Timeline/ });
  await expect(slider).toBeVisible();
  const peak = (await page.locator('.three strong').first().innerText()).trim();
  await expect(slider).toHaveAttribute('aria-valuetext', new RegExp(`: ${peak.replace('.', '\\.')} GiB allocated`));
  await expect(page.locator('.peak-mark')).toContainText(peak);
  const before = await slider.getAttribute('aria-valuenow');
  await slider.focus();
  await page.keyboard.press('ArrowLeft');
  await expect(slider).not.toHaveAttribute('aria-valuenow', before ?? '');
  await expect(page.locator('.readout')).toContainText(/Allocates|Frees/);
  const whole = Number(await slider.getAttribute('aria-valuemax'));
  await page.keyboard.press('+');
  await expect.poll(async () => Number(await slider.getAttribute('aria-valuemax')) - Number(await slider.getAttribute('aria-valuemin'))).toBeLessThan(whole * 0.6);
  await page.keyboard.press('0');
  await expect(slider).toHaveAttribute('aria-valuemax', String(whole));
  await page.locator('.timeline-tools select').selectOption('step0.');
  await expect.poll(async () => Number(await slider.getAttribute('aria-valuemin'))).toBeGreaterThan(0);
  await page.getByRole('button', { name: 'Ledger at this instant' }).click();
  await expect(page.getByRole('heading', { name: /Ledger after event/ })).toBeVisible();
  await expectAccessible(page);
});

test('a curve marks the last value that fits, and applies it', async ({ page, site }) => {
  await open(page, site, LINK);
  await view(page, 'Curves');
  await expect(page.locator('.curve-state')).toContainText(/largest micro-batch that fits: \d+/, { timeout: 40_000 });
  const value = /fits: ([\d,]+)/.exec(await page.locator('.curve-state').innerText())?.[1]?.replace(',', '') ?? '';
  await page.getByRole('button', { name: 'Apply' }).click();
  await expect(page.getByLabel('Micro-batch', { exact: true })).toHaveValue(value);
  await settled(page);
  await expect(bar(page, 'FSDP2 ×')).toContainText('fits');
  await page.getByText('The numbers as a table').click();
  await expect(page.getByRole('region', { name: 'Memory against micro-batch' })).toContainText(value);
  await expectAccessible(page);
});

test('a curve that is no longer wanted is cancelled', async ({ page, site }) => {
  await open(page, site, `${LINK.replace('0.5B', '7B')}&accumulation=32`); // takes its time
  await view(page, 'Curves');
  await page.getByRole('button', { name: 'Cancel' }).click();
  await expect(page.getByRole('button', { name: 'Cancel' })).toHaveCount(0);
});

test('two answers are compared row by row, with what was changed', async ({ page, site }) => {
  await open(page, site, LINK);
  await view(page, 'Compare');
  await page.getByRole('button', { name: 'Pin this answer' }).click();
  await page.getByLabel('Checkpointing', { exact: true }).selectOption('full');
  await settled(page);
  await expect(page.locator('.changes')).toHaveText('Checkpointing: none → full');
  await expect(page.locator('.compare tbody tr').first()).toContainText('Weights');
  await expect(page.locator('.compare tfoot')).toContainText('−');
  await expectAccessible(page);
});

test('the stages of a pipeline are shown where they differ, and the worst decides', async ({ page, site }) => {
  await open(page, site, LINK.replace('fsdp2', 'pipeline'));
  await view(page, 'Ranks');
  await expect(page.getByText(/Stage \d needs most and decides/)).toBeVisible({ timeout: 20_000 });
  await expect(page.locator('.panel svg.segments > g')).toHaveCount(4);
  const needed = /decides: ([\d.]+) GiB/.exec(await page.locator('.panel').innerText())?.[1] ?? '';
  await expect(bar(page, 'Pipeline × 4')).toContainText(`${needed} GiB`);
});

test('charts are saved as SVG, PNG and CSV, and the answer is copied as Markdown and as a spec', async ({ page, site, context }) => {
  await context.grantPermissions(['clipboard-read', 'clipboard-write']);
  await open(page, site, LINK);
  await page.getByRole('button', { name: 'Export' }).click();
  const saved = async (kind: string) => {
    const download = page.waitForEvent('download');
    await page.locator('.share-more').getByRole('button', { name: kind, exact: true }).click();
    return readFileSync(await (await download).path());
  };
  const svg = (await saved('SVG')).toString();
  expect(svg).toContain('FSDP2 × 4');
  expect(svg).not.toMatch(/class=|var\(/);
  expect((await saved('PNG')).subarray(1, 4).toString()).toBe('PNG');
  const [head = '', ...rows] = (await saved('CSV')).toString().trim().split('\n');
  const columns = head.split(',');
  for (const row of rows) {
    const cells = row.split(',');
    const at = (name: string) => Number(cells[columns.indexOf(name)]);
    expect(columns.slice(columns.indexOf('weights')).reduce((sum, name) => sum + at(name), 0)).toBe(at('needed'));
  }
  const copied = async (name: string) => {
    await page.getByRole('button', { name }).click();
    await expect(page.locator('.share-more')).toContainText('Copied.');
    return page.evaluate(() => navigator.clipboard.readText());
  };
  expect(await copied('Copy as Markdown')).toMatch(/\| FSDP2 × 4 \|[\s\S]*\[Open in LLMem\]\(http/);
  expect(JSON.parse(await copied('Copy the JSON spec'))).toMatchObject({ model: 'Qwen/Qwen2.5-0.5B', parallel: { data: { kind: 'fsdp2', degree: 4 } } });
});

test('nothing is wider than a phone in any view', async ({ page, site }) => {
  await page.setViewportSize({ width: 390, height: 844 });
  await open(page, site, LINK);
  for (const name of ['Ledger', 'Timeline', 'Curves', 'Compare', 'Ranks']) {
    await view(page, name);
    await expect(page.getByRole('tab', { name })).toHaveAttribute('aria-selected', 'true');
    await expect(page.locator('#view-panel [aria-busy="true"]')).toHaveCount(0);
    expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(390);
  }
});

test('what to change and which method are estimated before they are suggested, and applied with a click', async ({ page, site }) => {
  test.setTimeout(180_000);
  await open(page, site, LINK.replace('gpus=4', 'gpus=2').replace('fsdp2', 'ddp'));
  await view(page, 'Which method');
  const advice = page.getByRole('region', { name: 'What to change' });
  await expect(advice.getByRole('button').first()).toBeVisible({ timeout: 40_000 });
  const [label = ''] = (await advice.locator('th[scope=row]').first().innerText()).split('\n');
  const before = page.url();
  await advice.getByRole('button').first().click();
  await expect(page).not.toHaveURL(before);
  await settled(page);
  expect(label).not.toBe('');
  await page.getByRole('button', { name: 'Undo' }).click();
  await expect(page).toHaveURL(before);
  await page.getByRole('button', { name: /Search every way to use 2 GPUs/ }).click();
  const found = page.getByRole('region', { name: 'Strategies that fit, fastest first' });
  await expect(page.getByRole('button', { name: 'Search again' })).toBeVisible({ timeout: 60_000 });
  await expect(found.locator('tbody tr').first()).toContainText('on the front');
  await found.getByRole('button').first().click();
  await settled(page);
  await expect(page).not.toHaveURL(before);
  await expectAccessible(page);
});
