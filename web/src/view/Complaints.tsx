import { complaints } from '../store';

/** What of the link could not be used. */
export function Complaints() {
  if (complaints.value.length === 0) return null;
  return (
    <section class="notice" aria-label="About this link">
      <p>Not everything in this link could be used:</p>
      <ul>
        {complaints.value.map((text) => (
          <li key={text}>{text}</li>
        ))}
      </ul>
      <button type="button" class="plain" onClick={() => (complaints.value = [])}>
        Dismiss
      </button>
    </section>
  );
}
