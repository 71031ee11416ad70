package conformance_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubewasm/kubewasm/internal/guestbuild"
	toolchains "github.com/kubewasm/kubewasm/internal/testkit/languages"
)

// TestReadersOfRustKnowWhatIsOfNoCall holds that a message that the host has not given, which can
// have any lifetime, does not stand for the call: the guest traps.
func TestReadersOfRustKnowWhatIsOfNoCall(t *testing.T) {
	toolchains.Slow(t)
	instance := alone(t, compileRust(t, "json"))
	if _, err := instance.ExportedFunction("stray").Call(t.Context()); err == nil || !strings.Contains(err.Error(), "unreachable") {
		t.Errorf("the guest goes on: %v", err)
	}
}

// keeper is the beginning of a plugin in safe Rust that keeps values over calls.
const keeper = `#![forbid(unsafe_code)]
#![allow(dead_code, unused_imports, unused_variables)]
use kubewasm::admission::{self, Conversion, Patch, Request};
use kubewasm::api::core::Pod;
use kubewasm::json::Value;
use kubewasm::sched::{self, NodeInfo, Nodes, PodGroup};
use kubewasm::{hooks, Call};

/// A table in the source, with an escape.
static TABLE: &[u8] = br#"{"allowed": "registry.\u0065xample.com", "metadata": {"name": "\u0061"}}"#;

/// Keeps a value over calls.
fn keep<T: 'static>(value: T) {
    Box::leak(Box::new(value));
}

kubewasm::config! {
    struct Plugin;
}

impl hooks::Hook for Plugin {
    fn decide(&self, _: hooks::Request<'_>, _: &mut hooks::Decision) -> Result<(), String> {
        Ok(())
    }
}

kubewasm::plugin! {
    Plugin: Hook;
}
`

// The parameters of functions of a plugin, by what they are about.
const (
	ofRequest    = "req: &Request<'_>"
	ofConversion = "c: &Conversion<'_>, patch: &mut Patch<'_>"
	ofHook       = "req: hooks::Request<'_>"
	ofCycle      = "pod: Pod<'_>, node: NodeInfo<'_>, nodes: Nodes<'_>, group: PodGroup<'_>, node_name: &str"
	ofAlone      = ""
)

// TestReadersOfRustKeepNothing holds that safe Rust keeps nothing over calls of what the SDK has
// read: rustc refuses it. A copy may be kept.
func TestReadersOfRustKeepNothing(t *testing.T) {
	toolchains.Slow(t)
	const (
		lifetime = "live" // It must outlive 'static, or may not live long enough.
		missing  = "found for struct"
		private  = "E0603"
		hidden   = "E0624"
		unsafe   = "E0133"
	)
	tests := []struct{ name, parameters, body, refused string }{
		{"a copy of a text", ofRequest, "keep(req.name().to_owned())", ""},
		{"a number of an object looked up", ofCycle, `keep(sched::get_object(pod, "v1/pods", "a", "b").map(|b| b.len()))`, ""},
		{"a copy of a text decoded without a request", ofAlone, `keep(Call::with(|call| Value::of(call, TABLE).get("allowed").and_then(|v| v.text()).map(str::to_owned)))`, ""},
		{"a text of the source itself", ofRequest, "keep(std::str::from_utf8(TABLE).unwrap())", ""},
		{"a name that the SDK has", ofRequest, "keep(Value::of(req, TABLE).kind().name())", ""},

		{"the name of the object", ofRequest, "keep(req.name())", lifetime},
		{"the object", ofRequest, "keep(req.object())", lifetime},
		{"a view of the object", ofRequest, "keep(Pod::from_json(req, req.object()))", lifetime},
		{"a text of the object", ofRequest, `keep(Pod::from_json(req, req.object()).metadata().labels().get("a"))`, lifetime},
		{"the Pod of a request", ofRequest, "keep(req.pod())", lifetime},
		{"the user", ofRequest, "keep(req.user_info().groups())", lifetime},
		{"the call", ofRequest, "keep(Call::from(req))", lifetime},
		{"text decoded of the source", ofRequest, `keep(Value::of(req, TABLE).get("allowed").and_then(|v| v.text()))`, lifetime},
		{"members decoded of the source", ofRequest, "keep(Value::of(req, TABLE).members())", lifetime},
		{"a view of the source", ofRequest, "keep(Pod::from_json(req, TABLE).metadata().name())", lifetime},
		{"a view of the source in protobuf", ofRequest, "keep(Pod::from_proto(req, TABLE).metadata().name())", lifetime},
		{"a patch of the source", ofRequest, "keep(Patch::new(req, TABLE))", lifetime},
		{"an object looked up", ofRequest, `keep(admission::get(req, "v1/configmaps", "a", "b"))`, lifetime},
		{"objects listed", ofRequest, `keep(admission::list(req, "v1/configmaps", "a", "").next())`, lifetime},
		{"the list of objects", ofRequest, `keep(admission::list(req, "v1/configmaps", "a", ""))`, lifetime},
		{"text of a call of its own", ofAlone, "keep(Call::with(|call| Value::of(call, TABLE).text()))", lifetime},
		{"a call of its own", ofAlone, "keep(Call::with(|call| call))", lifetime},
		{"a request of its own", ofRequest, "keep(Request::default().object())", missing},
		{"a request for tests", ofRequest, "keep(Request::for_test(TABLE, TABLE, TABLE).options())", missing},
		{"a call for tests", ofRequest, "keep(Value::of(Call::for_test(), TABLE).text())", missing},
		{"a call out of nothing", ofRequest, "keep(Call::running())", hidden},
		{"the object of a conversion", ofConversion, "keep(c.object())", lifetime},
		{"the kind of a conversion", ofConversion, "keep(c.kind())", lifetime},
		{"a conversion of the source", ofConversion, `keep(Conversion::new(c, TABLE, "v1").kind())`, lifetime},
		{"a patch that was passed", ofConversion, "keep(std::mem::replace(patch, Patch::new(c, TABLE)))", lifetime},
		{"a label of a hook's Pod", ofHook, `keep(req.pod_labels().get("a"))`, lifetime},
		{"text decoded in a hook", ofHook, `keep(Value::of(req, TABLE).get("allowed").and_then(|v| v.text()))`, lifetime},
		{"a Pod", ofCycle, "keep(pod)", lifetime},
		{"the name of a Pod", ofCycle, "keep(pod.metadata().name())", lifetime},
		{"a node", ofCycle, "keep(node)", lifetime},
		{"the labels of a node", ofCycle, "keep(node.node().metadata().labels())", lifetime},
		{"the usage of a node", ofCycle, "keep(node.usage())", lifetime},
		{"the images of a node", ofCycle, "keep(node.images())", lifetime},
		{"the Pods of a node", ofCycle, "keep(node.pods().next())", lifetime},
		{"the names of nodes", ofCycle, "keep(nodes.names())", lifetime},
		{"the first node", ofCycle, "keep(nodes.iter().next())", lifetime},
		{"the names of the snapshot", ofCycle, "keep(sched::snapshot_node_names(pod))", lifetime},
		{"a node of the snapshot", ofCycle, `keep(sched::snapshot_node(nodes, "a"))`, lifetime},
		{"the name of a node", ofCycle, "keep(node_name)", lifetime},
		{"Pods that wait", ofCycle, "keep(sched::waiting_pods(pod))", lifetime},
		{"a Pod that waits", ofCycle, `keep(sched::get_waiting_pod(pod, "a"))`, lifetime},
		{"an object of the scheduler", ofCycle, `keep(sched::get_object(pod, "v1/pods", "a", "b"))`, lifetime},
		{"objects of the scheduler", ofCycle, `keep(sched::list_objects(pod, "v1/pods", "a").next())`, lifetime},
		{"the name of a group", ofCycle, "keep(group.name())", lifetime},
		{"the Pods of a group", ofCycle, "keep(group.pods().next())", lifetime},
		{"the plugin by another type", ofRequest, "keep(kubewasm::plugin::get::<String>())", private},
		{"the end of the call", ofAlone, "keep(hooks::export::hook::<Plugin>())", unsafe},
		{"the end of the call for a service", ofAlone, "keep(kubewasm::service::begin::<Plugin>())", unsafe},
		{"another plugin", ofAlone, "keep(kubewasm::plugin::configure::<Plugin>(|_| Ok(())))", unsafe},
	}
	sdk, err := filepath.Abs("../../guest/rust")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	manifest := fmt.Sprintf("[package]\nname = \"keeper\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\n[lib]\npath = \"lib.rs\"\ncrate-type = [\"cdylib\"]\n\n[dependencies]\nkubewasm = { path = %q }\n\n[workspace]\n", sdk)
	if err := os.WriteFile(filepath.Join(dir, "Cargo.toml"), []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	// rustc names all mistakes of one stage at once, each with its line.
	for _, refused := range []string{"", lifetime, missing, private, hidden, unsafe} {
		source := keeper
		for i, test := range tests {
			if test.refused == refused {
				source += fmt.Sprintf("\nfn f%d(%s) {\n    %s;\n}\n", i, test.parameters, test.body)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, "lib.rs"), []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := guestbuild.Compile(t.Context(), guestbuild.Config{Dir: dir, Debug: true, Output: filepath.Join(dir, "keeper.wasm")})
		if missing := (*guestbuild.MissingToolError)(nil); refused == "" || errors.As(err, &missing) {
			toolchains.Check(t, err)
			continue
		}
		if err == nil {
			t.Errorf("rustc accepts what it should refuse for %s", refused)
			continue
		}
		// A mistake begins with "error", and ends with an empty line.
		mistakes := strings.Split(err.Error(), "\nerror")
		for _, test := range tests {
			if test.refused != refused {
				continue
			}
			found := false
			for _, mistake := range mistakes {
				found = found || strings.Contains(mistake, refused) && strings.Contains(mistake, test.body+";")
			}
			if !found {
				t.Errorf("%s: rustc does not refuse %s for %s:\n%v", test.name, test.body, refused, err)
			}
		}
	}
}
