// Why a row may be off: what its source does not say, and what of its program is not played. By the words of its notes, never by the row.

// Notes that move a figure by less than the 5 % that want an explanation, or only say how the row was read.
const slight = [/^another version/, /^Transformers .*, played as/, /^SFTTrainer of TRL before 1/, /^model: /, /^GPU: /, /^fms-acceleration: /, /the same chip$/, /which saves the same$/];

// Whether an error wants an explanation.
export const isOff = ({ error, second }) => !second && Math.abs(error) > 0.05;

// What a row takes for granted of its source, in its own words: "fp32 sharded (assumed)".
function assumptionsOf(row) {
  return Object.entries(row).filter(([, value]) => typeof value === 'string' && /\bassumed\b/.test(value)).map(([name, value]) => `${name}: ${value}`);
}

// {missing: what the source does not say, notes: those that say what stands in for what}
export function explanationOf({ row, notes, replaced, errors }) {
  const missing = [...[row.missing ?? []].flat().filter(Boolean).map(String), ...assumptionsOf(row)];
  const timing = errors?.some((error) => isOff(error) && error.withinRange) ? ['reserved memory depends on timing: what was measured lies within the range'] : [];
  return { missing, notes: [...timing, ...notes, ...(replaced ?? [])].filter((note) => !slight.some((pattern) => pattern.test(note))) };
}

export function isUnexplained(entry) {
  const { missing, notes } = explanationOf(entry);
  return missing.length === 0 && notes.length === 0;
}
