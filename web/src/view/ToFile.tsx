import { useComputed, useSignal } from '@preact/signals';
import type { JsonObject } from '../choice/choice';
import { methodName } from '../choice/methods';
import { specOf } from '../choice/spec';
import { toolNames, tools, writeFor, type Tool } from '../files/write/index';
import { choice, config, selected } from '../store';
import '../style/files.css';
import { toFile as text } from '../text/files';
import { share } from '../text/page';

/** The method in detail as the configuration it means for a tool, with the command that starts it. */
export default function ToFile() {
  const tool = useSignal<Tool>('accelerate');
  const written = useComputed(() => writeFor(tool.value, specWithName()));
  const said = useSignal('');
  const copy = (value: string) => {
    navigator.clipboard.writeText(value).then(
      () => (said.value = share.copied),
      () => (said.value = text.refused),
    );
  };
  const made = written.value;
  return (
    <div class="to-file">
      <div class="to-file-ways">
        <label for="to-file-tool">{text.for(methodName(selected.value, choice.value.settings))}</label>
        <select id="to-file-tool" value={tool.value} onChange={(event) => (tool.value = event.currentTarget.value as Tool)}>
          {tools.map((one) => (
            <option key={one} value={one}>
              {toolNames[one]}
            </option>
          ))}
        </select>
        <span class="quiet" role="status">
          {said.value}
        </span>
      </div>
      {!made.ok && <p>{made.why}</p>}
      {made.ok && (
        <>
          <Piece id="to-file-command" name={text.command} content={made.written.command} onCopy={copy} copyName={text.copyCommand} />
          {made.written.files.map((file) => (
            <Piece
              key={file.name}
              id={`to-file-${file.name}`}
              name={file.name}
              content={file.text}
              onCopy={copy}
              copyName={`${share.copy} ${file.name}`}
              download={file.name}
            />
          ))}
          <Lost lost={made.written.lost} files={made.written.files.length} tool={toolNames[tool.value]} />
        </>
      )}
    </div>
  );
}

interface PieceProps {
  id: string;
  name: string;
  content: string;
  copyName: string;
  download?: string;
  onCopy: (content: string) => void;
}

function Piece({ id, name, content, copyName, download, onCopy }: PieceProps) {
  return (
    <div class="piece">
      <label for={id}>{name}</label>
      <button type="button" onClick={() => onCopy(content)}>
        {copyName}
      </button>
      {download && (
        <a href={`data:text/plain;charset=utf-8,${encodeURIComponent(content)}`} download={download}>
          {text.download} {download}
        </a>
      )}
      <textarea
        id={id}
        readOnly
        rows={Math.min(16, content.split('\n').length + 1)}
        value={content}
        spellcheck={false}
        onFocus={(event) => event.currentTarget.select()}
      />
    </div>
  );
}

/** What differs from the format's default and cannot be said. */
function Lost({ lost, files, tool }: { lost: readonly { at: string; why: string }[]; files: number; tool: string }) {
  if (lost.length === 0) return null;
  return (
    <details>
      <summary>{text.lost(lost.length, files, tool)}</summary>
      <ul class="faults">
        {lost.map(({ at, why }) => (
          <li key={at}>
            <code>{at}</code>: {why}
          </li>
        ))}
      </ul>
    </details>
  );
}

function specWithName(): JsonObject {
  const { model } = choice.value;
  const loaded = config.value;
  const spec = specOf(choice.value, loaded.state === 'ready' ? loaded.config : {}, selected.value);
  return model.kind === 'preset' ? { ...spec, model: model.id } : spec;
}
