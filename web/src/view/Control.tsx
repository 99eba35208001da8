import { useSignal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { fields, settingText, withSetting, type FieldKey, type Settings } from '../choice/fields';
import { changeSettings, choice } from '../store';
import { problemsAt } from './Problems';

export type ControlKey = FieldKey | 'model';

/** The name of each control, at the control and where something refers to it. */
export const labels: Partial<Record<ControlKey, string>> = {
  model: 'Model',
  method: 'Method',
  weights: 'Precision',
  micro_batch: 'Micro-batch',
  sequence: 'Sequence',
  checkpointing: 'Checkpointing',
  implementation: 'AdamW',
  attention: 'Attention',
  accumulation: 'Accumulation',
  max_grad_norm: 'Clip norm',
  expandable_segments: 'Allocator segments',
  gpu: 'GPU',
  gpus: 'Number of GPUs',
  gpus_per_node: 'GPUs per node',
};

export function controlId(key: ControlKey): string {
  return `control-${key}`;
}

/** Opens whatever is folded around a control and puts the focus on it. */
export function focusControl(key: ControlKey): void {
  const control = document.getElementById(controlId(key));
  for (let around = control?.closest('details'); around; around = around.parentElement?.closest('details')) around.open = true;
  control?.focus();
}

interface ControlProps {
  of: ControlKey;
  help: string;
  fault?: string | undefined;
  children: ComponentChildren;
}

/** A control with its label, its help behind a “?”, and what is wrong with its value. */
export function Control({ of, help, fault, children }: ControlProps) {
  const open = useSignal(false);
  const messages = [...(fault ? [fault] : []), ...problemsAt(of).map(({ message }) => message)];
  return (
    <div class="control">
      <div class="label">
        <label for={controlId(of)}>{labels[of]}</label>
        <button
          type="button"
          class="help"
          aria-expanded={open.value}
          aria-controls={`${controlId(of)}-help`}
          aria-label={`About ${labels[of]}`}
          onClick={() => (open.value = !open.value)}
        >
          ?
        </button>
      </div>
      {children}
      <p class="quiet" id={`${controlId(of)}-help`} hidden={!open.value}>
        {help}
      </p>
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

/** A setting that is typed. A text that does not read stays as it is; the last good value is used on. */
export function NumberControl({ of, help, placeholder }: { of: FieldKey; help: string; placeholder?: string }) {
  const draft = useSignal<string | null>(null);
  const { settings } = choice.value;
  const text = shown(settings, of);
  const fault = draft.value === null ? undefined : `“${draft.value}” is not ${fields[of].expected}. The answer still uses ${text || 'none'}.`;
  const type = (typed: string) => {
    const changed = withSetting(settings, of, typed.trim() === '' && placeholder ? 'none' : typed.trim());
    draft.value = changed ? null : typed;
    if (changed) changeSettings({ [of]: changed[of] });
  };
  return (
    <Control of={of} help={help} fault={fault}>
      <input
        id={controlId(of)}
        type="text"
        inputMode="decimal"
        autocomplete="off"
        value={draft.value ?? text}
        placeholder={placeholder}
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

/** A setting that is chosen from a few. */
export function SelectControl({ of, help, options }: { of: FieldKey; help: string; options: readonly Option[] }) {
  const { settings } = choice.value;
  return (
    <Control of={of} help={help}>
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
      {!listed && <option value={value}>{value} (from the link)</option>}
      {options.map((option) => (
        <option key={option.value} value={option.value} disabled={option.disabled}>
          {option.name}
        </option>
      ))}
    </select>
  );
}
