import type { Page } from '@playwright/test';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { expect, expectAccessible, open, settled, test } from './fixtures';

// Coming from files, and going to them: as someone does it, by dropping, choosing or pasting.

const LINK = '#v=1&model=meta-llama/Llama-3.1-8B&gpu=h100-sxm-80gb&gpus=8';
const file = (name: string) => join(__dirname, '../cases', name);
const panel = (page: Page) => page.locator('section.from-file');

async function openPanel(page: Page): Promise<void> {
  await page.getByRole('button', { name: 'From a file' }).click();
  await expect(panel(page).getByRole('heading', { name: 'From a file' })).toBeFocused();
}

test('a chosen file fills the form, lists its lines, and can be undone', async ({ page, site }) => {
  await open(page, site, LINK);
  await openPanel(page);
  await page.getByLabel('Choose files').setInputFiles(file('r13_torchtune_8b_single.yaml'));
  await expect(panel(page)).toContainText('The form is filled.');
  await expect(page.getByLabel('Optimizer', { exact: true })).toHaveValue('paged_adamw_8bit');
  await expect(page.getByLabel('Micro-batch', { exact: true })).toHaveValue('2');
  await expect(panel(page).locator('tr', { hasText: 'optimizer_in_bwd' })).toContainText('no gradients are stored');
  await expect(panel(page).locator('tr', { hasText: 'enable_activation_checkpointing' })).toContainText('28');
  await expect(panel(page).locator('.asked')).toContainText('Sequence');
  await settled(page);
  await expectAccessible(page);
  await panel(page).locator('.asked').getByRole('button', { name: 'Sequence' }).click();
  await expect(page.getByLabel('Sequence', { exact: true })).toBeFocused();
  await panel(page).getByRole('button', { name: 'Undo: as it was before' }).click();
  await expect(page.getByLabel('Optimizer', { exact: true })).toHaveValue('adamw');
  await expect(page.getByLabel('Micro-batch', { exact: true })).toHaveValue('1');
});

test('a pasted text is read as it is typed, and only its own lines are shown when asked', async ({ page, site }) => {
  await open(page, site, LINK);
  await openPanel(page);
  await page.getByLabel('or paste its text').fill(readFileSync(file('r08_accelerate_ds_stage2_offload.yaml'), 'utf8'));
  await expect(panel(page).getByRole('heading', { name: 'accelerate YAML' })).toBeVisible();
  await expect(page).toHaveURL(/data=zero2/);
  await panel(page)
    .getByRole('button', { name: /^\d+ ignored$/ })
    .click();
  await expect(panel(page).locator('tbody .status')).toContainText(
    Array(await panel(page).locator('tbody .status').count()).fill('ignored'),
  );
  await expect(panel(page)).toContainText('offload of parameters works with ZeRO-3 only');
});

test('files dropped anywhere are read together', async ({ page, site }) => {
  await open(page, site, LINK);
  const texts = ['r15_trl_sft_packed_64k.yaml', 'r05_deepspeed_z3_offload_auto.json'].map((name) => ({
    name,
    text: readFileSync(file(name), 'utf8'),
  }));
  await page.evaluate((given) => {
    const data = new DataTransfer();
    for (const { name, text } of given) data.items.add(new File([text], name));
    document.body.dispatchEvent(new DragEvent('drop', { dataTransfer: data, bubbles: true, cancelable: true }));
  }, texts);
  await expect(panel(page).getByRole('heading', { level: 3 })).toHaveText([
    'r15_trl_sft_packed_64k.yaml: TRL configuration',
    'r05_deepspeed_z3_offload_auto.json: DeepSpeed JSON',
  ]);
  await expect(page.getByLabel('Sequence', { exact: true })).toHaveValue('65536');
});

test('what is wrong is named with its place; a file of another kind changes nothing', async ({ page, site }) => {
  await open(page, site, LINK);
  await openPanel(page);
  const text = page.getByLabel('or paste its text');
  await text.fill('base_model: meta-llama/Llama-3.1-8B\nmicro_batch_size: many\nsequence_len: 512\n');
  await expect(panel(page).locator('.fault')).toHaveText('Line 2: micro_batch_size must be a whole number from 1, not many');
  await expect(page.getByLabel('Sequence', { exact: true })).toHaveValue('512');
  await text.fill('<script>document.title = "ran"</script><img src=x onerror="document.title=\'ran\'">');
  await expect(panel(page)).toContainText('could not be read');
  await expect(page.getByLabel('Sequence', { exact: true })).toHaveValue('512');
  expect(await page.title()).not.toBe('ran');
  await text.fill(`a: ${'['.repeat(100_000)}`);
  await expect(panel(page)).toContainText('Nested too deep');
  await text.fill('base_model: "<b>x</b>"\nmicro_batch_size: 1\n"<img src=x onerror=alert(1)>": 2\n');
  await expect(panel(page).locator('tr', { hasText: '<img src=x' })).toContainText('it may matter');
});

test('an out-of-memory message is explained with its numbers, beside the estimate', async ({ page, site }) => {
  await open(page, site, LINK);
  await openPanel(page);
  await page
    .getByLabel('or paste its text')
    .fill(
      'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.30 GiB is free. Process 7 has 10.00 GiB memory in use. Including non-PyTorch memory, this process has 67.80 GiB memory in use. Of the allocated memory 60.01 GiB is allocated by PyTorch, and 6.30 GiB is reserved by PyTorch but unallocated.',
    );
  await expect(panel(page).getByRole('heading', { name: 'GPU 0 had no room for 2.00 GiB' })).toBeVisible();
  await expect(panel(page)).toContainText('Fragmentation: PyTorch held 6.30 GiB that no tensor used');
  await expect(panel(page)).toContainText('Process 7 held 10.00 GiB');
  await expect(panel(page).locator('tr', { hasText: 'Allocated by PyTorch' }).last()).toContainText('62.0');
  await expectAccessible(page);
});

test('a memory snapshot stands beside the estimate, category by category', async ({ page, site }) => {
  await open(page, site, LINK);
  await openPanel(page);
  const packed = readFileSync(join(__dirname, '../data/snapshot.pickle.gz'));
  for (const [name, buffer] of [
    ['run.pickle', gunzipSync(packed)],
    ['run.pickle.gz', packed],
  ] as const) {
    await page.getByLabel('Choose files').setInputFiles({ name, mimeType: 'application/octet-stream', buffer });
    await expect(panel(page).getByRole('heading', { name: `${name}: GPU 0` })).toBeVisible();
    await expect(panel(page)).toContainText('Replayed from 2,022 events');
    await expect(panel(page).locator('tr', { hasText: 'Optimizer states' }).locator('td').first()).toHaveAttribute(
      'title',
      '562,176 bytes',
    );
    await panel(page).getByRole('button', { name: 'Optimizer states' }).click();
    await expect(panel(page)).toContainText('_init_group (optim/adam.py');
  }
  await expectAccessible(page);
  await page
    .getByLabel('Choose files')
    .setInputFiles({ name: 'evil.pickle', mimeType: 'application/octet-stream', buffer: Buffer.from("cos\nsystem\n(S'echo gotcha'\ntR.") });
  await expect(panel(page).locator('.fault')).toContainText('GLOBAL: the pickle wants Python to make an object');
});

test('the method in detail as a configuration with its launch command', async ({ page, site, context }) => {
  await context.grantPermissions(['clipboard-read', 'clipboard-write']);
  await open(page, site, `${LINK}&data=fsdp2&micro_batch=2`);
  await page.getByRole('button', { name: 'Launch command' }).click();
  const out = page.locator('.to-file');
  await out.getByRole('button', { name: 'Copy the command' }).click();
  expect(await page.evaluate(() => navigator.clipboard.readText())).toBe(
    'accelerate launch --config_file accelerate.yaml -m trl.scripts.sft --config sft.yaml',
  );
  await expect(out.getByLabel('accelerate.yaml')).toHaveValue(/fsdp_version: 2/);
  await expect(out.getByLabel('sft.yaml')).toHaveValue(/per_device_train_batch_size: 2/);
  const download = page.waitForEvent('download');
  await out.getByRole('link', { name: 'Download accelerate.yaml' }).click();
  expect((await download).suggestedFilename()).toBe('accelerate.yaml');
  await out.getByRole('combobox').selectOption('torchtitan');
  await expect(out.getByLabel('torchtitan.toml')).toHaveValue(/flavor = "8B"/);
  await out.getByRole('combobox').selectOption('deepspeed');
  await expect(out).toContainText('DeepSpeed does not do fsdp2.');
  await expectAccessible(page);
});

test('nothing of it is loaded before it is wanted', async ({ page, site }) => {
  const asked: string[] = [];
  page.on('request', (request) => asked.push(request.url()));
  await open(page, site, LINK);
  expect(asked.filter((url) => /FromFile|ToFile|files-|yaml|snapshot/i.test(url))).toEqual([]);
});
