// Package manage manages the policies of an admission engine: those declared by a configuration
// file, and those loaded by a management API.
//
//	m, err := manage.New(ctx, manage.Config{Runtime: rt, Engine: engine, Directory: "/var/lib/webhook"})
//	err = m.FollowFile(ctx, "/etc/webhook/policies.yaml")
//	mux.Handle("/plugins/", m.API(manage.Auth{Token: token}))
//
// An example of a file:
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
// The last plugin looks objects up. It sees the objects named by its objects field, in the
// namespaces named there or in all. The server needs the right to list and watch them.
//
// # Errors
//
// A file that does not clearly declare policies is refused as a whole. This is a file without
// policies and without "plugins: []", one with unknown or repeated fields, null or values of the
// wrong kind, or one whose last line is cut off. It is also a file with a policy whose rules are
// wrong, match nothing, or need the labels of namespaces on a server without them. The policies in
// service stay; before the first file, [Manager.Ready] returns the error.
//
// Otherwise policies are independent. If a policy cannot be loaded, its earlier version and all
// others stay in service. Requests that only the new version would guard are handled by its failure
// policy, with the reason, and others pass.
//
// A policy whose match has operations or resources that its module does not declare is put into
// service with a warning: see Info.Warnings.
//
// The plugins loaded by the API are kept in a directory that only the user of the process can
// access. A record that is lost, damaged or not private becomes a policy that guards every request
// until it is loaded again or removed, and Ready names it.
package manage
