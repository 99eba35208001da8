import type { ComponentChildren } from 'preact';
import { modelName } from '../choice/choice';
import { best, changeSettings, choice, results } from '../store';
import { gpus } from '../gpus';
import { clusterInWords, precisionInWords, precisions, recipeInWords, settingsInWords } from './asked';
import { Control, controlId, labels, NumberControl, Select, SelectControl } from './Control';
import { parameterCount } from './format';
import { ModelPicker } from './ModelPicker';
import { PasteConfig } from './PasteConfig';
import { problemsAt } from './Problems';

/** What is asked, in the order in which it matters. Folded, each part says its present value. */
export function Inputs() {
  const { model, settings } = choice.value;
  return (
    <form class="inputs" aria-label="What to estimate" onSubmit={(event) => event.preventDefault()}>
      <Part name="Model" value={[modelName(model), ...modelFacts()].join(' · ')}>
        <div>
          <ModelPicker />
          <ModelFacts />
        </div>
        <PasteConfig />
      </Part>
      <Part name="Recipe" value={recipeInWords(settings)}>
        <MethodChoice />
        <PrecisionControl />
        <div class="pair">
          <NumberControl
            of="micro_batch"
            help="Rows that one GPU works on at once (per_device_train_batch_size). Activations grow with it, weights and optimizer do not."
          />
          <NumberControl of="sequence" help="Tokens in each row (max_length). Activations and logits grow with it." />
        </div>
        <SelectControl
          of="checkpointing"
          help="Full keeps only each layer’s input and runs the layer again in backward: far less memory, about a third more time (gradient_checkpointing=True)."
          options={[
            { value: 'none', name: 'none' },
            { value: 'full', name: 'full: each layer again in backward' },
          ]}
        />
        <details class="more">
          <summary>
            All settings <span class="quiet">{settingsInWords(settings)}</span>
          </summary>
          <AllSettings />
        </details>
      </Part>
      <Part name="GPUs" value={clusterInWords(settings)}>
        <GpuControls />
      </Part>
    </form>
  );
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
  return [`${parameterCount(parameters.total)} parameters`, `${model.layers} layers`];
}

function ModelFacts() {
  return <p class="quiet">{modelFacts().join(' · ')}</p>;
}

function PrecisionControl() {
  const { weights, autocast } = choice.value.settings;
  const value = `${weights}/${autocast}`;
  const options = precisions.map((one) => ({ value: `${one.weights}/${one.autocast}`, name: one.name }));
  const listed = options.some((option) => option.value === value);
  return (
    <Control
      of="weights"
      help="What weights, gradients and optimizer states are held in, and what the model computes in (torch_dtype; bf16=True is autocast). FSDP2 takes its own mixed precision in place of autocast."
    >
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

function MethodChoice() {
  return (
    <fieldset class="choice">
      <legend>{labels.method}</legend>
      <label>
        <input type="radio" name="method" id={controlId('method')} value="full" checked /> full
      </label>
      <label>
        <input type="radio" name="method" value="lora" disabled aria-describedby="why-not-lora" /> LoRA
      </label>
      <label>
        <input type="radio" name="method" value="qlora" disabled aria-describedby="why-not-lora" /> QLoRA
      </label>
      <p class="quiet" id="why-not-lora">
        LoRA and QLoRA are not supported yet: the calculator does not play adapters or quantised weights so far.
      </p>
    </fieldset>
  );
}

function AllSettings() {
  return (
    <>
      <SelectControl
        of="implementation"
        help="foreach, PyTorch’s default, makes parameter-sized temporaries; fused makes none; loop goes parameter by parameter."
        options={['foreach', 'fused', 'loop'].map((value) => ({ value, name: value }))}
      />
      <SelectControl
        of="attention"
        help="sdpa never holds the score matrix; eager does, and it grows with the square of the sequence (attn_implementation)."
        options={['sdpa', 'eager'].map((value) => ({ value, name: value }))}
      />
      <div class="pair">
        <NumberControl
          of="accumulation"
          help="Micro-batches before each optimizer step (gradient_accumulation_steps). Gradients stay alive between them."
        />
        <NumberControl
          of="max_grad_norm"
          help="Gradients are clipped to this norm before the step (max_grad_norm). Empty: not clipped."
          placeholder="none"
        />
      </div>
      <SelectControl
        of="expandable_segments"
        help="Expandable segments leave fewer unusable holes (PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True)."
        options={[
          { value: 'false', name: 'PyTorch’s default' },
          { value: 'true', name: 'expandable' },
        ]}
      />
    </>
  );
}

function GpuControls() {
  return (
    <>
      <SelectControl
        of="gpu"
        help="Which card: its memory as CUDA reports it, and how its kernels allocate."
        options={gpus.map(({ id, name, unsupported }) => ({ value: id, name: unsupported ? `${name} (not yet)` : name, disabled: unsupported }))}
      />
      <div class="pair">
        <NumberControl of="gpus" help="GPUs in all. DDP and FSDP2 use all of them, one rank on each." />
        <NumberControl of="gpus_per_node" help="GPUs in one machine." />
      </div>
    </>
  );
}
