// Package kubewarden serves unmodified policies of Kubewarden: waPC policies and WASI programs.
//
// A waPC policy exports __guest_call. The host calls it with the name of an operation and a
// payload, and the policy calls host capabilities in the same way. A WASI policy is run with the
// operation as its argument and the payload on standard input. If it uses host capabilities, it
// imports the function call from the module host.
//
// [New] returns the dialects for [admission.PluginConfig]. A plugin's configuration for them names
// what its policy may ask the host for, see [capabilities.Scope]:
//
//	dialect:
//	  kubewarden:
//	    hostCapabilities: [oci/v2/verify]
//	    repositories: [ghcr.io/acme/*]
//
// Package policyserver serves the files and the API of Kubewarden's own policy server.
package kubewarden
