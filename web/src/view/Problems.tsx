import { computed } from '@preact/signals';
import { fieldKeys, fields, type FieldKey } from '../choice/fields';
import { methodName, methods, type Method } from '../choice/methods';
import type { Problem } from '../core/answer';
import { choice, results } from '../store';
import { focusControl, labels, type ControlKey } from './Control';

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

/** The control that a JSON pointer into the spec belongs to. */
export function controlOf(at: string): ControlKey | undefined {
  if (at.startsWith('/model')) return 'model';
  const key = fieldKeys.find((one) => fields[one].at === at) ?? fieldKeys.find((one) => at !== '' && fields[one].at.startsWith(`${at}/`));
  const control = key && (sharedControls[key] ?? key);
  return control && labels[control] ? control : undefined;
}

/** Settings that another one's control sets along. */
const sharedControls: Partial<Record<FieldKey, FieldKey>> = { autocast: 'weights', optimizer: 'implementation' };

export function problemsAt(control: ControlKey): Problem[] {
  return problems.value.filter(({ at }) => controlOf(at) === control);
}

export function ProblemList() {
  if (problems.value.length === 0) return null;
  const asked = methods.filter((method) => results.value[method].answer);
  return (
    <section class="problems" aria-label="Problems">
      <ul>
        {problems.value.map((problem) => (
          <li key={problem.at + problem.message}>
            <Place at={problem.at} /> {problem.message}
            {problem.of.length < asked.length && (
              <span class="quiet"> (only {problem.of.map((method) => methodName(method, choice.value.settings)).join(', ')})</span>
            )}
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
    <button type="button" class="plain" onClick={() => focusControl(control)} aria-label={`Go to the control for ${at}`}>
      <code>{at}</code>
    </button>
  );
}
