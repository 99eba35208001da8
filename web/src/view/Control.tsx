import { signal, useSignal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { DESCRIBED, field, settingText, unmet, withSetting, type FieldKey, type Settings } from '../choice/fields';
import { gpus } from '../gpus';
import { changeSettings, choice } from '../store';
import { names, needs } from '../text/names';
import { inputs } from '../text/page';
import { problemsAt } from './Problems';

export type ControlKey = FieldKey | 'model';

export function label(key: ControlKey): string {
  return key === 'model' ? inputs.model : names[key];
}

export function controlId(key: ControlKey): string {
  return `control-${key}`;
}

/** What is folded away is loaded when it is first opened. */
export const allSettingsOpen = signal(false);

/** Opens whatever is folded around a control and puts the focus on it. */
export function focusControl(key: ControlKey): void {
  if (reveal(key)) return;
  allSettingsOpen.value = true;
  const observer = new MutationObserver(() => {
    if (reveal(key)) observer.disconnect();
  });
  observer.observe(document.body, { subtree: true, childList: true });
}

function reveal(key: ControlKey): boolean {
  const control = document.getElementById(controlId(key));
  for (let around = control?.closest('details'); around; around = around.parentElement?.closest('details')) around.open = true;
  control?.focus();
  return control !== null;
}

/** The words behind the “?”, which come with the first one that is opened. */
const helpTexts = signal<Record<FieldKey, string> | undefined>(undefined);
export const loadHelp = () => void import('../text/help').then(({ help }) => (helpTexts.value = help));

interface ControlProps {
  of: ControlKey;
  fault?: string | undefined;
  children: ComponentChildren;
}

/** A control with its label, its help behind a “?”, and what is wrong with its value. */
export function Control({ of, fault, children }: ControlProps) {
  const open = useSignal(false);
  const messages = [...(fault ? [fault] : []), ...problemsAt(of).map(({ message }) => message)];
  const idle = of === 'model' ? undefined : unmet(of, choice.value.settings);
  return (
    <div class={idle ? 'control idle' : 'control'}>
      <div class="label">
        <label for={controlId(of)}>{label(of)}</label>
        <button
          type="button"
          class="help"
          aria-expanded={open.value}
          aria-controls={`${controlId(of)}-help`}
          aria-label={inputs.about(label(of))}
          onClick={() => {
            loadHelp();
            open.value = !open.value;
          }}
        >
          ?
        </button>
      </div>
      {children}
      <p class="quiet" id={`${controlId(of)}-help`} hidden={!open.value}>
        {open.value && (of === 'model' ? inputs.modelHelp : helpTexts.value?.[of])}
      </p>
      {idle && <p class="quiet">{needs[idle]}</p>}
      <div id={`${controlId(of)}-fault`}>
        {messages.map((message) => (
          <p class="fault" key={message}>
            {message}
          </p>
        ))}
      </div>
    </div>
  );
}

/** The control that a setting's kind asks for: chosen from a few, or typed. */
export function SettingControl({ of }: { of: FieldKey }) {
  const { values, fallback } = field(of);
  if (of === 'gpu') return <GpuControl />;
  return values ? <SelectControl of={of} /> : <TextControl of={of} empty={fallback === null || fallback === '' ? 'none' : undefined} />;
}

/** A setting that is typed. A text that does not read stays as it is; the last good value is used on. `empty`: what no text means. */
export function TextControl({ of, empty }: { of: FieldKey; empty?: string | undefined }) {
  const draft = useSignal<string | null>(null);
  const { settings } = choice.value;
  const text = shown(settings, of);
  const fault = draft.value === null ? undefined : inputs.unread(draft.value, field(of).expected, text);
  const type = (typed: string) => {
    const changed = withSetting(settings, of, typed.trim() === '' && empty ? empty : typed.trim());
    draft.value = changed ? null : typed;
    if (changed) changeSettings({ [of]: changed[of] });
  };
  return (
    <Control of={of} fault={fault}>
      <input
        id={controlId(of)}
        type="text"
        inputMode={typeof field(of).fallback === 'number' ? 'decimal' : 'text'}
        autocomplete="off"
        spellcheck={false}
        value={draft.value ?? text}
        placeholder={empty}
        aria-invalid={fault !== undefined || problemsAt(of).length > 0}
        aria-describedby={`${controlId(of)}-fault`}
        onInput={(event) => type(event.currentTarget.value)}
      />
    </Control>
  );
}

function shown(settings: Settings, key: FieldKey): string {
  const text = settingText(settings, key);
  return text === 'none' ? '' : text;
}

interface Option {
  value: string;
  name: string;
  disabled?: boolean;
}

const YES_NO: Record<string, string> = { true: 'yes', false: 'no' };
const SEGMENTS: Record<string, string> = { true: 'expandable', false: 'PyTorch’s default' };
const OPTIONS: Partial<Record<FieldKey, Record<string, string>>> = {
  expandable_segments: SEGMENTS,
  checkpointing: {
    full: 'full: each layer again in backward',
    full_reentrant: 'full, reentrant',
    selective: 'selective: products kept',
    every: 'every n-th layer',
  },
  bits: { none: 'its own precision', '4': '4 bits', '8': '8 bits' },
  data: { best: 'the best' },
};

/** A setting that is chosen from a few. */
export function SelectControl({ of }: { of: FieldKey }) {
  const words = OPTIONS[of] ?? YES_NO;
  return <OptionsControl of={of} options={(field(of).values ?? []).map((value) => ({ value, name: words[value] ?? value }))} />;
}

function GpuControl() {
  const named = gpus.map(({ id, name, unsupported }) => ({ value: id, name: unsupported ? inputs.notYet(name) : name, disabled: unsupported }));
  return <OptionsControl of="gpu" options={[...named, { value: DESCRIBED, name: inputs.described }]} />;
}

function OptionsControl({ of, options }: { of: FieldKey; options: readonly Option[] }) {
  const { settings } = choice.value;
  return (
    <Control of={of}>
      <Select
        id={controlId(of)}
        options={options}
        value={settingText(settings, of)}
        invalid={problemsAt(of).length > 0}
        onChange={(value) => {
          const changed = withSetting(settings, of, value);
          if (changed) changeSettings({ [of]: changed[of] });
        }}
      />
    </Control>
  );
}

interface SelectProps {
  id: string;
  options: readonly Option[];
  value: string;
  invalid: boolean;
  onChange: (value: string) => void;
}

export function Select({ id, options, value, invalid, onChange }: SelectProps) {
  const listed = options.some((option) => option.value === value);
  return (
    <select id={id} value={value} aria-invalid={invalid} aria-describedby={`${id}-fault`} onChange={(event) => onChange(event.currentTarget.value)}>
      {!listed && <option value={value}>{inputs.fromLink(value)}</option>}
      {options.map((option) => (
        <option key={option.value} value={option.value} disabled={option.disabled}>
          {option.name}
        </option>
      ))}
    </select>
  );
}
