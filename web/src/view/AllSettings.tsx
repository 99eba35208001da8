import { fields, settingText, type FieldKey } from '../choice/fields';
import { choice } from '../store';
import { groups } from '../text/groups';
import { names } from '../text/names';
import { SettingControl } from './Control';

/** Everything else that the wire format has, folded by what it is about; each fold says what in it is not the default. */
export default function AllSettings() {
  return (
    <>
      {groups.map((group) => (
        <Group key={group.name} name={group.name} of={group.fields} />
      ))}
    </>
  );
}

function Group({ name, of }: { name: string; of: readonly FieldKey[] }) {
  const { settings } = choice.value;
  const changed = of.filter((key) => settings[key] !== fields[key].fallback);
  return (
    <details class="group">
      <summary>
        {name}
        <span class="quiet">{changed.map((key) => ` · ${names[key]} ${settingText(settings, key)}`).join('')}</span>
      </summary>
      <div class="group-controls">
        {of.map((key) => (
          <SettingControl key={key} of={key} />
        ))}
      </div>
    </details>
  );
}
