// Package audit asks the policies of an admission engine about objects that are already in a
// cluster. Such objects were created before a policy was, while it only monitored, or while the
// webhook was away.
//
//	auditor, err := audit.New(audit.Config{Engine: engine, Client: config, StateFile: "audit.state"})
//	…
//	result, err := auditor.Run(ctx)
//	…
//	reporter, err := audit.NewReporter(config, audit.ReportConfig{})
//	…
//	written, err := reporter.Write(ctx, result)
//
// [Auditor.Review] audits manifests without a cluster. Package auditmetrics counts the findings of
// runs.
//
// # Requests
//
// An [Auditor] lists the resources named by the rules of the policies, or by their modules if they
// have no rules, each in one version. Wildcards match the resources that can be created and listed,
// other than reports of audits. Subresources are not stored, so they are not audited.
//
// Policies are asked about the creation of each object, by their rules and selectors, and with the
// objects that they may look up. The request has the operation CREATE, is a dry run by the user of
// the configuration, and has the object's UID as its UID. Policies see the fields that an API
// server would accept if the object were created now. There is no resourceVersion, no generation,
// no managedFields, and no status if that is a subresource.
//
// A policy whose rules name UPDATE or DELETE alone decides about changes. An audit has no changes,
// so it skips the policy and reports that in the result. A policy that mutates is asked as well. An
// object that it would change is a finding with the outcome warn, since it differs from the object
// that would be created now. Modes and failure policies are ignored.
//
// A policy that traps or times out has the outcome error for that object, and is asked again in the
// next run. A policy that fails on everything is reported once. After 20 failures without a verdict
// it is not asked for the rest of the run.
//
// # Results of earlier runs
//
// A verdict is a function of the module, the configuration and the guest's input. So a result holds
// until one of them changes: the version of the policy, see [admission.Description], or the object
// as policies see it, by its digest. An unchanged resource version proves that the object is
// unchanged. A policy that looked objects up, or may ask its host, or has a clock, is asked about
// the object again in each run.
//
// As long as all results of a resource hold, a run reads only the changes since the last run, by a
// watch from that run's last version. It lists the resource in three cases: the API server no
// longer has that version, a policy or the labels of a namespace have changed, or more than 100
// objects must be asked about again.
//
// # Cost for the API server
//
// Lists are read one at a time, in pages of 500 objects or about 4 MiB, at a bounded rate, from
// etcd. With resourceVersion=0, an API server may answer with the whole list at once, in memory of
// both sides. Each list is consistent. If it takes longer than the API server keeps its version, it
// continues with the current objects.
//
// # State
//
// The state takes about 200 bytes for each object, plus the findings with their messages, which are
// cut at 1 KiB. Its file is a journal. After a crash the next run continues with the frames that
// are whole.
package audit
