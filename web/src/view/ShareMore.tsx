import { useSignal } from '@preact/signals';
import { specOf } from '../choice/spec';
import { choice, config, link, selected } from '../store';
import { chart as chartText, share as text } from '../text/views';
import { ChartExports } from './Chart';
import { imageOf } from './exports';
import { barsPicture } from './picture';
import { barsTable, markdown } from './words';

/** Every other way to take the answer along. */
export default function ShareMore() {
  const said = useSignal('');
  const does = (work: () => Promise<void>) => () => {
    said.value = '';
    work().then(
      () => (said.value = chartText.copied),
      () => (said.value = chartText.refused),
    );
  };
  return (
    <div class="share-more">
      <button type="button" onClick={does(() => navigator.clipboard.writeText(markdown(address())))}>
        {text.markdown}
      </button>
      <button type="button" onClick={does(() => navigator.clipboard.writeText(specText()))}>
        {text.spec}
      </button>
      <button type="button" onClick={does(copyImage)}>
        {text.image}
      </button>
      <ChartExports name="llmem-methods" svg={barsPicture} table={barsTable} />
      <span class="quiet" role="status">
        {said.value}
      </span>
    </div>
  );
}

function address(): string {
  return new URL(link.value, location.href.replace(/#.*$/, '')).href;
}

/** For `llmem estimate`, which knows the presets by their ids. */
function specText(): string {
  const { model } = choice.value;
  const loaded = config.value;
  const spec = specOf(choice.value, loaded.state === 'ready' ? loaded.config : {}, selected.value);
  return JSON.stringify(model.kind === 'preset' ? { ...spec, model: model.id } : spec, null, 2);
}

async function copyImage(): Promise<void> {
  // Safari wants the promise of a picture, not the picture, at the time of the click.
  await navigator.clipboard.write([new ClipboardItem({ 'image/png': imageOf(barsPicture()) })]);
}
