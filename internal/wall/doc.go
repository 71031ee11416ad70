// Package wall runs guests in a child process. The child is the program itself, executed again: a
// hook in an init function, [Main], turns it into a server of one module before anything else of the
// program runs. Its role, the name under which it was started, selects the hook. It has no privileges, no files but its channel, and only the system calls that serving
// needs.
//
// A [Process] has a socket, over which it gets its module and file descriptors. Each instance has a
// [Lane], a piece of memory that both processes map: a call is passed by writing a message and the turn,
// with a futex if the other side sleeps. The parent copies each value before it checks it, once.
// Nothing else is shared: memories of guests are private to the child, which alone can tell exactly
// which of their pages were written.
package wall
