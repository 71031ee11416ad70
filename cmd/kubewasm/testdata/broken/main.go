// This guest does not compile.
package main

func main() { undefined() }
