// Package manage keeps the policies of an admission engine: those that a
// configuration file declares, and those that a management API loads.
//
//	m, err := manage.New(manage.Config{Runtime: rt, Engine: engine, Directory: "/var/lib/webhook"})
//	err = m.FollowFile(ctx, "/etc/webhook/policies.yaml")
//	mux.Handle("/plugins/", m.API(manage.Auth{Token: token}))
//
// A file looks like this:
//
//	plugins:
//	- name: required-labels
//	  source: {file: /plugins/required-labels.wasm}
//	  settings: {labels: [team]}
//	  match:
//	    rules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods]}]
//	- name: defaults
//	  source: {https: "https://example.com/defaults.wasm"}
//	  sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
//	  allowedToMutate: true
//
// # What goes wrong
//
// Each policy stands for itself. One that cannot be loaded leaves what it was
// before in service, and all others. If there was nothing before, requests that
// it should guard are dealt with by its failure policy, with the reason, and
// others pass: see admission.Unavailable.
package manage
