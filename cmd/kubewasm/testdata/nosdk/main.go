// This program is no guest.
package main

func main() {}
