// This guest has a directive for every mistake.
//
//kubewasm:name two words
//kubewasm:version
//kubewasm:read node.metadata
package main

import "github.com/kubewasm/kubewasm/guest/sched"

//kubewasm:version 1
//kubewasm:version 2

// kubewasm:reads node.metadata

//Kubewasm:decides cpu_shares

func init() { sched.Register(&struct{}{}) }

func main() {}
