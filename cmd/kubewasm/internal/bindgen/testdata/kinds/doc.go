// Package kinds has views of fields of every kind.
package kinds
