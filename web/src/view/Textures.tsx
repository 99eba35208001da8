import type { Category } from '../core/answer';

// What tells the categories apart where colours are not to be had: in print and in forced colours (style/categories.css shows
// them there). A path in a tile of the given size.
const textures: Record<Category, { size: number; path: string; width?: number }> = {
  weights: { size: 4, path: 'M0 0h4v4h-4z', width: 4 },
  gradients: { size: 6, path: 'M-1 1l2 -2M0 6l6 -6M5 7l2 -2', width: 1.5 },
  optimizer_states: { size: 6, path: 'M-1 5l2 2M0 0l6 6M5 -1l2 2', width: 1.5 },
  attention: { size: 4, path: 'M2 0v4', width: 1.5 },
  mlp: { size: 4, path: 'M0 2h4', width: 1.5 },
  norms: { size: 6, path: 'M3 0v6M0 3h6', width: 1 },
  logits_and_loss: { size: 8, path: 'M0 0l8 8M8 0l-8 8', width: 1 },
  other_activations: { size: 8, path: 'M4 0v8', width: 1 },
  temporaries: { size: 5, path: 'M2 2h1', width: 1.5 },
  communication: { size: 8, path: 'M0 6l4 -4l4 4', width: 1.2 },
  workspaces: { size: 8, path: 'M0 4h8', width: 1 },
  allocator_overhead: { size: 10, path: 'M5 4.5v1', width: 1 },
  outside: { size: 12, path: 'M-1 1l2 -2M0 12l12 -12M11 13l2 -2', width: 0.7 },
};

export function Textures() {
  return (
    <svg class="textures" width={0} height={0} aria-hidden="true">
      <defs>
        {(Object.keys(textures) as Category[]).map((category) => {
          const { size, path, width = 1 } = textures[category];
          return (
            <pattern key={category} id={`texture-${category}`} width={size} height={size} patternUnits="userSpaceOnUse">
              <path d={path} stroke-width={width} />
            </pattern>
          );
        })}
        <pattern id="overflow" width={8} height={8} patternUnits="userSpaceOnUse">
          <path d="M-1 1l2 -2M0 8l8 -8M7 9l2 -2" stroke-width={1.3} />
        </pattern>
      </defs>
    </svg>
  );
}
