// Package assemblyscript has the SDK for guests in AssemblyScript, a package of npm:
// the command kubewasm build gives it to the compiler. README.md is for authors of guests.
package assemblyscript
