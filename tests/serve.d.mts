export interface Site {
  root: string; // the address of the page, with a slash at its end
  served: Set<string>; // files that were asked for
  close(): void;
}
export function serve(folder: string, options?: { path?: string; compressed?: boolean }): Promise<Site>;
