// Package nodewatch tests package hooks/nodewatch against an API server, with the account and the
// rights that the manifest of the node agent gives it.
package nodewatch
