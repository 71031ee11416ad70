// Package cases reads and runs the files of package host/cases, which describes them.
package cases
