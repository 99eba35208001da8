import type { Category } from '../core/answer';
import { categories, type CategoryWords } from '../text/categories';

// Colours and print patterns of the categories are in style/categories.css and Textures.tsx, under the same keys.

export { categories };

export function categoryOf(key: Category): CategoryWords {
  return categories.find((one) => one.key === key) ?? { key, name: key, short: key, meaning: '' };
}
