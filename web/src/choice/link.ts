import { arrival, modelName, type Choice, type JsonObject } from './choice';
import { defaultSettings, field, fieldKeys, fields, settingText, withSetting, type FieldKey } from './fields';
import { deflate, inflate } from './deflate';

// The part of the address after '#':
//   v=1&model=Qwen/Qwen2.5-7B&gpu=h100-sxm-80gb&gpus=8&micro_batch=4
// The version first, then the model, the GPU and their number, then what differs from the defaults. A pasted model adds z=, its
// config.json (JSON, deflate-raw, base64url). tests/browser/links.json keeps every form that was ever published.

export const LINK_VERSION = 1;
const ALWAYS: readonly FieldKey[] = ['gpu', 'gpus'];

export interface ReadLink {
  choice: Choice;
  complaints: string[]; // one for each part that could not be used
}

export async function writeLink({ model, settings }: Choice): Promise<string> {
  const defaults = defaultSettings();
  const parts = [`v=${LINK_VERSION}`, `model=${escape(modelName(model))}`];
  for (const key of [...ALWAYS, ...fieldKeys.filter((key) => !ALWAYS.includes(key))]) {
    if (ALWAYS.includes(key) || settings[key] !== defaults[key]) parts.push(`${key}=${escape(settingText(settings, key))}`);
  }
  if (model.kind === 'pasted') parts.push(`z=${await deflate(JSON.stringify(model.config))}`);
  return '#' + parts.join('&');
}

/** Never fails: a part that is wrong falls back alone and is complained of. No link at all is the arrival's choice. */
export async function readLink(hash: string): Promise<ReadLink> {
  const text = hash.replace(/^#/, '');
  if (text === '') return { choice: arrival(), complaints: [] };
  const complaints: string[] = [];
  const parts = readParts(text, complaints);
  readVersion(parts, complaints);

  let settings = { ...defaultSettings(), gpu: arrival().settings.gpu, gpus: arrival().settings.gpus };
  for (const [key, value] of parts) {
    if (['v', 'model', 'z'].includes(key)) continue;
    if (!isFieldKey(key)) {
      complaints.push(`“${key}” is not a setting this page knows; it was left out.`);
      continue;
    }
    const read = withSetting(settings, key, value);
    if (read) settings = read;
    else complaints.push(`${key}: “${value}” is not ${field(key).expected}; “${settingText(settings, key)}” is used.`);
  }
  return { choice: { model: await readModel(parts, complaints), settings }, complaints };
}

function readParts(text: string, complaints: string[]): Map<string, string> {
  const parts = new Map<string, string>();
  for (const part of text.split('&').filter(Boolean)) {
    const equals = part.indexOf('=');
    const key = equals < 0 ? part : part.slice(0, equals);
    try {
      const value = decodeURIComponent(equals < 0 ? '' : part.slice(equals + 1));
      if (parts.has(key)) complaints.push(`${key}: given twice; “${value}” is used.`);
      parts.set(key, value);
    } catch {
      complaints.push(`“${part}” is not readable as an address (a stray %); it was left out.`);
    }
  }
  return parts;
}

function readVersion(parts: Map<string, string>, complaints: string[]): void {
  const version = parts.get('v');
  if (version === undefined) complaints.push(`The link names no version; it is read as version ${LINK_VERSION}.`);
  else if (!/^\d+$/.test(version)) complaints.push(`v: “${version}” is not a version; the link is read as version ${LINK_VERSION}.`);
  else if (Number(version) > LINK_VERSION) {
    complaints.push(`This link was made by a newer version of this page (${version}; this one is ${LINK_VERSION}). What is understood of it is shown.`);
  } else if (Number(version) < 1) complaints.push(`v: there is no version ${version}; the link is read as version ${LINK_VERSION}.`);
}

async function readModel(parts: Map<string, string>, complaints: string[]): Promise<Choice['model']> {
  const named = parts.get('model');
  const packed = parts.get('z');
  if (packed !== undefined) {
    const config = await readConfig(packed);
    if (config) return { kind: 'pasted', name: named || 'pasted model', config };
    complaints.push('z: the pasted model is damaged (not deflated JSON in base64url).');
  }
  if (named) return { kind: 'preset', id: named };
  const { model } = arrival();
  complaints.push(`The link names no model; “${modelName(model)}” is used.`);
  return model;
}

async function readConfig(packed: string): Promise<JsonObject | undefined> {
  try {
    const config: unknown = JSON.parse(await inflate(packed));
    return typeof config === 'object' && config !== null && !Array.isArray(config) ? (config as JsonObject) : undefined;
  } catch {
    return undefined;
  }
}

function isFieldKey(key: string): key is FieldKey {
  return Object.hasOwn(fields, key);
}

/** Like encodeURIComponent, but what is readable and harmless after a '#' stays readable. */
function escape(text: string): string {
  return encodeURIComponent(text).replace(/%(2F|3A|40|2C)/g, decodeURIComponent);
}
