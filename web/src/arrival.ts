import file from 'virtual:arrival';
import type { Envelope } from './core/answer';

/**
 * What the core answered, when the site was built, to the specs of someone who brings no link (tools/site-data.ts asks it): the
 * text of each spec → its envelope. Nothing if that file does not come: then the core is asked in its worker, like at any other time.
 */
export async function arrivalAnswers(): Promise<Record<string, Envelope>> {
  try {
    const response = await fetch(file);
    return response.ok ? ((await response.json()) as Record<string, Envelope>) : {};
  } catch {
    return {};
  }
}
