// Package manage keeps the policies of an admission engine: those that a
// configuration file declares, and those that a management API loads.
//
//	m, err := manage.New(ctx, manage.Config{Runtime: rt, Engine: engine, Directory: "/var/lib/webhook"})
//	err = m.FollowFile(ctx, "/etc/webhook/policies.yaml")
//	mux.Handle("/plugins/", m.API(manage.Auth{Token: token}))
//
// A file looks like this:
//
//	plugins:
//	- name: required-labels
//	  module: {file: /plugins/required-labels.wasm, follow: true}
//	  guestConfig: {labels: [team]}
//	  match:
//	    rules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods, pods/ephemeralcontainers]}]
//	- name: defaults
//	  module: {https: "https://example.com/defaults.wasm"}
//	  sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
//	  allowedToMutate: true
//	- name: unique-hosts
//	  module: {file: /plugins/unique-hosts.wasm, follow: true}
//	  objects: [{resource: networking.k8s.io/v1/ingresses}]
//
// The last one looks objects up: it sees those that its objects name, in the namespaces
// that they name or in all, and the server must be allowed to list and watch them.
//
// # What goes wrong
//
// A file that does not say what is to be guarded is refused as a whole: one without
// policies that does not say so by "plugins: []", one with unknown or repeated fields,
// null, or another kind of value, one whose last line is cut off, and one with a
// policy whose rules are wrong, match nothing, or need the labels of namespaces where
// the server has none. What was in service stays; before that, [Manager.Ready] says
// what is wrong.
//
// Otherwise each policy stands for itself. One that cannot be loaded leaves what it
// was before in service, and all others. Requests that it should guard, and that
// nothing guards, are dealt with by its failure policy, with the reason, and others
// pass: see admission.Unavailable and admission.Uncovered.
//
// A policy whose match has other operations or resources than its module is for, as far
// as that says so, is in service all the same: see Info.Warnings.
//
// What the API loaded is kept in a directory that belongs to the user of the process
// alone. A record that is lost, damaged, or not private is a policy that
// guards every request until it is loaded anew or removed, and Ready names it.
package manage
