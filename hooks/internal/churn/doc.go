// Package churn runs the node agent as it is built on a node whose pods come and go, beside writers
// that change what it has written, and ends it without a warning. Its test is short; the environment
// variable KUBEWASM_CHURN has a longer time, such as 10m, with 250 pods.
package churn
