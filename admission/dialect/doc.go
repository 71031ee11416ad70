// Package dialect is the seam between an admission engine and policies of other ABIs than that of
// package abi: policies of another project, which run unmodified.
//
// A [Dialect] recognizes the modules of its ABI, and binds itself to each plugin: it offers the
// functions that guests import, and asks a guest for its [Verdict] on a [Request]. The rules, the
// failure policy, the shadow and the metrics of a plugin are those of every plugin.
//
// The program lists the dialects that it supports:
//
//	admission.PluginConfig{
//		Dialects: []*dialect.Dialect{stellar.New(), rego.New(rego.Options{Cluster: cluster})},
//	}
//
// # Configuration
//
// The member dialect of a plugin's configuration has the settings that one dialect alone
// understands, under the name of [Dialect.Member]:
//
//	dialect:
//	  rego: {gatekeeper: true}
//
// The dialect decodes them. Mistakes are reported with their paths, before the module is compiled.
// A module of another ABI is a mistake as well.
package dialect
