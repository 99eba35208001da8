import { useComputed, useSignal } from '@preact/signals';
import { modelName } from '../choice/choice';
import { changeModel, choice } from '../store';
import { loadPresetIndex, presetIndex, search, type Preset } from '../presets';
import { picker as text } from '../text/page';
import { Control, controlId } from './Control';
import { parameterCount } from './format';
import { problemsAt } from './Problems';

const SHOWN = 60; // options at once; more are found by typing
const LIST = 'model-list';

/** A combobox over the presets (ARIA 1.2): type to search by name, family or size; arrows, Enter and Escape as everywhere. */
export function ModelPicker() {
  const query = useSignal<string | null>(null); // null: closed, and the field shows what is chosen
  const active = useSignal(0);
  const found = useComputed(() => (presetIndex.value.state === 'ready' ? search(presetIndex.value.presets, query.value ?? '') : []));
  const options = found.value.slice(0, SHOWN);
  const open = query.value !== null;

  const show = (text: string) => {
    query.value = text;
    active.value = 0;
    void loadPresetIndex();
  };
  const choose = (preset: Preset | undefined) => {
    if (!preset || preset.unsupported) return;
    query.value = null;
    changeModel({ kind: 'preset', id: preset.id });
  };
  const move = (to: number) => {
    active.value = Math.max(0, Math.min(options.length - 1, to));
    document.getElementById(optionId(active.value))?.scrollIntoView({ block: 'nearest' });
  };
  const press = (event: KeyboardEvent) => {
    const keys: Record<string, () => void> = {
      ArrowDown: () => (open ? move(active.value + 1) : show('')),
      ArrowUp: () => (open ? move(active.value - 1) : show('')),
      PageDown: () => move(active.value + 8),
      PageUp: () => move(active.value - 8),
      Enter: () => choose(query.value?.trim() || active.value > 0 ? options[active.value] : undefined),
      Escape: () => (query.value = null),
    };
    const act = keys[event.key];
    if (!act || (!open && event.key === 'Escape')) return;
    event.preventDefault();
    act();
  };

  return (
    <Control of="model">
      <div class="combobox">
        <input
          id={controlId('model')}
          role="combobox"
          type="text"
          autocomplete="off"
          spellcheck={false}
          aria-autocomplete="list"
          aria-expanded={open}
          aria-controls={LIST}
          aria-activedescendant={open && options.length > 0 ? optionId(active.value) : undefined}
          aria-invalid={problemsAt('model').length > 0}
          aria-describedby={`${controlId('model')}-fault`}
          value={query.value ?? modelName(choice.value.model)}
          onFocus={(event) => {
            event.currentTarget.select();
            void loadPresetIndex();
          }}
          onClick={() => open || show('')}
          onInput={(event) => show(event.currentTarget.value)}
          onKeyDown={press}
          onBlur={() => (query.value = null)}
        />
        <ul id={LIST} role="listbox" aria-label={text.list} hidden={!open || options.length === 0}>
          {open &&
            options.map((preset, index) => (
              <Option key={preset.id} preset={preset} index={index} active={index === active.value} onChoose={() => choose(preset)} />
            ))}
        </ul>
        <p class="quiet beneath" role="status" hidden={!open}>
          {open && <SearchStatus found={found.value.length} />}
        </p>
      </div>
    </Control>
  );
}

function Option({ preset, index, active, onChoose }: { preset: Preset; index: number; active: boolean; onChoose: () => void }) {
  return (
    <li
      id={optionId(index)}
      role="option"
      aria-selected={active}
      aria-disabled={preset.unsupported !== undefined}
      title={preset.unsupported}
      // Before blur, which would close the list under the pointer.
      onMouseDown={(event) => {
        event.preventDefault();
        onChoose();
      }}
    >
      <span>{preset.id}</span>
      <span class="quiet">{preset.unsupported ? text.notYet(preset.type) : size(preset)}</span>
    </li>
  );
}

function SearchStatus({ found }: { found: number }) {
  const { state } = presetIndex.value;
  if (state === 'failed') return <>{text.failed}</>;
  if (state !== 'ready') return <>{text.loading}</>;
  if (found === 0) return <>{text.none}</>;
  return <>{found > SHOWN ? text.more(found - SHOWN) : text.found(found)}</>;
}

function size({ parameters, type }: Preset): string {
  return parameters === null ? type : `${type} · ${parameterCount(parameters)}`;
}

function optionId(index: number): string {
  return `${LIST}-${index}`;
}
