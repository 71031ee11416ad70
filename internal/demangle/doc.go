// Package demangle makes the names that compilers give to functions readable, for stacks and
// profiles.
package demangle
