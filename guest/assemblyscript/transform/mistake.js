/** mistake returns the error for a mistake of the plugin's author at a node of the syntax tree, or at no place. */
export function mistake(message, node) {
  const at = node?.range;
  const err = new Error(at ? `${at.source.normalizedPath}:${at.source.lineAt(at.start)}:${at.source.columnAt()}: ${message}` : message);
  err.stack = err.message; // The compiler prints it. The stack is that of the transform.
  return err;
}
