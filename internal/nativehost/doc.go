// Package nativehost holds the hosts of plugins that run natively, in the process of a test. There
// is none until a kit sets one.
package nativehost
