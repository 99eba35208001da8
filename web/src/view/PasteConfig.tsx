import { useComputed, useSignal, useSignalEffect } from '@preact/signals';
import { modelName, type JsonObject } from '../choice/choice';
import type * as Pasted from '../choice/pasted';
import { changeModel, choice } from '../store';
import { paste as words } from '../text/page';
import { problemsAt } from './Problems';

const ID = 'pasted-config';

/** Any other model, by its config.json. The text is never touched; what is wrong with it is listed with its place. */
export function PasteConfig() {
  const text = useSignal('');
  const reader = useSignal<typeof Pasted | null>(null); // loaded when it is first needed
  const read = useComputed(() => (text.value === '' ? null : (reader.value?.readPasted(text.value) ?? null)));
  const load = () => void import('../choice/pasted').then((module) => (reader.value = module));

  // A model that came pasted in the link stands in the text, so that it can be read and changed.
  useSignalEffect(() => {
    const { model } = choice.value;
    if (model.kind !== 'pasted' || JSON.stringify(read.peek()?.config) === JSON.stringify(model.config)) return;
    text.value = JSON.stringify(model.config, null, 2);
    load();
  });
  useSignalEffect(() => {
    const config = read.value?.config;
    if (config && JSON.stringify(config) !== pastedBefore()) changeModel({ kind: 'pasted', name: nameOf(config), config });
  });

  return (
    <details class="more" onToggle={load} open={choice.value.model.kind === 'pasted'}>
      <summary>{words.title}</summary>
      <label class="quiet" for={ID}>
        {words.label}
        <code>model.config.to_json_string()</code>
      </label>
      <textarea
        id={ID}
        rows={10}
        spellcheck={false}
        autocomplete="off"
        placeholder={'{\n  "model_type": "llama",\n  "hidden_size": 4096,\n  …'}
        value={text.value}
        aria-invalid={(read.value?.faults.length ?? 0) > 0}
        aria-describedby={`${ID}-faults`}
        onInput={(event) => {
          load();
          text.value = event.currentTarget.value;
        }}
      />
      <div id={`${ID}-faults`} aria-live="polite">
        {read.value && <Faults read={read.value} />}
        {choice.value.model.kind === 'pasted' && read.value && reader.value && <CoreFaults text={text.value} read={read.value} reader={reader.value} />}
      </div>
    </details>
  );
}

function Faults({ read }: { read: Pasted.PastedConfig }) {
  if (read.faults.length === 0) return null;
  return (
    <>
      <p class="fault">{words.notYet(modelName(choice.value.model))}</p>
      <ul class="faults">
        {read.faults.map((fault) => (
          <FaultLine key={`${fault.line}:${fault.column}`} {...fault} />
        ))}
      </ul>
    </>
  );
}

/** What the core says of the config, at its place in the text. */
function CoreFaults({ text, read, reader }: { text: string; read: Pasted.PastedConfig; reader: typeof Pasted }) {
  const prefix = '/model/config';
  const problems = problemsAt('model').filter(({ at }) => at.startsWith(prefix));
  if (problems.length === 0 || !read.config) return null;
  return (
    <ul class="faults">
      {problems.map(({ at, message }) => (
        <FaultLine key={at + message} {...reader.placeOf(text, read.places, at.slice(prefix.length))} message={message} />
      ))}
    </ul>
  );
}

function FaultLine({ line, column, message }: Pasted.Fault) {
  return (
    <li>
      <button type="button" class="plain" onClick={() => goTo(line, column)}>
        {words.place(line, column)}
      </button>
      : {message}
    </li>
  );
}

function goTo(line: number, column: number): void {
  const area = document.getElementById(ID) as HTMLTextAreaElement | null;
  if (!area) return;
  const offset = area.value.split('\n').slice(0, line - 1).join('\n').length + (line > 1 ? 1 : 0) + column - 1;
  area.focus();
  area.setSelectionRange(offset, offset + 1);
}

function pastedBefore(): string {
  const { model } = choice.peek();
  return model.kind === 'pasted' ? JSON.stringify(model.config) : '';
}

function nameOf(config: JsonObject): string {
  const { _name_or_path: path, model_type: type } = config;
  if (typeof path === 'string' && path !== '') return path;
  return typeof type === 'string' ? words.pasted(type) : words.model;
}
