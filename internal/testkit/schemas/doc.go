// Package main writes the JSON schemas of docs/schemas, which editors read: of each form of
// configuration, from the types that it is decoded into and their comments.
package main

//go:generate go run . ../../../docs/schemas
