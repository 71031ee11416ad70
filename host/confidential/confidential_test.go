package confidential_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/host/confidential"
	kjson "github.com/kubewasm/kubewasm/internal/json"
	"github.com/kubewasm/kubewasm/internal/wire"
)

const password = "aHVudGVyMg=="

func TestValuesThatAreConfidentialAreMasked(t *testing.T) {
	kept := `{\"apiVersion\":\"v1\",\"kind\":\"Secret\",\"data\":{\"p\":\"` + password + `\"}}`
	with := func(kind, annotation string) string {
		return `{"apiVersion":"v1","kind":"` + kind + `","metadata":{"name":"s","annotations":{"` + annotation + `":"` + kept + `"}},"type":"Opaque","data":{"p":"QUFBQQ=="}}`
	}
	env := `{"kind":"Pod","spec":{"containers":[{"env":[{"name":"P","value":"` + password + `"}]}]}}`
	quoted, err := json.Marshal(env)
	if err != nil {
		t.Fatal(err)
	}
	own := &confidential.Rule{Kinds: []string{"Vault", "Key.example.com"}, Fields: []string{"pin"}}
	for _, test := range []struct {
		name, data string
		rule       *confidential.Rule
		sealed     bool
	}{
		{"an annotation of kapp on a Secret", with("Secret", "kapp.k14s.io/original"), nil, true},
		{"an annotation of one's own on a Secret", with("Secret", "example.com/previous"), nil, true},
		{"an annotation of a Secret in other words", strings.Replace(with("Secret", "a"), kept, password, 1), nil, true},
		{"the annotation on a ConfigMap", with("ConfigMap", "example.com/previous"), nil, true},
		{"a Secret in a list", `{"kind":"List","items":[` + with("Secret", "kapp.k14s.io/original") + `]}`, nil, true},
		{"a list of Secrets without kinds", `{"kind":"SecretList","items":[{"metadata":{"annotations":{"a":"` + password + `"}}}]}`, nil, true},
		{"an old object", `{"request":{"kind":{"group":"","version":"v1","kind":"Secret"},"oldObject":` + with("Secret", "a") + `}}`, nil, true},
		{"an event of a watch", `{"type":"ADDED","object":{"kind":"Secret","data":{"p":"` + password + `"}}}`, nil, true},
		{"a kind that is there twice", `{"kind":"Secret","kind":"Pod","data":{"p":"` + password + `"}}`, nil, true},
		{"stringData without a kind", `{"stringData":{"p":"` + password + `"}}`, nil, true},
		{"a patch of stringData", `[{"op":"add","path":"/stringData/p","value":"` + password + `"}]`, nil, true},
		{"a manifest in YAML", `{"kind":"ConfigMap","data":{"m":"apiVersion: v1\nkind: Secret\nstringData:\n  p: ` + password + `\n"}}`, nil, true},
		{"a TokenReview", `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{"token":"` + password + `"}}`, nil, true},
		{"a TokenRequest", `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","status":{"token":"` + password + `"}}`, nil, true},
		{"a review of a TokenReview", `{"request":{"kind":{"group":"authentication.k8s.io","version":"v1","kind":"TokenReview"},"object":{"spec":{"token":"` + password + `"}}}}`, nil, true},
		{"a bare string of JSON", `"{\"kind\":\"Secret\",\"data\":{\"p\":\"` + password + `\"}}"`, nil, true},
		{"malformed JSON", `{"kind":"Secret","data":{"p":"` + password, nil, true},
		{"the environment of a Pod", env, nil, false},
		{"the environment of a custom resource", `{"kind":"App","spec":{"template":{"env":[{"name":"P","value":"` + password + `"}]}}}`, nil, false},
		{"an environment in an annotation of kubectl", `{"kind":"Pod","metadata":{"annotations":{"a":` + string(quoted) + `}}}`, nil, false},
		{"an environment in YAML", `{"kind":"ConfigMap","data":{"m":"kind: Pod\nspec:\n  containers:\n  - env:\n    - name: P\n      value: ` + password + `\n"}}`, nil, true},
		{"a kind of the rule", `{"apiVersion":"a/v1","kind":"Vault","spec":{"p":["` + password + `"]}}`, own, true},
		{"a kind of the rule with its group", `{"apiVersion":"example.com/v1","kind":"Key","spec":{"p":"` + password + `"}}`, own, true},
		{"an annotation of a kind of the rule", `{"apiVersion":"a/v1","kind":"Vault","metadata":{"annotations":{"p":"` + password + `"}}}`, own, true},
		{"a field of the rule", `{"kind":"App","spec":{"pin":{"is":"` + password + `"}}}`, own, true},
		{"a field of the rule in a text", `{"kind":"ConfigMap","data":{"m":"kind: App\nspec:\n  pin: ` + password + `\n"}}`, own, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			var found, masked confidential.Stain
			test.rule.Find("", "", []byte(test.data), &found)
			b := []byte(test.data)
			if !test.rule.Mask(b, &masked) {
				t.Error("nothing was found")
			}
			if strings.Contains(string(b), password) || len(b) != len(test.data) {
				t.Errorf("it became %s", b)
			}
			if json.Valid([]byte(test.data)) && !json.Valid(b) {
				t.Errorf("it is no JSON any more: %s", b)
			}
			if found.Sealed() != test.sealed || masked.Sealed() != test.sealed {
				t.Errorf("sealed is %t, and %t when masked, want %t", found.Sealed(), masked.Sealed(), test.sealed)
			}
			if text := found.Text("it is " + password + "."); strings.Contains(text, password) {
				t.Errorf("the text became %q", text)
			}
		})
	}
}

func TestOtherValuesAreLeftAsTheyAre(t *testing.T) {
	plain := &confidential.Rule{PlainEnvironment: true}
	for data, rule := range map[string]*confidential.Rule{
		`{"kind":"Pod","spec":{"volumes":[{"secret":{"secretName":"s"}}]}}`:                                            nil,
		`{"kind":"ConfigMap","data":{"note":"the Secret is elsewhere"}}`:                                               nil,
		`{"request":{"kind":{"kind":"Pod"},"object":{"kind":"Pod"}}}`:                                                  nil,
		`{"kind":"Pod","spec":{"containers":[{"env":[{"name":"P","valueFrom":{"fieldRef":{"fieldPath":"a"}}}]}]}}`:     nil,
		`{"kind":"Pod","spec":{"containers":[{"env":[{"name":"P","value":"a value"}]}]}}`:                              plain,
		`{"kind":"CustomResourceDefinition","spec":{"env":{"type":"array","items":{"properties":{"value":{}}}}}}`:      nil,
		`{"apiVersion":"a/v1","kind":"Key","spec":{"p":"a value"}}`:                                                    {Kinds: []string{"Key.example.com"}},
		`{"kind":"TokenReview","spec":{"audiences":["a"]},"status":{"authenticated":true,"user":{"username":"jane"}}}`: nil,
	} {
		var stain confidential.Stain
		b := []byte(data)
		if rule.Mask(b, &stain) || string(b) != data || !stain.Clean() {
			t.Errorf("%s became %s, stain is clean: %t", data, b, stain.Clean())
		}
	}
}

// podSpec has a password in each place of an environment.
func podSpec() corev1.PodSpec {
	env := []corev1.EnvVar{{Name: "P", Value: password}, {Name: "Q", ValueFrom: &corev1.EnvVarSource{}}}
	return corev1.PodSpec{
		Containers: []corev1.Container{{Name: "c", Env: env}}, InitContainers: []corev1.Container{{Name: "i", Env: env}},
		EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "e", Env: env}}},
	}
}

// The numbers of fields are those of k8s.io/api.
func TestMessagesAreMasked(t *testing.T) {
	template := corev1.PodTemplateSpec{Spec: podSpec()}
	applied := `{"kind":"Pod","spec":{"containers":[{"env":[{"name":"P","value":"` + password + `"}]}]}}`
	meta := metav1.ObjectMeta{Name: "n", Annotations: map[string]string{"kubectl.kubernetes.io/last-applied-configuration": applied}}
	secret := corev1.Secret{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"a": password}}, Data: map[string][]byte{"p": []byte(password)}, StringData: map[string]string{"q": password}}
	for _, object := range []interface{ Marshal() ([]byte, error) }{
		&secret,
		&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: password}},
		&authenticationv1.TokenRequest{Status: authenticationv1.TokenRequestStatus{Token: password}},
		&corev1.Pod{ObjectMeta: meta, Spec: podSpec()},
		&corev1.PodTemplate{ObjectMeta: meta, Template: template},
		&corev1.ReplicationController{ObjectMeta: meta, Spec: corev1.ReplicationControllerSpec{Template: &template}},
		&appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Template: template}},
		&appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Template: template}},
		&appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Template: template}},
		&appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Template: template}},
		&batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Template: template}},
		&batchv1.CronJob{ObjectMeta: meta, Spec: batchv1.CronJobSpec{JobTemplate: batchv1.JobTemplateSpec{ObjectMeta: meta, Spec: batchv1.JobSpec{Template: template}}}},
		&corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"m": "kind: Secret\nstringData:\n  p: " + password}},
		&corev1.Service{ObjectMeta: meta},
	} {
		kind := reflect.TypeOf(object).Elem().Name()
		t.Run(kind, func(t *testing.T) {
			message, err := object.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			var rule *confidential.Rule
			shape := rule.ShapeOf("", kind)
			list := append([]byte{1<<3 | 2}, append(varint(len(message)), message...)...)
			for name, data := range map[string][]byte{"alone": bytes.Clone(message), "in a list": list} {
				var stain confidential.Stain
				length := len(data)
				if !rule.MaskMessage(shape, 0, name == "in a list", data, &stain) || bytes.Contains(data, []byte(password)) || len(data) != length {
					t.Errorf("%s: it became %q", name, data)
				}
				if text := stain.Text("it is " + password); strings.Contains(text, password) {
					t.Errorf("%s: the text became %q", name, text)
				}
			}
			masked := reflect.New(reflect.TypeOf(object).Elem()).Interface().(interface{ Unmarshal([]byte) error })
			var stain confidential.Stain
			rule.MaskMessage(shape, 0, false, message, &stain)
			if err := masked.Unmarshal(message); err != nil {
				t.Errorf("it is malformed: %v", err)
			}
			whole, err := object.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			own := &confidential.Rule{Kinds: []string{kind}}
			if own.MaskMessage(own.ShapeOf("", kind), 0, false, whole, &stain); bytes.Contains(whole, []byte(password)) || !stain.Sealed() {
				t.Error("an object of a kind of the rule is not sealed")
			}
		})
	}
}

func varint(n int) (b []byte) {
	for ; n > 127; n >>= 7 {
		b = append(b, byte(n)|0x80)
	}
	return append(b, byte(n))
}

// A guest may read a part of a Pod alone.
func TestPartsOfAMessageAreMasked(t *testing.T) {
	spec := podSpec()
	data, err := spec.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	var rule *confidential.Rule
	var stain confidential.Stain
	if !rule.MaskMessage(wire.ShapePod, 2, false, data, &stain) || bytes.Contains(data, []byte(password)) {
		t.Errorf("it became %q", data)
	}
}

func TestMalformedMessagesAreSealed(t *testing.T) {
	secret := corev1.Secret{Data: map[string][]byte{"p": []byte(password)}}
	// A message whose first byte is a line feed and whose second one is a brace is no JSON.
	secret.Name = strings.Repeat("n", 119)
	message, err := secret.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= len(message); n++ {
		var rule *confidential.Rule
		var stain confidential.Stain
		data := bytes.Clone(message[:n])
		rule.MaskMessage(wire.ShapeSecretObject, 0, false, data, &stain)
		if bytes.Contains(data, []byte(password[:8])) {
			t.Fatalf("%d bytes became %q", n, data)
		}
	}
}

func TestRequestsOfHooksAreMasked(t *testing.T) {
	request := (&hookmsg.Request{
		Stage: abi.PreCreateContainer, Level: abi.LevelContainer, Pod: hookmsg.PodMeta{Name: "web"},
		PodLabels:      map[string]string{"pin": "a1b2c3d4", "app": "web-frontend"},
		PodAnnotations: map[string]string{"a": `{"kind":"Secret","data":{"p":"` + password + `"}}`},
		ContainerEnvs:  []hookmsg.Env{{Name: "DSN", Value: "postgres://u:" + password + "@db"}},
	}).Append(nil)
	for _, test := range []struct {
		name   string
		rule   *confidential.Rule
		gone   []string
		stays  []string
		sealed bool
	}{
		{"by default", nil, []string{password}, []string{"web-frontend", "a1b2c3d4", "DSN"}, true},
		{"with a field of the request", &confidential.Rule{Fields: []string{"pod_labels"}}, []string{password, "web-frontend", "a1b2c3d4"}, []string{"DSN"}, true},
		{"with a key", &confidential.Rule{Fields: []string{"pin"}}, []string{password, "a1b2c3d4"}, []string{"web-frontend"}, true},
		{"with the environment", &confidential.Rule{Fields: []string{"container_envs"}}, []string{password}, []string{"web-frontend"}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			var stain confidential.Stain
			data := bytes.Clone(request)
			test.rule.MaskMessage(wire.ShapeHookRequest, 0, false, data, &stain)
			for _, text := range test.gone {
				if bytes.Contains(data, []byte(text)) {
					t.Errorf("%s is in %q", text, data)
				}
			}
			for _, text := range test.stays {
				if !bytes.Contains(data, []byte(text)) {
					t.Errorf("%s is not in %q", text, data)
				}
			}
			if stain.Sealed() != test.sealed {
				t.Errorf("sealed is %t", stain.Sealed())
			}
		})
	}
}

// Of a value that is not sealed, no eight bytes are found in a text, wherever they stand.
func TestATextRepeatsNoPartOfAValue(t *testing.T) {
	const value = "postgres://shop:correct horse battery@db/orders"
	var stain confidential.Stain
	stain.AddText(value)
	stain.AddText("short")
	for i := range len(value) {
		for n := 8; i+n <= len(value); n++ {
			text := stain.Text(fmt.Sprintf("the value <%s> is bad (short)", value[i:i+n]))
			for j := 0; j+8 <= len(value); j++ {
				if strings.Contains(text, value[j:j+8]) {
					t.Fatalf("%q has %q", text, value[j:j+8])
				}
			}
			if !strings.HasPrefix(text, "the value <") || !strings.HasSuffix(text, "> is bad (xxxxx)") {
				t.Fatalf("the text became %q", text)
			}
		}
	}
	if text := stain.Text("the image is not allowed"); text != "the image is not allowed" {
		t.Errorf("a text became %q", text)
	}
}

// A value that a message or a patch has in quotes is masked with its escapes.
func TestATextRepeatsNoValueInQuotes(t *testing.T) {
	for _, value := range []string{`pa"ss\wo"rd`, "a<b>c&d\te", `p"w1`, "pässwörd\n"} {
		var stain confidential.Stain
		stain.AddText(value)
		marshaled, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		for _, quoted := range []string{strconv.Quote(value), strconv.QuoteToASCII(value), string(kjson.AppendString(nil, value)), string(marshaled)} {
			text := stain.Text("the value " + quoted + " is bad")
			if want := `the value "` + strings.Repeat("x", len(quoted)-2) + `" is bad`; text != want {
				t.Errorf("%s: the text is %q, want %q", quoted, text, want)
			}
		}
	}
}

// A value is masked in base64 and in hexadecimal, wherever it begins, also in a text that is encoded again.
func TestATextRepeatsNoValueInAnotherEncoding(t *testing.T) {
	const value = "correct horse battery"
	var stain confidential.Stain
	stain.AddText(value)
	stain.AddText("pin-77")
	type encode = func(string) string
	standard := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	encodings := map[string]encode{
		"base64": standard, "base64 for URLs": func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) },
		"hexadecimal": func(s string) string { return hex.EncodeToString([]byte(s)) }, "capitals": func(s string) string { return strings.ToUpper(hex.EncodeToString([]byte(s))) },
		"base64 twice": func(s string) string { return standard(standard(s)) }, "base64 in hexadecimal": func(s string) string { return hex.EncodeToString([]byte(standard(s))) },
	}
	for name, encode := range encodings {
		for _, before := range []string{"", "u", "us", "use", "user:"} {
			for _, v := range []string{value, "pin-77"} {
				text := "token-" + encode(before+v) + ", and nothing else"
				got := stain.Text(text)
				if len(got) != len(text) || !strings.HasPrefix(got, "token-") || !strings.HasSuffix(got, ", and nothing else") {
					t.Errorf("%s: %q became %q", name, text, got)
				}
				// All but the letters of what is before and behind the value.
				if masked, want := strings.Count(got, "x"), len(encode(v))-4; masked < want {
					t.Errorf("%s: of %q %d letters are masked, want %d at least: %q", name, text, masked, want, got)
				}
			}
		}
	}
	for _, text := range []string{"eHl6IHRoaXMgaXMgbm90aGluZyB0byBoaWRl", "0123456789abcdef0123456789abcdef", "registry.example.com/shop/web"} {
		if got := stain.Text(text); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}

// The answer of a service of the host stays a message after a seal, so that a replay goes on.
func TestTheFieldsOfAMessageAreMasked(t *testing.T) {
	message := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), password)
	message = protowire.AppendVarint(protowire.AppendTag(message, 2, protowire.VarintType), 1<<40)
	message = protowire.AppendFixed64(protowire.AppendTag(message, 3, protowire.Fixed64Type), 77)
	message = protowire.AppendFixed32(protowire.AppendTag(message, 4, protowire.Fixed32Type), 78)
	want := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), strings.Repeat("x", len(password)))
	want = append(protowire.AppendTag(want, 2, protowire.VarintType), 0x80, 0x80, 0x80, 0x80, 0x80, 0)
	want = protowire.AppendFixed64(protowire.AppendTag(want, 3, protowire.Fixed64Type), 0)
	want = protowire.AppendFixed32(protowire.AppendTag(want, 4, protowire.Fixed32Type), 0)
	var stain confidential.Stain
	if stain.MaskFields(message) {
		t.Error("it is masked before there is anything to hide")
	}
	stain.Seal()
	if !stain.MaskFields(message) || !bytes.Equal(message, want) {
		t.Errorf("it became %q, want %q", message, want)
	}
	malformed := []byte("\x0a\x7f" + password)
	if stain.MaskFields(malformed); string(malformed) != strings.Repeat("x", len(malformed)) {
		t.Errorf("a malformed one became %q", malformed)
	}
}

// A message whose first field has as many bytes as a brace is no part of a document in JSON.
func TestAMessageIsNotTakenForJSON(t *testing.T) {
	text := strings.Repeat("a text about env and nothing else, ", 4)[:'{']
	manifest := `{"kind":"Secret","data":{"p":"` + password + `"}}`
	message := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), text)
	message = protowire.AppendString(protowire.AppendTag(message, 2, protowire.BytesType), manifest)
	var rule *confidential.Rule
	var stain confidential.Stain
	if !rule.Mask(message, &stain) || bytes.Contains(message, []byte(password)) || !bytes.Contains(message, []byte(text)) {
		t.Errorf("it became %q", message)
	}
}

// Too much to remember seals, and takes no more memory.
func TestAStainIsBounded(t *testing.T) {
	for name, size := range map[string]int{"long values": 1 << 10, "short values": 6} {
		var stain confidential.Stain
		n := 0
		for ; !stain.Sealed() && n < 1<<20; n++ {
			stain.AddText(fmt.Sprintf("%0*d", size, n))
		}
		if !stain.Sealed() {
			t.Errorf("%s: %d are not too many", name, n)
		}
		if got := stain.Text("a text"); got != confidential.Withheld {
			t.Errorf("%s: the text is %q", name, got)
		}
	}
}

// A search reads what is deep in a document a bounded number of times, and seals what it does not read.
func TestASearchIsBounded(t *testing.T) {
	t.Parallel()
	nested := func(depth, bytes int) []byte {
		env := `"` + strings.Repeat("no value ", bytes/9) + `"`
		return []byte(strings.Repeat(`{"a":`, depth) + `{"kind":"Pod","env":` + env + `}` + strings.Repeat("}", depth))
	}
	for _, test := range []struct {
		name         string
		depth, bytes int
		sealed       bool
	}{
		{"an object of a usual depth, as large as an API server stores", 15, 3 << 19, false},
		{"a deep one that is small", 190, 64 << 10, false},
		{"a deep one that is large", 190, 2 << 20, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			data := nested(test.depth, test.bytes)
			var found, masked, message confidential.Stain
			(*confidential.Rule)(nil).Find("", "", data, &found)
			for name, changed := range map[string]bool{
				"masked":            (*confidential.Rule)(nil).Mask(bytes.Clone(data), &masked),
				"masked, a message": (*confidential.Rule)(nil).MaskMessage(wire.ShapePod, 0, false, bytes.Clone(data), &message),
			} {
				if changed != test.sealed {
					t.Errorf("%s: %t, want %t", name, changed, test.sealed)
				}
			}
			if found.Sealed() != test.sealed || masked.Sealed() != test.sealed || message.Sealed() != test.sealed {
				t.Errorf("sealed is %t, %t when masked and %t as a message, want %t", found.Sealed(), masked.Sealed(), message.Sealed(), test.sealed)
			}
		})
	}
}

// Join adds values and seals.
func TestStainsAreJoined(t *testing.T) {
	t.Parallel()
	var a, b, sealed confidential.Stain
	a.AddText("pin-77")
	a.AddText("correct horse battery")
	b.Join(&a)
	const text = "pin-77 of correct horse battery, and more"
	if got, want := b.Text(text), a.Text(text); got != want || strings.Contains(got, "horse") {
		t.Errorf("the text is %q, want %q", got, want)
	}
	if sealed.Seal(); b.Sealed() {
		t.Error("it is sealed")
	}
	if b.Join(&sealed); !b.Sealed() {
		t.Error("it is not sealed")
	}
}

func TestRuleReportsEveryMistake(t *testing.T) {
	rule := confidential.Rule{Kinds: []string{"", "a/B", ".x", "Key.example.com"}, Fields: []string{"", "pin"}}
	if errs := rule.Check(); len(errs) != 4 {
		t.Errorf("%d mistakes are reported: %v", len(errs), errs)
	}
}

func TestResourcesThatAreSealed(t *testing.T) {
	rule := &confidential.Rule{Kinds: []string{"Key.example.com", "NetworkPolicy", "Certificate"}}
	for resource, want := range map[string]bool{
		"v1/secrets": true, "v1/configmaps": false, "example.com/v1/keys": true, "other.com/v1/keys": false, "networking.k8s.io/v1/networkpolicies": true,
		"cert-manager.io/v1/certificates": true, "cert-manager.io/v1/certificaterequests": false,
	} {
		if got := rule.SealsResource(resource); got != want {
			t.Errorf("%s is sealed: %t, want %t", resource, got, want)
		}
	}
}

// FuzzRule: JSON keeps its length and stays JSON, a planted value is gone, and no bytes make the
// rule panic.
func FuzzRule(f *testing.F) {
	f.Add([]byte(`{"kind":"Secret","data":{"p":"@"}}`), "a planted value", uint8(0))
	f.Add([]byte(`[{"data":{"a":1},"type":"x"}]`), "12345678", uint8(1))
	f.Add([]byte(`{"kind":"Pod","spec":{"containers":[{"env":[{"name":"P","value":"@"}]}]}}`), "hunter2hunter2", uint8(2))
	f.Add([]byte("\x0a{\x12\x07\x0a\x01a\x12\x02bc"), "a planted value", uint8(3))
	f.Fuzz(func(t *testing.T, data []byte, planted string, shape uint8) {
		rule := &confidential.Rule{Kinds: []string{"Vault"}, Fields: []string{"pin"}}
		valid := json.Valid(data)
		b := bytes.Clone(data)
		var stain, found confidential.Stain
		rule.Mask(b, &stain)
		rule.Find("", "", data, &found)
		if len(b) != len(data) || valid && !json.Valid(b) {
			t.Errorf("%q became %q", data, b)
		}
		if stain.Sealed() != found.Sealed() || stain.Clean() != found.Clean() {
			t.Errorf("%q: masked, it is sealed %t and clean %t; found, %t and %t", data, stain.Sealed(), stain.Clean(), found.Sealed(), found.Clean())
		}
		b = bytes.Clone(data)
		rule.MaskMessage(confidential.Shape(shape), uint32(shape)>>5, shape&16 != 0, b, &stain)
		if len(b) != len(data) {
			t.Errorf("%q became %q", data, b)
		}
		planted = base64.StdEncoding.EncodeToString([]byte(planted))
		if len(planted) < 8 || strings.Trim(planted, "x=") == "" {
			return
		}
		for _, document := range []string{
			fmt.Sprintf(`{"a":[{"kind":"Secret","%s":{"k":%q}}]}`, []string{"data", "stringData"}[shape%2], planted),
			fmt.Sprintf(`{"kind":"Pod","spec":{"containers":[{"env":[{"value":%q,"name":"a"}]}]}}`, planted),
			fmt.Sprintf(`{"kind":"Vault","status":[%q]}`, planted), fmt.Sprintf(`[{"x":{"pin":%q}}]`, planted),
		} {
			b := []byte(document)
			var stain confidential.Stain
			if rule.Mask(b, &stain); bytes.Contains(b, []byte(planted)) {
				t.Errorf("%s became %s", document, b)
			}
			if text := stain.Text("it is " + planted); strings.Contains(text, planted) {
				t.Errorf("%s: the text is %q", document, text)
			}
		}
	})
}
