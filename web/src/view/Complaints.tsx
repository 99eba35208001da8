import { complaints } from '../store';
import { complaints as words } from '../text/page';

/** What of the link could not be used. */
export function Complaints() {
  if (complaints.value.length === 0) return null;
  return (
    <section class="notice" aria-label={words.name}>
      <p>{words.some}</p>
      <ul>
        {complaints.value.map((text) => (
          <li key={text}>{text}</li>
        ))}
      </ul>
      <button type="button" class="plain" onClick={() => (complaints.value = [])}>
        {words.dismiss}
      </button>
    </section>
  );
}
