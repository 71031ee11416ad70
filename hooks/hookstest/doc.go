// Package hookstest tests runtime hooks, natively and as WebAssembly, see [Each].
//
// [Plugin.Decide] asks about one container of a Pod in YAML, [Plugin.Ask] what a
// request says. [Plugin.On] gives the plugin a node, with the objects that it looks up.
package hookstest
