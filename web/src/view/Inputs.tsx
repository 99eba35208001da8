import type { ComponentChildren } from 'preact';
import { modelName } from '../choice/choice';
import { fieldKeys, fields, type Settings } from '../choice/fields';
import { best, changeSettings, choice, results } from '../store';
import { names } from '../text/names';
import { inputs as text } from '../text/page';
import { clusterInWords, precisionInWords, precisions, recipeInWords, recipeNames, recipeOf, settingsInWords, type Recipe } from './asked';
import { allSettingsOpen, Control, controlId, Select, SettingControl } from './Control';
import { parameterCount } from './format';
import { Lazy } from './Lazy';
import { ModelPicker } from './ModelPicker';
import { PasteConfig } from './PasteConfig';
import { problemsAt } from './Problems';

const loadAllSettings = () => import('./AllSettings');

/** What is asked, in the order in which it matters. Folded, each part says its present value. */
export function Inputs() {
  const { model, settings } = choice.value;
  return (
    <form class="inputs" aria-label={text.name} onSubmit={(event) => event.preventDefault()}>
      <Part name={text.model} value={[modelName(model), ...modelFacts()].join(' · ')}>
        <div>
          <ModelPicker />
          <ModelFacts />
        </div>
        <PasteConfig />
      </Part>
      <Part name={text.recipe} value={recipeInWords(settings)}>
        <MethodChoice />
        {settings.method === 'lora' && (
          <div class="pair">
            <SettingControl of="lora_rank" />
            <SettingControl of="targets" />
          </div>
        )}
        <PrecisionControl />
        <SettingControl of="optimizer" />
        <div class="pair">
          <SettingControl of="micro_batch" />
          <SettingControl of="sequence" />
        </div>
        <SettingControl of="checkpointing" />
      </Part>
      <Part name={text.gpus} value={clusterInWords(settings)}>
        <SettingControl of="gpu" />
        <div class="pair">
          <SettingControl of="gpus" />
          <SettingControl of="gpus_per_node" />
        </div>
      </Part>
      <AllSettings />
    </form>
  );
}

function AllSettings() {
  const { settings } = choice.value;
  const changed = fieldKeys.some((key) => settings[key] !== fields[key].fallback);
  return (
    <details class="part all-settings" open={allSettingsOpen.value} onToggle={(event) => (allSettingsOpen.value = event.currentTarget.open)}>
      <summary onPointerEnter={() => void loadAllSettings()}>
        <h2>{text.all}</h2>
        <span class="value">{settingsInWords(settings)}</span>
      </summary>
      {allSettingsOpen.value && (
        <div class="controls groups">
          <Lazy load={loadAllSettings} with={{}} height={560} />
          {changed && (
            <button type="button" class="plain" onClick={resetSettings}>
              {text.reset}
            </button>
          )}
        </div>
      )}
    </details>
  );
}

/** All but what stands above. */
function resetSettings(): void {
  const { gpu, gpus, gpus_per_node, micro_batch, sequence, weights, method, bits, checkpointing, optimizer } = choice.value.settings;
  const kept = { gpu, gpus, gpus_per_node, micro_batch, sequence, weights, method, bits, checkpointing, optimizer };
  changeSettings({ ...Object.fromEntries(fieldKeys.map((key) => [key, fields[key].fallback])), ...kept } as Settings);
}

function Part({ name, value, children }: { name: string; value: string; children: ComponentChildren }) {
  // On a phone the answer comes first, and each part is one line until it is wanted.
  const wide = window.matchMedia('(min-width: 900px)').matches;
  return (
    <details class="part" open={wide}>
      <summary>
        <h2>{name}</h2>
        <span class="value">{value}</span>
      </summary>
      <div class="controls">{children}</div>
    </details>
  );
}

/** What the core made of the model. */
function modelFacts(): string[] {
  const answer = best.value && results.value[best.value].answer;
  if (answer?.kind !== 'report') return [];
  const { model, parameters } = answer.report;
  return [text.parameters(parameterCount(parameters.total)), text.layers(model.layers)];
}

function ModelFacts() {
  return (
    <p class="quiet">
      {modelFacts().map((fact) => `${fact} · `)}
      <a href="./models/index.html">{text.models}</a>
    </p>
  );
}

function PrecisionControl() {
  const { weights, autocast } = choice.value.settings;
  const value = `${weights}/${autocast}`;
  const options = precisions.map((one) => ({ value: `${one.weights}/${one.autocast}`, name: one.name }));
  const listed = options.some((option) => option.value === value);
  return (
    <Control of="weights">
      <Select
        id={controlId('weights')}
        options={listed ? options : [...options, { value, name: precisionInWords(choice.value.settings) }]}
        value={value}
        invalid={problemsAt('weights').length > 0}
        onChange={(picked) => {
          const chosen = precisions.find((one) => `${one.weights}/${one.autocast}` === picked);
          if (chosen) changeSettings({ weights: chosen.weights, autocast: chosen.autocast });
        }}
      />
    </Control>
  );
}

/** QLoRA as its authors trained: NF4, the scales quantised too, products in bf16. */
const recipes: Record<Recipe, Partial<Settings>> = {
  full: { method: 'full', bits: 'none' },
  lora: { method: 'lora', bits: 'none' },
  qlora: { method: 'lora', bits: '4', double_quant: true, compute_dtype: 'bfloat16' },
};

function MethodChoice() {
  const chosen = recipeOf(choice.value.settings);
  return (
    <fieldset class="choice">
      <legend>{names.method}</legend>
      {(Object.keys(recipes) as Recipe[]).map((recipe) => (
        <label key={recipe}>
          <input
            type="radio"
            name="method"
            id={recipe === chosen ? controlId('method') : undefined}
            value={recipe}
            checked={recipe === chosen}
            onChange={() => changeSettings(recipes[recipe])}
          />{' '}
          {recipeNames[recipe]}
        </label>
      ))}
    </fieldset>
  );
}
