import type { Page } from '@playwright/test';
import { expect, expectAccessible, settled, test } from './fixtures';

// axe over the states that a page can be in, each on a dark phone and a light desktop; those of the first view, of files and of the embed are in their own files.

const LINK = '#v=1&model=Qwen/Qwen2.5-0.5B&gpu=rtx-4090&gpus=4&data=fsdp2';

const tab = (page: Page, name: string) => page.getByRole('tab', { name }).click();

const states: Record<string, { link?: string; reach(page: Page): Promise<void> }> = {
  'the stages of a pipeline': {
    link: LINK.replace('fsdp2', 'pipeline'),
    reach: async (page) => {
      await tab(page, 'Ranks');
      await expect(page.getByText(/Stage \d needs most and decides/)).toBeVisible({ timeout: 20_000 });
    },
  },
  'ranks that do not differ': {
    reach: async (page) => {
      await tab(page, 'Ranks');
      await expect(page.locator('#view-panel')).toContainText(/rank/i);
    },
  },
  'a method that is refused': {
    link: '#v=1&model=Qwen/Qwen2.5-0.5B&gpu=rtx-4090&gpus=4&data=fsdp2&loop=trainer',
    reach: (page) => expect(page.locator('#details-title')).toContainText('has no estimate here'),
  },
  'everything refused': {
    link: '#v=1&model=Qwen/Qwen2.5-0.5B&gpu=rtx-4090&gpus=4&sequence=999999999',
    reach: (page) => expect(page.locator('.problems, .verdict .status-does_not_fit').first()).toBeVisible(),
  },
  'a link that is only partly read': {
    link: '#v=1&model=Qwen/Qwen2.5-0.5B&gpu=rtx-4090&gpus=none&colour=red',
    reach: (page) => expect(page.getByText('Not everything in this link could be used:')).toBeVisible(),
  },
  'nothing fits': {
    link: '#v=1&model=meta-llama/Llama-3.1-70B&gpu=rtx-4090&gpus=2',
    reach: async (page) => {
      await expect(page.locator('.verdict .status-does_not_fit')).toBeVisible({ timeout: 20_000 });
      await tab(page, 'Which method');
      await expect(page.locator('#view-panel')).not.toHaveText('');
    },
  },
  'the files to go to, and the exports': {
    reach: async (page) => {
      await page.getByRole('button', { name: 'Export' }).click();
      await expect(page.getByRole('button', { name: /SVG/ }).first()).toBeVisible();
    },
  },
  'the list of models': {
    reach: async (page) => {
      const box = page.getByRole('combobox', { name: 'Model' });
      if (!(await box.isVisible())) await page.getByRole('heading', { name: 'Model' }).click(); // folded on a phone
      await box.fill('llama');
      await expect(page.getByRole('option').first()).toBeVisible();
    },
  },
};

for (const [name, { link = LINK, reach }] of Object.entries(states)) {
  for (const [width, colorScheme] of [
    [390, 'dark'],
    [1280, 'light'],
  ] as const) {
    test(`axe finds nothing: ${name}, ${colorScheme}, ${width} px`, async ({ page, site }) => {
      await page.setViewportSize({ width, height: 900 });
      await page.emulateMedia({ colorScheme });
      await page.goto(site.root + link);
      await settled(page);
      await reach(page);
      await expectAccessible(page);
    });
  }
}
