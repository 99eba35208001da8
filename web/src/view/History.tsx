import { useEffect } from 'preact/hooks';
import { canRedo, canUndo, leftOff, redo, undo } from '../store';
import { masthead as text } from '../text/page';

/** Back and forth through what was changed, also by the usual keys wherever no text is typed. */
export function History() {
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      if (!(event.ctrlKey || event.metaKey) || event.altKey || isTyped(event.target)) return;
      const key = event.key.toLowerCase();
      const act = key === 'y' || (key === 'z' && event.shiftKey) ? redo : key === 'z' ? undo : undefined;
      if (!act) return;
      event.preventDefault();
      act();
    };
    window.addEventListener('keydown', press);
    return () => window.removeEventListener('keydown', press);
  }, []);
  return (
    <div class="history">
      {leftOff.value && !canUndo.value && <a href={leftOff.value}>{text.resume}</a>}
      <button type="button" class="plain" disabled={!canUndo.value} onClick={undo}>
        {text.undo}
      </button>
      <button type="button" class="plain" disabled={!canRedo.value} onClick={redo}>
        {text.redo}
      </button>
    </div>
  );
}

function isTyped(target: EventTarget | null): boolean {
  return target instanceof HTMLTextAreaElement || (target instanceof HTMLInputElement && target.type === 'text');
}
