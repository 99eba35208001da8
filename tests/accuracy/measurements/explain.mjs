// Why a row may be off: what its source does not say, and what of its program is not played. By the words of its notes, never by the row.

// Notes that move a figure by less than the 5 % that want an explanation, or only say how the row was read.
const slight = [/^another version/, /^Transformers .*, played as/, /^SFTTrainer of TRL before 1/, /^model: /, /^GPU: /, /^fms-acceleration: /, /the same chip$/, /which saves the same$/];

// Whether an error wants an explanation.
export const isOff = ({ error, second }) => !second && Math.abs(error) > 0.05;

// {missing: what the source does not say, notes: those that say what stands in for what}
export function explanationOf({ row, notes, replaced }) {
  const missing = [row.missing ?? []].flat().filter(Boolean).map(String);
  return { missing, notes: [...notes, ...(replaced ?? [])].filter((note) => !slight.some((pattern) => pattern.test(note))) };
}

export function isUnexplained(entry) {
  const { missing, notes } = explanationOf(entry);
  return missing.length === 0 && notes.length === 0;
}
