// What each exported function does beside the plugin's own work.

// The transform of this package lets the runtime export the size of its objects.
// @ts-ignore: no declaration
import { total } from "rt/tcms";

const LEAST: usize = 1 << 20;

/** The size of objects after which there is a collection. */
let threshold: usize = LEAST;

/**
 * leave ends a call. There is no stack of a plugin's objects then, so the collector sees all that
 * are in use. It runs when there are twice as many bytes as it left the last time.
 */
// @ts-ignore: decorator
@inline
export function leave(): void {
  if (total > threshold) collect();
}

function collect(): void {
  __collect();
  threshold = max(total * 2, LEAST);
}
