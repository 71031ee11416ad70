// Package hookstest tests runtime hooks, natively and as WebAssembly, see [Each].
//
// [Plugin.Decide] asks about one container of a Pod in YAML, and [Plugin.Ask] passes any request.
// [Plugin.On] gives the plugin a node, with objects to look up.
package hookstest
