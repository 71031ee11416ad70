// Kubewasm starts, builds, inspects, runs and distributes plugins of Kubernetes components
// that run as WebAssembly modules.
//
// It is a module of its own. Install it from a clone of the repository:
//
//	go install -C cmd/kubewasm .
//
// Guests in Go need no other tool than Go.
//
// Names and messages of modules, recordings, registries and clusters are printed with
// escapes such as \n and \u001b in place of characters that a terminal acts upon. The output
// has no colors, with NO_COLOR or without. At a terminal, the standard error says how far a
// step is that takes longer than half a second: objects that are read or asked about, and the
// seconds of what is built, compiled, fetched, pushed, loaded or repeated.
//
// "kubewasm completion SHELL" prints a script that completes commands and flags in bash, zsh,
// fish or PowerShell, and "kubewasm --version" the version.
//
// # Start a plugin
//
// Usage:
//
//	kubewasm new --kind KIND [--lang LANGUAGE] [--ci FORGE] [--name NAME] [--module PATH] DIR
//
// New writes a small plugin that works, with its test, its configuration, objects to run
// it on, and a README.md with the commands that test, build, inspect and run it. It
// prints these commands, too.
//
// A directory that lies in a Go module becomes a package of that module. Otherwise, and
// with --module, new writes a go.mod that requires the version of kubewasm that this
// program is a part of, or its checkout if the program was built in one.
//
// A service is an extension point of a component of your own: new writes the .proto file
// with its question, a plugin with its test, and a program that asks the plugin. In another
// language than Go it writes the question and the plugin.
//
// New overwrites nothing: it fails if one of the files exists.
//
// The flags are:
//
//	--ci FORGE
//		Also write the pipeline of a repository at github or gitlab that has the plugin in its root: it tests
//		each change, and pushes, signs and annotates tags for Artifact Hub.
//	--kind KIND
//		The kind of the plugin: scheduler, admission, conversion, hook or service.
//	--lang LANGUAGE
//		The language of the plugin: go, the default, or another that there are templates of.
//	--module PATH
//		Of a plugin in Go, the path of a new Go module. The default is example.com/ and the name of the
//		plugin, if the directory lies in no module.
//	--name NAME
//		The name of the plugin. The default is the name of the directory.
//
// Example:
//
//	kubewasm new --kind scheduler zone
//
// # Compile a guest
//
// Usage:
//
//	kubewasm build [--compiled] [--debug] [--output-file FILE] [--name NAME] [--version VERSION] [DIR]
//
// Build compiles the guest in a directory, the current one by default, to a stripped
// WebAssembly module. A directory with a Cargo.toml is a crate in Rust, compiled by cargo;
// one with an asconfig.json is AssemblyScript, compiled by asc; one with files in C and none
// in Go is compiled by clang. If such a tool is missing, build says how to get it. Any other
// directory has a package main in Go.
//
// Build adds metadata in the custom section "kubewasm". In Go they come from directives,
// comments of the package:
//
//	//kubewasm:name zone
//	//kubewasm:version 1.2.0
//	//kubewasm:reads node.metadata.labels node.spec.taints
//	//kubewasm:decides cpu_shares container_envs[GOGC]
//	//kubewasm:matches CREATE,UPDATE pods deployments.apps
//	//kubewasm:state v1
//
// The directive reads names the fields of Pods and Nodes that a scheduler plugin reads,
// or those of a hook's request, such as pod_annotations[example.com/cpu]. The host
// encodes these fields only: of a kind of which a field is named, every other field reads
// as empty, also in tests by the kits. A plugin that names no field of a kind
// gets every field that it reads.
//
// The directive decides names the fields that a hook's decisions set. A node agent whose
// operator does not grant them refuses the hook when it is loaded.
//
// The directive matches names the operations and the resources that an admission plugin
// is written for. A resource is written as for kubectl, with or without its version:
// stellarnodes.v1alpha1.stellar.org. A server warns if it is configured to ask the plugin
// about other resources or versions, or not about all of these. A version is that of the
// objects that the plugin reads: an audit lists them in it.
//
// Build then loads the module once, and fails if it registers no plugin. It refuses
// programs that compile and do not work: a method that has the name of an extension point
// and another type, so that it is never called; a guest of two kinds; a directive with a
// space after the slashes. It warns of functions that do something else in a guest, such
// as time.Now and os.ReadFile, and of packages that a guest has no use for, such as net
// and k8s.io/api. docs/guests.md describes what a guest has. Inspect and run check a
// directory in the same way.
//
// The flags are:
//
//	--compiled
//		Write the compiled form of the module for the platform of this machine, too, into a
//		file beside it such as zone.wasm.linux-amd64, and print its SHA-256. A component
//		whose configuration grants it does not compile the module. It needs this version of
//		kubewasm, the default limits, and a processor with the features of this one. For
//		another platform, run build there.
//	--debug
//		Keep the names of functions and the lines of the source, for the stacks of traps.
//		A panic in Go prints them in any case.
//	--name NAME
//		The name of the plugin, instead of that of the metadata.
//	-o, --output FORMAT
//		The format of the output: text, json or yaml. The default is text.
//	--output-file FILE
//		The file to write. The default is the name of the plugin with .wasm, in the
//		current directory.
//	--version VERSION
//		The version of the plugin, instead of that of the metadata.
//
// Example:
//
//	kubewasm build --output-file zone.wasm ./zone
//
// # Generate views of objects
//
// Usage:
//
//	kubewasm gen [--output-dir DIR] [--host DIR] [flags] FILE.proto|CRD.yaml
//
// Gen writes typed views of Kubernetes objects for guests: Go code that reads the fields
// of a message where they lie, in protobuf or in JSON.
//
// Of a .proto file with services it writes both sides of these extension points. The
// directory of --output-dir gets the package for plugins: an interface to implement and a function
// Register for each service, views of requests, structs for responses. The directory of
// --host gets the package for the component: a type with a method for each method of the
// service, a function Load, an interface of these methods with a fake for tests, and a struct for
// each message. A service with the option
// (kubewasm.host), of github.com/kubewasm/kubewasm/abi/options.proto, is one that the
// component implements and plugins call. docs/services.md describes services.
//
// A .proto file is named as another one would import it. It is looked for in the
// directories of -I, and beside the Go package of that path: the file may be of any
// module that the current one requires. Messages of other .proto files are read by the
// views of other packages. Those of guest/api are known, and --import names the rest. Those
// that services have become types of the package of the services instead.
//
// Of a CustomResourceDefinition gen writes views of the objects' JSON, with a type for
// each object that has properties, named after the fields on the way to it. Objects with
// the same properties have one type, named after the first of them: the containers, the
// initContainers and the ephemeralContainers of Argo's Rollout do. Two properties whose
// accessors would have one name, such as jwksUri and jwks_uri in Istio, get JwksUri and
// Jwks_uri. What a schema leaves open is returned as JSON: unknown fields that are
// preserved, embedded objects, lists in lists.
//
// Gen removes the files in the directory that an earlier run has generated and this one
// does not.
//
// With --breaking it writes nothing. It compares the services of a .proto file with those of an
// earlier version of the file, and fails if plugins or components that were built from the earlier
// version would be refused, not be asked, or read another meaning: for a CI job.
//
// The flags are:
//
//	--api-version VERSION
//		The version of the objects of a CustomResourceDefinition. The default is the
//		version that is stored.
//	--breaking OLD.proto
//		An earlier version of the .proto file to compare with. Its imports are looked for beside it
//		first.
//	--check
//		Write nothing, and fail if a generated file is out of date.
//	--host DIR
//		The directory for the component's side of services. Without --output-dir, the other side is
//		not written.
//	--host-package NAME
//		The name of the package in the directory of --host. The default is that of the Go
//		files there or, if there are none, the name of the directory.
//	--import DIR=PACKAGE
//		The import path of the views of the .proto files in a directory. It may be
//		repeated.
//	--lang NAME
//		The language of the guest: go, rust, c or as (AssemblyScript). The default is
//		go. The component's side is always Go.
//	--output-dir DIR
//		The directory to write to. The default is the current one.
//	--package NAME
//		The name of the package in the directory of --output-dir. The default is that of
//		the Go files there or, if there are none, the name of the directory.
//	-I, --proto-path DIR
//		A directory to look for .proto files in. It may be repeated; the default is the
//		current directory.
//
// Example:
//
//	//go:generate kubewasm gen crontabs.yaml
//
// # Describe a module
//
// Usage:
//
//	kubewasm inspect [--config FILE] [--gatekeeper] [-o json] [flags] DIR|FILE.wasm|REFERENCE
//
// Inspect prints what a module is, what it needs and what it exports: the ABI that it is
// written for, its kind, the functions that it implements, the imports and the grants
// that they need, memory, metadata, size and digest. For each other kind it prints why
// the module is not of it, and for each supported minor of Kubernetes whether the module
// runs there, and what a scheduler of that minor lacks of what a plugin implements. Inspect knows every ABI that the hosts run: that of kubewasm,
// kube-scheduler-wasm-extension, both of Kubewarden, that of the Open Policy Agent, and
// that of the Stellar operator. A directory is built first. A module in a registry or a
// layout is fetched as by pull, and the standard error says who signed it.
//
// The exit code is 0 if a host runs the module, provided that it gets its grants and its
// configuration. It is 2 if none does; the lines "problem" then say why.
//
// The flags are:
//
//	--config FILE
//		The plugin's configuration, YAML or JSON.
//	--gatekeeper
//		Take a policy in Rego for one of Gatekeeper, whatever its entrypoint is called.
//	--key FILE
//		The public key of who must have signed the artifact of a reference.
//	-o, --output FORMAT
//		The format of the output: text, json or yaml. The default is text.
//	--output-file FILE
//		Write the output in the format to a file. The text is printed as well.
//	--plain-http HOST
//		A registry without TLS. It may be repeated.
//	--registries FILE
//		Rules, mirrors, certificates and credentials, YAML or JSON: docs/operating.md.
//
// Example:
//
//	kubewasm inspect zone.wasm
//	kubewasm inspect --key acme.pub ghcr.io/acme/zone:1.2
//
// # Run a module on objects
//
// Usage:
//
//	kubewasm run -f PATH... [--config FILE] [--grant NAME]... [flags] DIR|FILE.wasm|REFERENCE [SERVICE/METHOD]
//
// Run calls a module about the objects of a file, by the engine that runs it in a
// component, and prints verdicts, time and fuel. A directory is built first. A module in a
// registry or a layout is fetched as by pull, and the standard error says who signed it.
//
// A scheduler plugin schedules the Pods that have no spec.nodeName to the Nodes of the
// file, one after the other, by every extension point that it implements from PreEnqueue
// to PostBind. Of the Nodes that pass Filter, the first with the highest score is chosen.
// A Pod that Permit lets wait goes on when the plugin allows it. The other Pods run on
// their Nodes, and the plugin can look up every object. Nothing is changed by the verdict
// about a Pod: for the next one, the Nodes are as in the file.
//
// An admission plugin reviews each object, as being created unless flags change the
// request. A ConversionReview in the file is converted. An AdmissionReview in the file is reviewed as it stands, and so is a request
// as Kubewarden's tools keep it; with --raw a file is a request of any JSON. A policy that looks objects up finds those of the file,
// of the kinds that its metadata declare and --see adds.
//
// A hook decides about each Pod and each container. The grants that its decisions need on
// a node are printed at the end.
//
// Of a plugin of a service run calls one method, with the request in the file: a message
// in YAML, as protobuf has it in JSON, in which objects of Kubernetes are manifests. It
// prints the response. The name of the service may be the end of the full one. What the
// plugin asks of the host's services is in the file of --answers.
//
// Failures are printed at the end, with the plugin, the extension point, the object and
// the line of a panic.
//
// The exit code is 0 if every Pod fits a Node or every object is admitted, and 2 if not. It is 3
// if the module is for none of the objects.
//
// The flags are:
//
//	--answers FILE
//		The responses of host services, YAML or JSON: a message for each SERVICE/METHOD.
//	--config FILE
//		The plugin's configuration, YAML or JSON.
//	--dry-run
//		Mark the requests as dry runs.
//	-f, --filename PATH
//		Files of objects, YAML or JSON; a directory stands for those below it, and - for the
//		standard input. It may be repeated.
//	--gatekeeper
//		Take a policy in Rego for one of Gatekeeper, whatever its entrypoint is called.
//	--grant NAME
//		A grant for the plugin, such as clock. It may be repeated.
//	--group NAME
//		A group of the user of the requests. It may be repeated.
//	--key FILE
//		The public key of who must have signed the artifact of a reference.
//	--log
//		Print what the plugin logs.
//	--namespace NAME
//		The namespace of objects that name none. The default for Pods is "default".
//	--objects PATH
//		The objects that an admission plugin or a plugin of a service may look up. With --grant
//		objects and without this flag those of an admission plugin are those of -f. A policy of
//		Kubewarden or in Rego without metadata and --see may look up each of their kinds. It may
//		be repeated.
//	--old PATH
//		The objects before an UPDATE. The default is that nothing changes. It may be repeated.
//	--operation OPERATION
//		The operation of the requests: CREATE, UPDATE, DELETE or CONNECT. The default is
//		UPDATE with --old and CREATE without.
//	-o, --output FORMAT
//		The format of the output: text, json, yaml or junit. The default is text.
//	--output-file FILE
//		Write the output in the format to a file. The text is printed as well.
//	--plain-http HOST
//		A registry without TLS. It may be repeated.
//	--raw
//		Take each file for a request of any JSON, which a policy of Kubewarden or of OPA gets
//		as it is.
//	--registries FILE
//		Rules, mirrors, certificates and credentials, YAML or JSON: docs/operating.md.
//	--see KIND
//		A kind of objects that a policy may look up besides those that its metadata
//		declare, such as v1/Namespace. It may be repeated.
//	--state
//		Print the state that the instances of a scheduler plugin share, as it is in the end.
//	--subresource NAME
//		The subresource of the requests, such as status or scale.
//	--user NAME
//		The user of the requests.
//
// Example:
//
//	kubewasm run -f cluster.yaml --config config.yaml zone.wasm
//	kubewasm run -f request.yaml prefix.wasm Picker/Pick
//
// # Show where a module spends its fuel
//
// Usage:
//
//	kubewasm profile [-o pprof --output-file FILE] [--diff] [flags] RECORDING|-f FILE DIR|FILE.wasm|REFERENCE [NEW]
//
// Profile repeats the calls of a recording on a module, or calls it about the objects of a
// file, as run does, and prints the functions that used the most fuel: by themselves (FLAT) and with what they called (CUM), and by how
// much they let the memory grow. What the host charges for a host function stands under the
// name of that function. The start of the plugin does not count.
//
// The fuel of all functions together is that of the calls, exactly. It is the same on every
// machine, so one run is enough.
//
// With --diff, profile takes the old version of a plugin and the new one, and prints the
// functions that changed.
//
// The exit code is 2 if a new version costs more than --max-increase allows.
//
// The flags are:
//
//	--config FILE
//		The plugin's configuration, YAML or JSON.
//	--diff
//		Compare two versions.
//	--dry-run
//		Mark the requests as dry runs.
//	-f, --filename PATH
//		Files of objects, YAML or JSON; a directory stands for those below it, and - for the
//		standard input. It may be repeated.
//	--gatekeeper
//		Take a policy in Rego for one of Gatekeeper, whatever its entrypoint is called.
//	--grant NAME
//		A grant for the plugin, such as clock. It may be repeated.
//	--group NAME
//		A group of the user of the requests. It may be repeated.
//	--key FILE
//		The public key of who must have signed the artifact of a reference.
//	--log
//		Print what the plugin logs.
//	--max-increase PERCENT
//		With --diff, how much more fuel the new version may cost, such as 5%.
//	--namespace NAME
//		The namespace of objects that name none. The default for Pods is "default".
//	--objects PATH
//		The objects that an admission plugin or a plugin of a service may look up. With --grant
//		objects and without this flag those of an admission plugin are those of -f. A policy of
//		Kubewarden or in Rego without metadata and --see may look up each of their kinds. It may
//		be repeated.
//	--old PATH
//		The objects before an UPDATE. The default is that nothing changes. It may be repeated.
//	--operation OPERATION
//		The operation of the requests: CREATE, UPDATE, DELETE or CONNECT. The default is
//		UPDATE with --old and CREATE without.
//	-o, --output FORMAT
//		The format of the output: text, json, yaml, html or pprof. The default is text. The
//		format html has a flame graph, and pprof all call paths, for go tool pprof.
//	--output-file FILE
//		Write the output in the format to a file. The text is printed as well.
//	--plain-http HOST
//		A registry without TLS. It may be repeated.
//	--plugin NAME
//		Repeat the calls of one plugin of the recording. The default is all.
//	--raw
//		Take each file for a request of any JSON, which a policy of Kubewarden or of OPA gets
//		as it is.
//	--registries FILE
//		Rules, mirrors, certificates and credentials, YAML or JSON: docs/operating.md.
//	--see KIND
//		A kind of objects that a policy may look up besides those that its metadata
//		declare, such as v1/Namespace. It may be repeated.
//	--subresource NAME
//		The subresource of the requests, such as status or scale.
//	--top N
//		How many functions to print, 0 for all. The default is 20.
//	--user NAME
//		The user of the requests.
//
// Example:
//
//	kubewasm profile -f cluster.yaml -o pprof --output-file fuel.pb.gz zone.wasm
//	go tool pprof -http :8080 fuel.pb.gz
//	kubewasm profile --diff --max-increase 5% /var/lib/kubewasm/recording old.wasm zone.wasm
//
// # Test a module
//
// Usage:
//
//	kubewasm test [--run REGEXP] [-v] [-o junit --output-file FILE] [flags] CASES.yaml DIR|FILE.wasm|REFERENCE
//
// Test asks a module, written in any language, each case of a file, in the host that
// components embed, and compares the answers with those in the file. It prints what go test
// prints: the cases that fail, with all their failures, and a line at the end. A directory is
// built first.
//
// A scheduler plugin is asked about a Pod and a Node, or by steps from PreEnqueue to Bind:
//
//	cases:
//	- name: a Node in another zone is refused
//	  config: {zone: a}
//	  pod: {metadata: {name: web}}
//	  node: {metadata: {labels: {topology.kubernetes.io/zone: b}}}
//	  want: 'Unschedulable: node is in zone b, not in a'
//
// An admission plugin has create, update, delete or review, and a conversion convert; a hook
// has a pod and a container; a plugin of a service has a method and a request. The package
// github.com/kubewasm/kubewasm/host/cases describes the file, and runs it in Go's
// tests.
//
// The exit code is 1 if a case fails.
//
// The flags are:
//
//	--key FILE
//		The public key of who must have signed the artifact of a reference.
//	-o, --output FORMAT
//		The format of the output: text, json, yaml or junit. The default is text.
//	--output-file FILE
//		Write the output in the format to a file. The text is printed as well.
//	--plain-http HOST
//		A registry without TLS. It may be repeated.
//	--registries FILE
//		Rules, mirrors, certificates and credentials, YAML or JSON: docs/operating.md.
//	--run REGEXP
//		Ask only the cases whose names match.
//	-v, --verbose
//		Print the cases that pass as well.
//
// Example:
//
//	kubewasm test cases.yaml zone.wasm
//
// # Repeat recorded calls
//
// Usage:
//
//	kubewasm replay [-o FORMAT] [flags] RECORDING FILE.wasm
//	kubewasm replay --diff [--plugin NAME] [-o FORMAT] [flags] RECORDING OLD.wasm NEW.wasm
//
// Replay repeats the calls of a recording, a directory or a file of one, on the module that was
// recorded. Results, reasons, logs, every byte that crosses and the fuel must be the same. It
// prints the calls that differ. Calls of other modules in the recording are left out.
//
// With --diff it repeats them on two modules, and prints what the new one answers otherwise than
// the old one, in groups with an example each: other verdicts first, then questions that the
// recording has no answer to, failures, results, what the guest hands over, what it does beside its
// answer, reasons and logs.
// Fuel and time of each function are printed beside it. The calls are those of the old module
// or, if the recording is of one module only, of that.
//
// A module may also be a directory, which is built first, or the reference of an artifact. What
// a recording has lost, as the end of a file after a crash, is part of the output.
//
// The exit code is 2 if calls differ, and 1 if parts of the recording are damaged: what is before
// and behind them is repeated as far as it can be.
//
// The flags are:
//
//	--damaged
//		Take a damaged recording as it is: the exit code says only whether calls differ.
//	--diff
//		Compare two modules.
//	--key FILE
//		The public key of who must have signed the artifact of a reference.
//	-o, --output FORMAT
//		The format of the output: text, json, yaml, html or junit. The default is text. The format
//		html, with --diff, has the differences side by side.
//	--output-file FILE
//		Write the output in the format to a file. The text is printed as well.
//	--plain-http HOST
//		A registry without TLS. It may be repeated.
//	--plugin NAME
//		With --diff, compare the calls of the plugin of that name.
//	--registries FILE
//		Rules, mirrors, certificates and credentials, YAML or JSON: docs/operating.md.
//
// Example:
//
//	kubewasm replay --diff /var/lib/kubewasm/recording zone-1.2.wasm zone-1.3.wasm
//
// # Audit a cluster
//
// Usage:
//
//	kubewasm audit --policies FILE [--kubeconfig FILE | -f PATH]... [-o FORMAT] [--write] [flags]
//
// Audit asks admission policies about objects that exist: those of a cluster, or with -f those
// of files, and prints what the policies have against them. The file of the policies is that of
// the webhook server, cmd/kubewasm-webhook: see package manage of admission. Modes and failure
// policies do not count.
//
// Each object is reviewed as if it were created now, by a dry run, and nothing is changed. The
// results are fail for an object that a policy denies, warn for one that it would change, and
// error for one on which it fails. A policy about updates or deletions alone is skipped. Package
// audit of admission describes what policies see.
//
// With --state, a later audit asks only about what has changed since. With --write, the findings
// are in reports of openreports.io/v1alpha1: one Report for each namespace, and a ClusterReport
// for objects without one. Reports that have no findings any more are deleted.
//
// The exit code is 0 if no object is denied, and 2 if one is. It is 1 if something could not be
// audited, and 3 if there are no policies or one is asked about nothing, since its rules seem to
// be misspelt.
//
// The flags are:
//
//	--burst N
//		How many requests there may be to the API server at once. The default is 20.
//	--context NAME
//		The context of the kubeconfig.
//	-f, --filename PATH
//		Files of objects, YAML or JSON, instead of a cluster; a directory stands for those
//		below it, and - for the standard input. It may be repeated. What is no object, as a
//		values.yaml, is reported in the end, and all others are audited. Fields of Pods and
//		Nodes that are newer than this command are warned of.
//	--group NAME
//		A group of the user of --user. It may be repeated.
//	--kubeconfig FILE
//		How to reach the cluster. The default is that of kubectl or, in a Pod, the
//		cluster of the Pod.
//	--log
//		Print what the policies log, and what goes wrong.
//	-o, --output FORMAT
//		The format of the output: text, json, yaml, html, junit, or reports: the reports of --write
//		in YAML. The default is text. The format html has the findings by policy and namespace.
//	--output-file FILE
//		Write the output in the format to a file. The text is printed as well.
//	--plain-http HOST
//		A registry without TLS. It may be repeated.
//	--policies FILE
//		The policies, YAML or JSON.
//	--qps N
//		How many requests there may be to the API server in a second. The default is 10.
//	--registries FILE
//		Rules, mirrors, certificates and credentials, YAML or JSON: docs/operating.md.
//	--report-name NAME
//		The name of the reports. The default is kubewasm-audit. Reports of another name are
//		left alone.
//	--report-results N
//		How many results a report has at most. The default is 1000.
//	--skip-namespace NAME
//		A namespace that is not audited, as kube-system, which webhooks leave out. It may be
//		repeated.
//	--state FILE
//		The file for what a later audit need not ask again. It has the messages of findings.
//	--user NAME
//		The user who creates the objects. The default is kubewasm:audit.
//	--write
//		Write reports to the cluster.
//
// Example:
//
//	kubewasm audit --policies policies.yaml --skip-namespace kube-system --state audit.state
//	kubewasm audit --policies policies.yaml -f manifests
//
// # Write manifests
//
// Usage:
//
//	kubewasm manifests [--config FILE] [--match RULE]... [--objects RESOURCE]... [flags] DIR|FILE.wasm|REFERENCE...
//
// Manifests writes what a cluster needs to run modules of one kind, as they say it themselves:
// what admission plugins match, what hooks read and decide, and which grants the imports need.
// A module that was never seen by a cluster gets the least rights with which it loads.
//
// For admission plugins these are a ConfigMap with the policies of a webhook server, the webhook
// configurations whose rules are those of the policies, and the right to list and watch what the
// policies look up. For scheduler plugins it is a ConfigMap with a KubeSchedulerConfiguration,
// and for hooks one with the configuration of the node agent, each with such rights. Names are
// those of charts/manifests, which has the rest. A release of charts/kubewasm has its own
// ConfigMaps: put the plugins that --only config prints into its values.
//
// A ConfigMap has the policies or plugins of all modules that are named. A webhook configuration
// leaves out the namespace of the server and kube-system, by their names.
//
// The flags are:
//
//	--config FILE
//		The configuration of the plugin, YAML or JSON. It is for one module.
//	--gatekeeper
//		The modules are policies in Rego that are written for Gatekeeper.
//	--key FILE
//		The public key of who must have signed the artifact of a reference.
//	--match RULE
//		What admission plugins are asked about, in place of what their modules declare, as in
//		"CREATE,UPDATE pods deployments.apps". It may be repeated.
//	--modules DIR
//		The directory in which the component finds the files of modules. The default is
//		/plugins. A reference is fetched by the component.
//	-n, --namespace NAME
//		The namespace of the component. The default is that of its example.
//	--objects RESOURCE
//		A resource that plugins look up, such as networking.k8s.io/v1/ingresses. Modules for
//		Kubewarden declare theirs. It may be repeated.
//	--only PART
//		Write one part: config, the configuration file by itself; webhook, the webhook
//		configurations; or rbac, the rights.
//	-o, --output FORMAT
//		The format of the output: yaml, with several documents, or json, with a List. The
//		default is yaml.
//	--output-file FILE
//		Write the output to a file.
//	--plain-http HOST
//		A registry without TLS. It may be repeated.
//	--registries FILE
//		Rules, mirrors, certificates and credentials, YAML or JSON: docs/operating.md.
//
// Example:
//
//	kubewasm manifests required-labels.wasm unique-hosts.wasm --objects networking.k8s.io/v1/ingresses
//
// # List and change the policies of a server
//
// Usage:
//
//	kubewasm policies [--server URL] [flags] list
//	kubewasm policies [--server URL] [flags] load NAME DIR|FILE.wasm|REFERENCE
//	kubewasm policies [--server URL] [flags] enable|disable|remove|versions NAME
//	kubewasm policies [--server URL] [flags] rollback NAME [VERSION]
//	kubewasm policies [--server URL] [flags] shadow NAME [DIR|FILE.wasm|REFERENCE]
//	kubewasm policies [--server URL] [flags] end|promote NAME
//	kubewasm policies [--server URL] [flags] break-glass DURATION REASON
//	kubewasm policies [--server URL] [flags] break-glass end
//
// Policies asks the management API of a webhook server, which changes that server alone:
// cmd/kubewasm-webhook. Package manage of admission describes the API.
//
// Load loads a module as a policy, in place of one of its name, with the settings of a file.
// Rollback brings back the version before, or the one with the version or digest that is named.
// Shadow with a module has it asked beside the one that serves; without one it prints what the
// two have answered; promote has the candidate serve, and end ends the shadow.
//
// Break-glass lets all policies only monitor, for at most 24h, when they keep a cluster from being
// repaired. It goes to every address of the server's name, so that the name of a Service without
// an address of its own (clusterIP: None) reaches all replicas.
//
// The flags are:
//
//	--certificate-authority FILE
//		The certificates of the authorities that the server's is from. The default is those of
//		the system.
//	--client-certificate FILE
//		The certificate by which the server knows you.
//	--client-key FILE
//		Its key.
//	--key FILE
//		The public key of who must have signed the artifact of a reference.
//	-o, --output FORMAT
//		The format of the output: text, json or yaml. The default is text.
//	--output-file FILE
//		Write the output in the format to a file. The text is printed as well.
//	--plain-http HOST
//		A registry without TLS. It may be repeated.
//	--registries FILE
//		Rules, mirrors, certificates and credentials, YAML or JSON: docs/operating.md.
//	-s, --server URL
//		The server, as in https://localhost:8443. The default is KUBEWASM_SERVER.
//	--settings FILE
//		With load and shadow, the settings of the policy or of the shadow as in the API, YAML or
//		JSON, without the module.
//	--token-file FILE
//		A file with the token of the API. The default is KUBEWASM_TOKEN_FILE.
//
// Example:
//
//	kubewasm policies --server https://localhost:8443 --token-file token load owner required-labels.wasm
//
// # Export plugins to objects
//
// Usage:
//
//	kubewasm export [--kind KIND] [--template KIND=REFERENCE]... [--resource KIND=PLURAL]... [flags] FILE...
//
// Export turns plugins that other files declare into objects of kubewasm.dev, which docs/cluster.md
// describes: the policies of a webhook server's configuration, the plugins of a node agent's, a
// ConfigMap with one of them, policies of Kubewarden, and constraints of Gatekeeper. A setting
// without an equivalent that changes what is decided is an error that names it; all of them are
// reported, and nothing is written. Settings of other servers, such as the PolicyServer of a
// policy, are left out.
//
// The module of a constraint's template is named by --template, and the resources of kinds that are
// not Kubernetes' own by --resource. A constraint on Pods is asked about their ephemeral containers,
// too, as by Gatekeeper's webhook.
//
// The flags are:
//
//	--kind KIND
//		The kind of the plugins in a program's file, ClusterAdmissionPolicy or NodeHook. It
//		is needed for a plugin whose members both have.
//	-o, --output FORMAT
//		The format of the output: yaml, with several documents, or json, with a List. The
//		default is yaml.
//	--output-file FILE
//		Write the output to a file.
//	--resource KIND=PLURAL
//		The resource of a kind in constraints, as in Gateway=gateways. It may be repeated.
//	--template KIND=REFERENCE
//		The module of the constraints of a kind, as in
//		K8sRequiredLabels=ghcr.io/acme/required-labels:1. It may be repeated.
//
// Example:
//
//	kubewasm export policies.yaml
//
// # Compare objects with a cluster
//
// Usage:
//
//	kubewasm diff -f PATH... [flags]
//
// Diff prints what kubectl apply would change of objects of kubewasm.dev in a cluster, by a dry run,
// and all mistakes in their specs, in the words of the program that would refuse them. It changes
// nothing.
//
// The exit code is 2 if there is a difference or a mistake.
//
// The flags are:
//
//	--context NAME
//		The context of the kubeconfig.
//	-f, --filename PATH
//		Files of objects, YAML or JSON; a directory stands for those below it, and - for the
//		standard input. It may be repeated.
//	--kubeconfig FILE
//		The kubeconfig. The default is that of kubectl or, in a Pod, the service account.
//	-n, --namespace NAME
//		The namespace of objects that name none. The default is that of the kubeconfig.
//	-o, --output FORMAT
//		The format of the output: text, json or yaml. The default is text.
//	--output-file FILE
//		Write the output in the format to a file. The text is printed as well.
//
// Example:
//
//	kubewasm diff -f policies/
//
// # Show the plugins of a cluster
//
// Usage:
//
//	kubewasm status [flags] [NAME|KIND/NAME]
//
// Status prints the plugins that the objects of a cluster declare, and of one that is named its
// conditions and the state in each process, those that do not serve it first. Many processes in
// the same state are one row. It reads PluginReports in all namespaces for that.
//
// Installed as kubectl-kubewasm on the PATH, the program is a plugin of kubectl: kubectl kubewasm
// status.
//
// The exit code is 2 if a plugin is not in service as it was declared, and 1 if plugins cannot be
// listed.
//
// The flags are:
//
//	--all
//		Print a row for each process.
//	--context NAME
//		The context of the kubeconfig.
//	--kubeconfig FILE
//		The kubeconfig. The default is that of kubectl or, in a Pod, the service account.
//	--logs
//		Print the lines about the plugin in the logs of its processes, of 50 at most.
//	-n, --namespace NAME
//		The namespace of the plugins. The default is all.
//	-o, --output FORMAT
//		The format of the output: text, json or yaml. The default is text.
//	--output-file FILE
//		Write the output in the format to a file. The text is printed as well.
//	--since DURATION
//		The age of the oldest line with --logs, such as 1h. The default is 10m.
//
// Example:
//
//	kubewasm status NodeHook/batch-share
//
// # Push a module to a registry
//
// Usage:
//
//	kubewasm push [--image] [--key FILE] [--annotation KEY=VALUE]... [flags] DIR|FILE.wasm REFERENCE
//
// Push writes a module to an OCI registry, or to an image layout in a directory, and prints
// the reference with the digest. A directory is built first. The same module, flags and
// SOURCE_DATE_EPOCH have the same digest.
//
// A reference is HOST/REPOSITORY:TAG, or oci-layout:DIR:TAG. Credentials are those of
// docker login. The artifact has the configuration application/vnd.wasm.config.v0+json and
// one layer application/wasm; its annotations have the name, the version and what the
// metadata of the module say.
//
// The flags are:
//
//	--annotation KEY=VALUE
//		An annotation of the manifest, such as
//		org.opencontainers.image.licenses=Apache-2.0. It may be repeated.
//	--attach TYPE=FILE
//		A document that refers to the artifact, such as
//		application/spdx+json=sbom.json. It may be repeated.
//	--file-name NAME
//		The name of the file in a volume. The default is plugin.wasm.
//	--image
//		Push an image with one file, for image volumes of containerd, instead of an
//		artifact.
//	--key FILE
//		Sign the artifact with this private key, as sign does. A password is asked for as
//		by sign.
//	-o, --output FORMAT
//		The format of the output: text, json or yaml. The default is text.
//	--plain-http HOST
//		A registry without TLS. It may be repeated.
//	--registries FILE
//		Mirrors, certificates and credentials, YAML or JSON: docs/operating.md.
//
// Example:
//
//	kubewasm push zone.wasm ghcr.io/acme/zone:1.2
//
// # Pull a module from a registry
//
// Usage:
//
//	kubewasm pull [--output-file FILE] [--key FILE] [flags] REFERENCE
//
// Pull writes the module of an artifact to a file, and prints its digests and who signed it.
// The file appears when it is whole. With --key, or a rule for the repository in the file of
// --registries, an artifact without the signature is an error and nothing is written.
//
// The flags are:
//
//	--key FILE
//		The public key of who must have signed, instead of the rules of --registries.
//	-o, --output FORMAT
//		The format of the output: text, json or yaml. The default is text.
//	--output-file FILE
//		The file to write. The default is plugin.wasm.
//	--plain-http HOST
//		A registry without TLS. It may be repeated.
//	--registries FILE
//		Rules, mirrors, certificates and credentials, YAML or JSON: docs/operating.md.
//
// Example:
//
//	kubewasm pull --key acme.pub --output-file zone.wasm ghcr.io/acme/zone:1.2
//
// # Copy an artifact
//
// Usage:
//
//	kubewasm copy [flags] REFERENCE REFERENCE
//
// Copy writes an artifact to another registry or to an image layout, with its signatures and
// the documents that refer to it, and prints the new reference with the digest, which stays.
// A layout in a directory or a tar of it carries modules to a cluster without a registry.
//
// The flags are:
//
//	-o, --output FORMAT
//		The format of the output: text, json or yaml. The default is text.
//	--plain-http HOST
//		A registry without TLS. It may be repeated.
//	--registries FILE
//		Mirrors, certificates and credentials, YAML or JSON: docs/operating.md.
//
// Example:
//
//	kubewasm copy ghcr.io/acme/zone:1.2 oci-layout:plugins:1.2
//
// # Sign an artifact
//
// Usage:
//
//	kubewasm sign --key FILE [--annotation KEY=VALUE]... [flags] REFERENCE
//
// Sign signs the digest that a reference leads to, writes the signature beside the artifact,
// and prints the reference with the digest that was signed. The signature is one of cosign,
// which verifies it as well. Signatures by an identity are made by cosign itself.
//
// The flags are:
//
//	--annotation KEY=VALUE
//		A pair that is signed with the digest. It may be repeated.
//	--format FORMAT
//		How the signature is stored: under a tag, as cosign 2 does; as a bundle that refers
//		to the artifact, as cosign 3 does; or both, the default.
//	--key FILE
//		The private key in PEM: ECDSA, Ed25519 or RSA, in PKCS #8 or as OpenSSL writes it,
//		or one of cosign generate-key-pair. The password of the latter is COSIGN_PASSWORD of
//		the environment, or is asked for at the terminal.
//	-o, --output FORMAT
//		The format of the output: text, json or yaml. The default is text.
//	--plain-http HOST
//		A registry without TLS. It may be repeated.
//	--registries FILE
//		Mirrors, certificates and credentials, YAML or JSON: docs/operating.md.
//
// Example:
//
//	kubewasm sign --key acme.key ghcr.io/acme/zone:1.2
//
// # Print the version
//
// Usage:
//
//	kubewasm version [-o FORMAT]
//
// Version prints the version of the module kubewasm that the program is a part of, the ABI
// that its hosts and guests speak, and the Go that built it.
//
// The flags are:
//
//	-o, --output FORMAT
//		The format of the output: text, json or yaml. The default is text.
//
// Example:
//
//	kubewasm version
//
// # Exit codes
//
// docs/exit-codes.md has a table of the commands:
//
//	0    The command succeeded, and the answer is yes.
//	1    An error: a wrong flag, a file that cannot be read, a case of test that fails.
//	2    The command worked, and the answer is no: a plugin refused an object, calls differ, or
//	     no host runs the module.
//	3    Nothing was asked: the rules of a policy or of a module match no object.
//	130  The command was interrupted by Ctrl-C or SIGTERM. A second signal ends it at once.
package main
