// Package layout holds the rules of dependency between the packages, the size of guests, and the
// figures of [Measure].
package layout
