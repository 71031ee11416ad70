// Package churn runs the built node agent on a node with changing pods, beside writers that change
// the agent's files, and ends it without warning. Its test is short. The environment variable
// KUBEWASM_CHURN sets a longer time, such as 10m, and uses 250 pods.
package churn
