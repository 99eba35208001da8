import { ARRIVAL, expect, open, settled, test, verdict } from './fixtures';
import type { Page } from '@playwright/test';

const tiny = {
  architectures: ['LlamaForCausalLM'],
  model_type: 'llama',
  hidden_size: 256,
  intermediate_size: 688,
  num_hidden_layers: 4,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  vocab_size: 1000,
};

async function paste(page: Page, text: string): Promise<void> {
  const area = page.getByLabel(/Its text/);
  if (!(await area.isVisible())) await page.getByText('Paste a config.json', { exact: true }).click();
  await area.fill(text);
}

test('a pasted config.json is answered, and is in the link', async ({ page, site }) => {
  await open(page, site);
  await paste(page, JSON.stringify(tiny));
  await expect(page.getByRole('combobox', { name: 'Model' })).toHaveValue('pasted llama');
  await expect(page).toHaveURL(/&z=[\w-]+$/);
  await settled(page);
  const said = await verdict(page).innerText();
  expect(said).toContain('GiB');
  await page.reload();
  await settled(page);
  await expect(verdict(page)).toHaveText(said);
  await expect(page.getByLabel(/Its text/)).toHaveValue(JSON.stringify(tiny, null, 2));
});

test('a text that is no config.json stays, and every fault is listed with its place', async ({ page, site }) => {
  await open(page, site);
  const before = await verdict(page).innerText();
  const text = "{\n  'model_type': \"llama\",\n  \"hidden_size\": 256,\n  \"use_cache\": True,\n}";
  await paste(page, text);
  await expect(page.locator('.faults li')).toHaveText([
    'line 2, column 3: Text stands in double quotes: "model_type".',
    'line 4, column 16: “True” is Python; JSON writes true.',
    'line 4, column 20: A “,” may not stand before “}”.',
  ]);
  await expect(page.getByLabel(/Its text/)).toHaveValue(text);
  await expect(verdict(page)).toHaveText(before);
  await page.getByRole('button', { name: 'line 4, column 16' }).click();
  await expect(page.getByLabel(/Its text/)).toBeFocused();
  expect(await page.getByLabel(/Its text/).evaluate((area: HTMLTextAreaElement) => area.selectionStart)).toBe(text.indexOf('True'));
});

test('what the core says of a config.json stands at its place in the text', async ({ page, site }) => {
  await open(page, site);
  const text = JSON.stringify({ ...tiny, hidden_size: 'wide', num_hidden_layers: -3 }, null, 2);
  await paste(page, text);
  await expect(page.locator('.faults li')).toHaveCount(2);
  await expect(page.locator('.faults')).toContainText('line 6, column 18');
  await expect(page.locator('.faults')).toContainText('line 8, column 24');
  await expect(page.locator('.problems li')).toHaveCount(2);
  await expect(page.getByLabel(/Its text/)).toHaveValue(text);
});

test('a family that is not supported yet is said to be so, by name', async ({ page, site }) => {
  await open(page, site);
  await paste(page, JSON.stringify({ ...tiny, model_type: 'mamba' }));
  await settled(page);
  await expect(page.locator('.problems')).toContainText('mamba');
  await expect(verdict(page)).toContainText('no estimate');
});

test('every problem of a spec is shown at once, each at its control', async ({ page, site }) => {
  await open(page, site, `${ARRIVAL}&micro_batch=99999999&sequence=999999999&accumulation=99999999`);
  await expect(page.locator('.problems')).toContainText('/training/micro_batch');
  await expect(page.locator('.problems')).toContainText('/training/sequence');
  await expect(page.locator('.problems')).toContainText('/training/accumulation');
  await expect(page.locator('#control-micro_batch')).toHaveAttribute('aria-invalid', 'true');
  await expect(page.locator('#control-micro_batch-fault')).not.toBeEmpty();
  await page.getByRole('button', { name: 'Go to the control for /training/accumulation' }).click();
  await expect(page.locator('#control-accumulation')).toBeFocused();
});

test('a number that does not read keeps its text, and the answer its last good value', async ({ page, site }) => {
  await open(page, site);
  const before = await verdict(page).innerText();
  const input = page.getByLabel('Micro-batch', { exact: true });
  await input.fill('two');
  await expect(input).toHaveValue('two');
  await expect(page.locator('#control-micro_batch-fault')).toContainText('“two” is not a whole number from 1. The answer still uses 1.');
  await expect(verdict(page)).toHaveText(before);
});
