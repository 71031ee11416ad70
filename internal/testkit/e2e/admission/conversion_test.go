package admission_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

const cronTabGroup = "stable.example.com"

// TestConversion converts custom resources for a real API server, in steps that share one.
func TestConversion(t *testing.T) {
	f := start(t)
	c := f.conversions(t)
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"an object of one version is read and written in the other", c.testVersions},
		{"a list of objects of both versions", c.testMixedList},
		{"a guest that lies is refused by the host", c.testLies},
		{"an object that cannot be converted", c.testRefusal},
		{"the largest object that can be stored", c.testLargest},
	} {
		t.Run(step.name, step.run)
	}
}

// conversions are a CustomResourceDefinition whose conversion webhook is the server, seen
// from between the two.
type conversions struct {
	*fixture
	client *dynamic.DynamicClient
	guest  string

	mu sync.Mutex
	// sizes are how many objects the reviews had, and failures the messages of those that
	// failed.
	sizes    []int
	failures []string
}

func (f *fixture) conversions(t *testing.T) *conversions {
	t.Helper()
	c := &conversions{fixture: f, guest: guest(t, examples+"admission/crontab-versions")}
	var err error
	if c.client, err = dynamic.NewForConfig(f.Config); err != nil {
		t.Fatal(err)
	}
	c.convertBy(t, c.guest, "")
	crd := documents(t, examples+"admission/crontab-versions/crontabs.yaml")[0]
	if err := unstructured.SetNestedMap(crd.Object, map[string]any{"url": c.between(t) + "/convert", "caBundle": base64.StdEncoding.EncodeToString(f.authority.PEM)},
		"spec", "conversion", "webhook", "clientConfig"); err != nil {
		t.Fatal(err)
	}
	crds := c.client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	if _, err := crds.Create(t.Context(), crd, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// What is stored first is of v1beta1: the version that is stored changes afterwards.
	c.store(t, "v1beta1")
	return c
}

// convertBy makes a module, with its configuration if it has one, that which converts.
func (c *conversions) convertBy(t *testing.T, module, guestConfig string) {
	t.Helper()
	if guestConfig != "" {
		guestConfig = "guestConfig: " + guestConfig + ", "
	}
	c.policies(t, "plugins: [{name: tabs, "+guestConfig+"grants: [objects], converts: [{group: "+cronTabGroup+", kind: CronTab}], module: {file: "+module+", follow: true}}]")
}

// store makes a version that in which objects are stored.
func (c *conversions) store(t *testing.T, version string) {
	t.Helper()
	crds := c.client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	name := "crontabs." + cronTabGroup
	eventually(t, "the CustomResourceDefinition stores "+version, func() bool {
		crd, err := crds.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
		for _, v := range versions {
			v := v.(map[string]any)
			v["storage"] = v["name"] == version
		}
		if err := unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions"); err != nil {
			t.Fatal(err)
		}
		_, err = crds.Update(t.Context(), crd, metav1.UpdateOptions{})
		return err == nil
	})
	// A write in the version that is stored needs no conversion. The API server notices the
	// change a moment after it.
	eventually(t, "CronTabs are stored in "+version, func() bool {
		c.taken()
		_, err := c.tabs(version).Create(t.Context(), c.tab(version, "probe"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err == nil && len(c.taken()) == 0
	})
}

func (c *conversions) tabs(version string) dynamic.ResourceInterface {
	return c.client.Resource(schema.GroupVersionResource{Group: cronTabGroup, Version: version, Resource: "crontabs"}).Namespace("shop")
}

// tab returns a CronTab.
func (c *conversions) tab(version, name string) *unstructured.Unstructured {
	spec := map[string]any{"hostPort": "db.shop:5432", "cronSpec": "0 3 * * *", "image": "backup:1"}
	if version == "v1" {
		spec = map[string]any{"host": "db.shop", "port": int64(5432), "schedule": map[string]any{"cron": "0 3 * * *", "timeZone": "Europe/Berlin"}, "image": "backup:1"}
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": cronTabGroup + "/" + version, "kind": "CronTab", "metadata": map[string]any{"name": name}, "spec": spec,
	}}
}

// taken returns how many objects the reviews had since it was called last.
func (c *conversions) taken() []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	sizes := c.sizes
	c.sizes = nil
	return sizes
}

// between runs a proxy in front of the server, with the same certificate, which notes what
// the API server asks and hears.
func (c *conversions) between(t *testing.T) string {
	t.Helper()
	target, err := url.Parse(c.fixture.url)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = c.authority.HTTP().Transport
	proxy.ModifyResponse = func(r *http.Response) error {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return err
		}
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		var review struct {
			Response struct {
				Result           metav1.Status     `json:"result"`
				ConvertedObjects []json.RawMessage `json:"convertedObjects"`
			} `json:"response"`
		}
		if err := json.Unmarshal(body, &review); err != nil {
			return fmt.Errorf("%w: %s", err, body)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.sizes = append(c.sizes, len(review.Response.ConvertedObjects))
		if review.Response.Result.Status != metav1.StatusSuccess {
			c.failures = append(c.failures, review.Response.Result.Message)
		}
		return nil
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: proxy}
	go server.ServeTLS(listener, filepath.Join(c.dir, "tls.crt"), filepath.Join(c.dir, "tls.key"))
	t.Cleanup(func() { server.Close() })
	return "https://" + listener.Addr().String()
}

// canonical returns a value in JSON.
func canonical(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func (c *conversions) testVersions(t *testing.T) {
	old, current := c.tabs("v1beta1"), c.tabs("v1")
	if _, err := old.Create(t.Context(), c.tab("v1beta1", "old"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	read, err := current.Get(t.Context(), "old", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := canonical(t, read.Object["spec"]), `{"host":"db.shop","image":"backup:1","port":5432,"schedule":{"cron":"0 3 * * *"}}`; got != want {
		t.Errorf("in v1 the spec is %s, want %s", got, want)
	}
	// What v1beta1 has no field for comes back.
	if err := unstructured.SetNestedField(read.Object, "Europe/Berlin", "spec", "schedule", "timeZone"); err != nil {
		t.Fatal(err)
	}
	if _, err := current.Update(t.Context(), read, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	stored, err := old.Get(t.Context(), "old", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := stored.GetAnnotations()[cronTabGroup+"/time-zone"]; got != "Europe/Berlin" {
		t.Errorf("in v1beta1 the annotations are %v", stored.GetAnnotations())
	}
	again, err := current.Get(t.Context(), "old", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := canonical(t, again.Object["spec"]), canonical(t, read.Object["spec"]); got != want || len(again.GetAnnotations()) != 0 {
		t.Errorf("in v1 the spec is %s, want %s; and the annotations are %v", got, want, again.GetAnnotations())
	}
}

func (c *conversions) testMixedList(t *testing.T) {
	c.store(t, "v1")
	for i := range 20 {
		if _, err := c.tabs("v1").Create(t.Context(), c.tab("v1", fmt.Sprint("new-", i)), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	c.taken()
	for _, version := range []string{"v1beta1", "v1"} {
		list, err := c.tabs(version).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(list.Items) != 21 {
			t.Errorf("%d CronTabs in %s, want 21", len(list.Items), version)
		}
		for _, item := range list.Items {
			if item.GetAPIVersion() != cronTabGroup+"/"+version {
				t.Errorf("%s is of %s, want %s", item.GetName(), item.GetAPIVersion(), version)
			}
			if _, ok, _ := unstructured.NestedString(item.Object, "spec", map[string]string{"v1": "host", "v1beta1": "hostPort"}[version]); !ok {
				t.Errorf("%s has the spec %v", item.GetName(), item.Object["spec"])
			}
		}
	}
	t.Logf("reviews had %v objects", c.taken())
}

func (c *conversions) testLies(t *testing.T) {
	defer c.convertBy(t, c.guest, "")
	const v1 = `{"op":"replace","path":"/apiVersion","value":"` + cronTabGroup + `/v1"}`
	for lie, want := range map[string]string{
		`[` + v1 + `,{"op":"replace","path":"/metadata/name","value":"other"}]`:               `metadata.name is "other", want "lie"`,
		`[` + v1 + `,{"op":"add","path":"/metadata/finalizers","value":["a.example.com/b"]}]`: `metadata.finalizers has changed: a conversion may change labels and annotations`,
		`'"nothing changes"'`: `apiVersion is "` + cronTabGroup + `/v1beta1", want "` + cronTabGroup + `/v1"`,
	} {
		c.convertBy(t, admissionDir+"testdata/converter.wasm", lie)
		c.mu.Lock()
		c.failures = nil
		c.mu.Unlock()
		_, err := c.tabs("v1beta1").Create(t.Context(), c.tab("v1beta1", "lie"), metav1.CreateOptions{})
		if err == nil || !strings.Contains(err.Error(), "conversion webhook for "+cronTabGroup+"/v1beta1, Kind=CronTab failed: plugin") || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %s", err, want)
		}
		c.mu.Lock()
		if len(c.failures) == 0 || !strings.HasPrefix(c.failures[0], `plugin "tabs": convert objects[0], CronTab shop/lie of `) {
			t.Errorf("the API server heard the failures %q", c.failures)
		}
		c.mu.Unlock()
	}
}

func (c *conversions) testRefusal(t *testing.T) {
	bad := c.tab("v1beta1", "bad")
	// The schema lets it pass: the port is a number of five digits.
	if err := unstructured.SetNestedField(bad.Object, "db:99999", "spec", "hostPort"); err != nil {
		t.Fatal(err)
	}
	_, err := c.tabs("v1beta1").Create(t.Context(), bad, metav1.CreateOptions{})
	if want := `spec.hostPort: port "99999" is no number up to 65535`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error is %v, want %s", err, want)
	}
}

// testLargest: an object whose bytes become six each on the way to the webhook.
func (c *conversions) testLargest(t *testing.T) {
	large := c.tab("v1", "large")
	if err := unstructured.SetNestedField(large.Object, strings.Repeat("x", 1400<<10), "spec", "image"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.tabs("v1").Create(t.Context(), large, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	read, err := c.tabs("v1beta1").Get(t.Context(), "large", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if image, _, _ := unstructured.NestedString(read.Object, "spec", "image"); len(image) != 1400<<10 {
		t.Errorf("the image has %d bytes", len(image))
	}
	if err := c.tabs("v1").Delete(t.Context(), "large", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}
