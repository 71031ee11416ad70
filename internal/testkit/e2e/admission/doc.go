// Package admission holds what a real kube-apiserver and the webhook server do
// together.
package admission
