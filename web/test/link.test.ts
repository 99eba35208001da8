import { describe, expect, it } from 'vitest';
import published from '../../tests/browser/links.json';
import frozen from './defaults-v1.json';
import { arrival, modelName } from '../src/choice/choice';
import { defaultSettings, field, fieldKeys, settingText } from '../src/choice/fields';
import { readLink, writeLink } from '../src/choice/link';
import { randomSettings } from './random';

describe('every link form that was ever published', () => {
  it.each(published)('$what', async ({ link, model, settings, complaints, canonical, config }) => {
    const read = await readLink(link);
    expect(modelName(read.choice.model)).toBe(model);
    expect(read.choice.settings).toEqual({ ...defaultSettings(), ...settings });
    if (config) expect(read.choice.model).toMatchObject({ kind: 'pasted', config });
    for (const complaint of complaints) expect(read.complaints.join('\n')).toContain(complaint);
    expect(read.complaints).toHaveLength(complaints.length);
    if (canonical) expect(await writeLink(read.choice)).toBe(link);
  });

  it.each(published)('is written so that it reads the same: $what', async ({ link }) => {
    const { choice } = await readLink(link);
    expect(await readLink(await writeLink(choice))).toEqual({ choice, complaints: [] });
  });
});

it('the defaults of version 1 are frozen', () => {
  expect(defaultSettings()).toEqual(frozen);
});

it('no link is what someone sees on arrival', async () => {
  expect(await readLink('')).toEqual({ choice: arrival(), complaints: [] });
});

it('a link that would unpack to very much is refused', async () => {
  const choice = { ...arrival(), model: { kind: 'pasted' as const, name: 'bomb', config: { a: 'x'.repeat(2_000_000) } } };
  const { complaints } = await readLink(await writeLink(choice));
  expect(complaints.join()).toContain('damaged');
});

it('a name with anything in it survives', async () => {
  const choice = { ...arrival(), model: { kind: 'preset' as const, id: 'a&b=c#d %é+"/x' } };
  expect((await readLink(await writeLink(choice))).choice).toEqual(choice);
});

it('any state is the same after a link', async () => {
  for (const settings of randomSettings(200)) {
    const choice = { ...arrival(), settings };
    expect(await readLink(await writeLink(choice))).toEqual({ choice, complaints: [] });
  }
});

it('hostile links are answered with complaints, never with an exception', async () => {
  const bad = ['<script>alert(1)</script>', '%', '__proto__', 'constructor', '-1', '1e999', '9'.repeat(400), 'NaN', '', 'null', '{}', '🙂'];
  for (const key of [...fieldKeys, '__proto__', 'toString', 'v', 'z', 'model']) {
    for (const value of bad) {
      const { choice } = await readLink(`#v=1&model=a/b&gpu=h100-sxm-80gb&gpus=8&${key}=${value}`);
      expect(Object.keys(choice.settings)).toEqual(fieldKeys);
      expect(fieldKeys.filter((one) => field(one).read(settingText(choice.settings, one)) !== choice.settings[one])).toEqual([]);
    }
  }
});
