package policies_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"strings"
	"testing"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/host"
)

// saying returns the module of a guest of another ABI that has a verdict.
func saying(t *testing.T, guest, verdict string) []byte {
	t.Helper()
	dir := "testdata/verdict/"
	if guest == "stellar" {
		dir = "../../../" + dir
	}
	module, err := os.ReadFile(dir + guest + ".wasm")
	if err != nil {
		t.Fatal(err)
	}
	const room = 600
	if len(verdict) > room {
		t.Fatalf("the verdict has %d bytes, more than %d", len(verdict), room)
	}
	module = bytes.Replace(module, bytes.Repeat([]byte("@"), room), []byte(verdict+strings.Repeat(" ", room-len(verdict))), 1)
	if guest == "stellar" {
		module = bytes.Replace(module, []byte("@LEN@RC@"), binary.LittleEndian.AppendUint64(nil, uint64(len(verdict))), 1)
	}
	return module
}

// foreignVerdicts are verdicts and what becomes of them in the hosts that they were
// written for: "allowed", the message of a denial, or, for what is an error there, a part
// of the message of the failure here.
var foreignVerdicts = []struct{ guest, verdict, want string }{
	{"stellar", `{"allowed":true}`, "allowed"},
	{"stellar", `{"allowed":true,"unknown":1,"unknown":2,"message":null,"reason":null}`, "allowed"},
	{"stellar", `{"allowed":false,"ALLOWED":true,"message":"no"}`, "no"},
	{"stellar", `{"allowed":false,"Message":"no"}`, "no reason given"},
	{"stellar", `{"ALLOWED":true}`, "failed: read its output: allowed is missing"},
	{"stellar", `{"allowed":false,"allowed":true}`, `failed: read its output: duplicate field "allowed"`},
	{"stellar", `{"allowed":true,"allowed":false}`, `failed: read its output: duplicate field "allowed"`},
	{"stellar", `{"allowed":null}`, "failed: read its output: null where a value is required"},
	{"stellar", `{"allowed":"true"}`, "failed: read its output"},
	{"stellar", `{"allowed":1}`, "failed: read its output"},
	{"stellar", `{"allowed":true} {}`, "failed: read its output"},
	{"stellar", `null`, "failed: read its output: allowed is missing"},
	{"stellar", `true`, "failed: read its output"},
	{"stellar", ` `, "failed: read its output"},
	{"stellar", ``, "allowed"},
	{"stellar", `{"allowed":true,"errors":null}`, "failed: read its output: null where a value is required"},
	{"stellar", `{"allowed":true,"warnings":null}`, "failed: read its output: null where a value is required"},
	{"stellar", `{"allowed":true,"warnings":[null]}`, "failed: read its output: null where a string is required"},
	{"stellar", `{"allowed":true,"auditAnnotations":null}`, "failed: read its output: null where a value is required"},
	{"stellar", `{"allowed":true,"auditAnnotations":{"a":null}}`, "failed: read its output: null where a string is required"},
	{"stellar", `{"allowed":false,"message":"no","auditAnnotations":{"a":"1","a":"2"}}`, "no"},
	{"stellar", `{"allowed":true,"errors":[{"field":"f"}]}`, "failed: read its output: an error has no field or no message"},
	{"stellar", `{"allowed":true,"errors":[{"field":"f","message":"m","Message":"n"}]}`, "allowed"},
	{"stellar", `{"allowed":true,"errors":[{"field":"f","message":"m","message":"n"}]}`, `failed: read its output: duplicate field "message"`},
	{"stellar", `{"allowed":true,"errors":[{"field":"f","message":"m","errorType":"Odd"}]}`, `failed: read its output: unknown errorType "Odd"`},
	{"stellar", `{"allowed":true,"message":"` + "\xff" + `"}`, "failed: read its output: the text is not UTF-8"},
	{"stellar", `{"allowed":true,"message":"\ud800"}`, "failed: read its output: half of a surrogate pair"},
	{"stellar", `{"allowed":true,"message":"\ude00\ud83d"}`, "failed: read its output: half of a surrogate pair"},
	{"stellar", `{"allowed":false,"message":"\ud83d\ude00 \\ud800"}`, `😀 \ud800`},

	{"wapc", `{"accepted":true}`, "allowed"},
	{"wapc", `{"accepted":false,"ACCEPTED":true,"message":"no"}`, "no"},
	{"wapc", `{"accepted":false,"accepted":true}`, `failed: read its answer: duplicate field "accepted"`},
	{"wapc", `{"Accepted":true}`, "failed: read its answer: accepted is missing"},
	{"wapc", `{"accepted":null}`, "failed: read its answer: null where a value is required"},
	{"wapc", `{"accepted":true,"mutatedObject":{"a":1},"warnings":null,"audit_annotations":null,"message":null,"code":null}`, "allowed"},
	{"wapc", `{"accepted":true,"mutated_object":null}`, "allowed"},
	{"wapc", `{"accepted":true,"mutated_object":{}}`, "failed: changes the object"},
	{"wapc", `{"accepted":true,"code":70000}`, "failed: read its answer"},
	{"wapc", `{"accepted":true,"code":-1}`, "failed: read its answer"},
	{"wapc", `{"accepted":true,"warnings":[null]}`, "failed: read its answer: null where a string is required"},
	{"wapc", `{"accepted":true,"warnings":"one"}`, "failed: read its answer"},
	{"wapc", `{"accepted":true,"audit_annotations":{"a":1}}`, "failed: read its answer: number where a string is required"},
	{"wapc", ``, "failed: read its answer"},
	{"wapc", `{"accepted":true}x`, "failed: read its answer"},
	{"wasi", `{"valid":true,"accepted":true}`, "allowed"},
	{"wasi", `{"valid":true,"accepted":false,"Accepted":true,"message":"no"}`, "no"},
	{"wasi", `{"valid":true,"accepted":false,"accepted":true}`, `failed: read its answer: duplicate field "accepted"`},
	{"wasi", `{"valid":true}`, "failed: read its answer: accepted is missing"},

	{"opa", `[{"result":true}]`, "allowed"},
	{"opa", `[{"result":false}]`, "no reason given"},
	{"opa", `[{"result":[]}]`, "allowed"},
	{"opa", `[{"result":["a","b"]}]`, "a, b"},
	{"opa", `[]`, "failed: the policy's decision is undefined"},
	{"opa", `[{"Result":true}]`, "failed: the policy's decision is undefined"},
	{"opa", `[{"result":false,"result":true}]`, `failed: read the policy's decision: duplicate field "[0].result"`},
	{"opa", `[{"result":true},{"result":false}]`, "failed: the policy has 2 decisions, want one"},
	{"opa", `[{"result":null}]`, "failed: the policy's decision is null"},
	{"opa", `[{"result":"yes"}]`, "failed: the policy's decision is string"},
	{"opa", `[{"result":{"response":{"allowed":true,"uid":"uid-1"}}}]`, "allowed"},
	{"opa", `[{"result":{"response":{"allowed":true}}}]`, "allowed"},
	{"opa", `[{"result":{"response":{"allowed":false,"Allowed":true,"status":{"message":"no"}}}}]`, "no"},
	{"opa", `[{"result":{"response":{"allowed":false,"allowed":true}}}]`, `failed: read the policy's decision: duplicate field "response.allowed"`},
	{"opa", `[{"result":{"response":{"allowed":null}}}]`, "failed: read the policy's decision: null where a value is required"},
	{"opa", `[{"result":{"Response":{"allowed":true}}}]`, "failed: the policy's decision has no response.allowed"},
	{"opa", `[{"result":{"response":{"allowed":true,"uid":"another"}}}]`, `failed: the policy's decision is about the request "another", want "uid-1"`},
	{"opa", `[{"result":{"response":{"allowed":true,"patch":"W10="}}}]`, `failed: the policy's patch has the patchType "", want "JSONPatch"`},
	{"opa", `[{"result":{"response":{"allowed":true,"patchType":"Merge","patch":"W10="}}}]`, `failed: the policy's patch has the patchType "Merge"`},

	{"gatekeeper", `[]`, "allowed"},
	{"gatekeeper", `[{"result":[]}]`, "allowed"},
	{"gatekeeper", `[{"result":[{"msg":"a","details":{"x":1}},{"msg":"b"}]}]`, "a, b"},
	{"gatekeeper", `[{"result":[{"Msg":"a"}]}]`, "failed: read msg of the violation"},
	{"gatekeeper", `[{"result":[{"msg":null}]}]`, "failed: read msg of the violation"},
	{"gatekeeper", `[{"result":[{"msg":5}]}]`, "failed: read msg of the violation"},
	{"gatekeeper", `[{"result":[{"msg":"a","msg":"b"}]}]`, "failed: read msg of the violation"},
	{"gatekeeper", `[{"result":[7]}]`, "failed: read msg of the violation"},
	{"gatekeeper", `[{"result":true}]`, "failed: the policy's decision is bool, want violations"},
	{"gatekeeper", `[{"result":{}}]`, "allowed"},
	{"gatekeeper", `[{"result":{"{\"msg\":\"a\"}":true,"{\"msg\":\"b\"}":1,"{\"msg\":\"c\"}":false}}]`, "a, b"},
	{"gatekeeper", `[{"result":{"response":{"allowed":true}}}]`, "failed: read msg of the violation response"},
}

// Verdicts of other ABIs mean what they mean in the hosts that they were written for, and
// what is an error there fails here.
func TestForeignVerdicts(t *testing.T) {
	for _, test := range foreignVerdicts {
		t.Run(test.guest+" "+test.verdict, func(t *testing.T) {
			guest, gatekeeper := test.guest, false
			if guest == "gatekeeper" {
				guest, gatekeeper = "opa", true
			}
			p := load(t, pluginConfig{
				Config: host.Config{Name: "p", Module: host.ModuleConfig{Bytes: saying(t, guest, test.verdict)}}, Gatekeeper: gatekeeper,
			})
			got := admission.NewEngine(p).Validate(t.Context(), requestOf(`{}`))
			switch failure, failed := strings.CutPrefix(test.want, "failed: "); {
			case test.want == "allowed":
				compare(t, allowed(), got)
			case got.Allowed:
				t.Errorf("the request is allowed, want %s", test.want)
			case failed:
				if got.Result.Code != 500 || !strings.HasPrefix(got.Result.Message, `plugin "p": `+failure) {
					t.Errorf("answer is %d %s\nwant %s", got.Result.Code, got.Result.Message, failure)
				}
			case got.Result.Code != 403 || !strings.Contains(got.Result.Message, test.want):
				t.Errorf("answer is %d %s\nwant %s", got.Result.Code, got.Result.Message, test.want)
			}
		})
	}
}
