import { computed } from '@preact/signals';
import { fieldKeys, fields, type FieldKey } from '../choice/fields';
import { methods, type Method } from '../choice/methods';
import type { Problem } from '../core/answer';
import { results } from '../store';
import { problems as text } from '../text/page';
import { focusControl, label, type ControlKey } from './Control';

interface Shown extends Problem {
  of: Method[];
}

/** Every problem the core found, each once, with the methods it concerns. */
const problems = computed<Shown[]>(() => {
  const found = new Map<string, Shown>();
  for (const method of methods) {
    const { answer } = results.value[method];
    for (const problem of answer?.kind === 'problems' ? answer.problems : []) {
      const same = `${problem.at} ${problem.message}`;
      const known = found.get(same);
      if (known) known.of.push(method);
      else found.set(same, { ...problem, of: [method] });
    }
  }
  return [...found.values()];
});

/** How many methods were asked and have been answered. */
const answered = computed(() => methods.filter((method) => results.value[method].answer).length);

/** Those that no method is without: the recipe itself is wrong. What only some methods cannot do is said at their bars. */
const common = computed(() => problems.value.filter(({ of }) => of.length === answered.value));

/** The control that a JSON pointer into the spec belongs to. */
export function controlOf(at: string): ControlKey | undefined {
  if (at.startsWith('/model')) return 'model';
  const exact = fieldKeys.find((one) => one !== 'data' && fields[one].at === at);
  const within = fieldKeys.find((one) => one !== 'data' && at.startsWith(`${fields[one].at}/`));
  const around = fieldKeys.find((one) => at !== '' && fields[one].at.startsWith(`${at}/`));
  const key = exact ?? within ?? around;
  return key && (sharedControls[key] ?? key);
}

/** A setting that the page works out for most methods: its control is the number of GPUs. */
const sharedControls: Partial<Record<FieldKey, FieldKey>> = { kind: 'data' };

export function problemsAt(control: ControlKey): Problem[] {
  return common.value.filter(({ at }) => controlOf(at) === control);
}

export function ProblemList() {
  if (common.value.length === 0) return null;
  return (
    <section class="problems" aria-label={text.name}>
      <ul>
        {common.value.map((problem) => (
          <li key={problem.at + problem.message}>
            <Place at={problem.at} /> {problem.message}
          </li>
        ))}
      </ul>
    </section>
  );
}

/** A JSON pointer, as a button to the control it belongs to where there is one. */
export function Place({ at }: { at: string }) {
  const control = controlOf(at);
  if (at === '') return null;
  if (!control) return <code>{at}</code>;
  return (
    <button type="button" class="plain" onClick={() => focusControl(control)} aria-label={text.go(at)} title={label(control)}>
      <code>{at}</code>
    </button>
  );
}
