// Pictures and files of what is on the page.

/** A drawing as a file of its own: what the page's styles say stands in the elements, since the styles stay behind. */
export function svgText(drawn: SVGSVGElement): string {
  const copy = drawn.cloneNode(true) as SVGSVGElement;
  const originals = [drawn, ...drawn.querySelectorAll('*')];
  const copies = [copy, ...copy.querySelectorAll('*')];
  originals.forEach((original, index) => {
    const style = getComputedStyle(original);
    const own = copies[index] as SVGElement;
    for (const property of PROPERTIES) {
      const value = style.getPropertyValue(property);
      if (value && value !== 'normal') own.setAttribute(property, value);
    }
    if (style.display === 'none') own.setAttribute('display', 'none');
    own.removeAttribute('class');
  });
  const { width, height } = drawn.getBoundingClientRect();
  copy.setAttribute('xmlns', 'http://www.w3.org/2000/svg');
  copy.setAttribute('width', String(Math.round(width)));
  copy.setAttribute('height', String(Math.round(height)));
  if (!copy.hasAttribute('viewBox')) copy.setAttribute('viewBox', `0 0 ${Math.round(width)} ${Math.round(height)}`);
  const paper = document.createElementNS('http://www.w3.org/2000/svg', 'rect');
  paper.setAttribute('width', '100%');
  paper.setAttribute('height', '100%');
  paper.setAttribute('fill', getComputedStyle(document.body).backgroundColor);
  copy.prepend(paper);
  return new XMLSerializer().serializeToString(copy);
}

const PROPERTIES = ['fill', 'fill-opacity', 'stroke', 'stroke-width', 'stroke-dasharray', 'opacity', 'font-family', 'font-size', 'font-weight', 'text-anchor', 'dominant-baseline', 'paint-order'];

export function saveText(name: string, text: string, type: string): void {
  save(name, URL.createObjectURL(new Blob([text], { type })));
}

function save(name: string, address: string): void {
  const link = document.createElement('a');
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

const SHARP = 2; // pixels of the picture for one of the page

/** A drawing's text as a PNG. The Content-Security-Policy lets images come from data:, where a canvas stays readable, too. */
export async function imageOf(text: string): Promise<Blob> {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await image.decode();
  const canvas = document.createElement('canvas');
  canvas.width = image.naturalWidth * SHARP;
  canvas.height = image.naturalHeight * SHARP;
  canvas.getContext('2d')?.drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve, reject) => canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error('no picture'))), 'image/png'));
}

export async function saveImage(name: string, text: string): Promise<void> {
  save(name, URL.createObjectURL(await imageOf(text)));
}

export function Copied({ said }: { said: string }) {
  return (
    <span class="quiet" role="status">
      {said}
    </span>
  );
}
