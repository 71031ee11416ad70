// Package audit asks the policies of an admission engine about what is already in a cluster:
// what was created before a policy was, while it only monitored, or while the webhook was
// away.
//
//	auditor, err := audit.New(audit.Config{Engine: engine, Client: config, StateFile: "audit.state"})
//	…
//	result, err := auditor.Run(ctx)
//	…
//	reporter, err := audit.NewReporter(config, audit.ReportConfig{})
//	…
//	written, err := reporter.Write(ctx, result)
//
// [Auditor.Review] audits manifests without a cluster. Package auditmetrics counts what runs
// find.
//
// # What is asked
//
// An [Auditor] lists the resources that the rules of the policies name, or their modules if
// they have no rules, each in one version. Wildcards name what can be created and listed, other
// than reports of audits. Subresources are not stored, and left aside.
//
// Policies are asked by their own rules and selectors, with the objects that they may look up,
// about the creation of each object: operation CREATE, a dry run, by the user of the
// configuration, with the object's UID as that of the request. They see what an API server would
// take from the object if it were created now: it has no resourceVersion, no generation, no
// managedFields, and no status if that is a subresource.
//
// A policy whose rules name UPDATE or DELETE alone decides about changes. There is none, so it is
// skipped, and the result says so. A policy that mutates is asked as well: an object that it
// would change is a finding with the outcome warn, since it is not what it would be if it were
// created now. Modes and failure policies do not count.
//
// A policy that traps, or is not done in time, has the outcome error for that object, and is
// asked again in the next run. One that fails on everything is reported once, and after 20
// failures without a verdict it is left alone for the rest of the run.
//
// # What is not asked again
//
// A verdict is a function of the module, the configuration and what the guest is given. So a
// result holds until one of them changes: the version of the policy, see
// [admission.Description], or the object as policies see it, by its digest. The same resource
// version is enough to know that the object is the same. A policy that looked objects up, or may
// ask its host, or has a clock, is asked in each run, about this object alone.
//
// As long as all results of a resource hold, a run asks the API server for the changes since the
// last one, by a watch from the version at which that ended. It lists the resource if the
// API server has forgotten that version, if a policy or the labels of a namespace have changed,
// or if more than 100 objects are to be asked about again.
//
// # What it costs the API server
//
// One list is read at a time, in pages of 500 objects or some 4 MiB, at a bounded rate, from
// etcd: with resourceVersion=0, an API server may answer with the whole list at once, in memory
// of both sides. Each list is consistent. If it takes longer than the API server keeps its
// version, it goes on with the objects as they are then.
//
// # What is kept
//
// The state is some 200 bytes for each object, and the findings with their messages, which are
// cut at 1 KiB. Its file is a journal: after a crash the next run goes on with what was whole.
package audit
