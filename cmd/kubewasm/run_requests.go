package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/internal/json/jsonpatch"
	"github.com/kubewasm/kubewasm/internal/manifest"
)

// requests makes the requests for an admission plugin, as the flags describe them.
type requests struct {
	operation, user, namespace, subresource string
	old, groups                             []string
	dryRun, raw                             bool
	// given are the used flags of requests.
	given []string

	// before are the objects of the files old.
	before *manifest.Objects
	// documents are the requests of the files, if they are raw.
	documents []rawRequest
}

// rawRequest is a request that is no AdmissionRequest but any JSON.
type rawRequest struct {
	file string
	json []byte
}

var operations = []string{"CREATE", "UPDATE", "DELETE", "CONNECT"}

// flags declares the flags.
func (r *requests) flags(flags *pflag.FlagSet) {
	flags.StringVar(&r.operation, "operation", "", "")
	flags.StringArrayVar(&r.old, "old", nil, "")
	flags.StringVar(&r.user, "user", "", "")
	flags.StringArrayVar(&r.groups, "group", nil, "")
	flags.StringVar(&r.namespace, "namespace", "", "")
	flags.StringVar(&r.subresource, "subresource", "", "")
	flags.BoolVar(&r.dryRun, "dry-run", false, "")
	flags.BoolVar(&r.raw, "raw", false, "")
}

// read checks the used flags and reads the files that they name.
func (r *requests) read(ctx context.Context, t *tool, flags *pflag.FlagSet) error {
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	new(requests).flags(own)
	flags.Visit(func(f *pflag.Flag) {
		if own.Lookup(f.Name) != nil {
			r.given = append(r.given, "--"+f.Name)
		}
	})
	r.operation = strings.ToUpper(r.operation)
	switch {
	case r.raw && len(r.given) > 1:
		return &usageError{fmt.Errorf("run: %s are for requests of Kubernetes, and --raw is for others", strings.Join(slices.DeleteFunc(slices.Clone(r.given), func(f string) bool { return f == "--raw" }), ", "))}
	case r.operation == "" && len(r.old) != 0:
		r.operation = "UPDATE"
	case r.operation == "":
		r.operation = "CREATE"
	case !slices.Contains(operations, r.operation):
		return fmt.Errorf("run: --operation is %q, want %s", r.operation, strings.Join(operations, ", "))
	}
	if len(r.old) == 0 {
		return nil
	}
	if r.operation != "UPDATE" {
		return fmt.Errorf("run: --old is for UPDATE: of a %s the API server sends no other object", r.operation)
	}
	var err error
	r.before, err = r.objects(ctx, t, r.old)
	return err
}

// objects reads files of objects and puts those that name no namespace into that of the
// flag, as the API server does.
func (r *requests) objects(ctx context.Context, t *tool, files []string) (*manifest.Objects, error) {
	objects, err := t.readObjects(ctx, files)
	if err != nil || r.namespace == "" {
		return objects, err
	}
	for i := range objects.All {
		if err := r.place(&objects.All[i]); err != nil {
			return nil, fmt.Errorf("%s: %w", strings.Join(files, ", "), err)
		}
	}
	return objects, nil
}

// readRaw reads files of one raw request each.
func (r *requests) readRaw(ctx context.Context, files []string) error {
	for _, file := range files {
		data, err := readFile(ctx, file)
		if err != nil {
			return err
		}
		document, err := yaml.YAMLToJSONStrict(data)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		r.documents = append(r.documents, rawRequest{file, document})
	}
	return nil
}

// of returns the request about an object: that of the object if it is an AdmissionReview,
// otherwise the one that the API server would send. The flags change both.
func (r *requests) of(o *manifest.Object) (*admissionv1.AdmissionRequest, error) {
	request, err := r.made(o)
	if err != nil {
		return nil, err
	}
	if r.user != "" || len(r.groups) != 0 {
		// The API server adds this group for every authenticated user.
		request.UserInfo = authenticationv1.UserInfo{Username: r.user, Groups: append(slices.Clone(r.groups), "system:authenticated")}
	}
	if r.subresource != "" {
		request.SubResource, request.RequestSubResource = r.subresource, r.subresource
	}
	if r.dryRun {
		request.DryRun = &r.dryRun
	}
	return request, nil
}

func (r *requests) made(o *manifest.Object) (*admissionv1.AdmissionRequest, error) {
	if review, err := reviewed(o); review != nil || err != nil {
		return review, err
	}
	request := o.Admission()
	request.Operation = admissionv1.Operation(r.operation)
	switch request.Operation {
	case admissionv1.Delete:
		request.Object, request.OldObject = runtime.RawExtension{}, request.Object
	case admissionv1.Update:
		request.OldObject = request.Object
		if r.before == nil {
			break
		}
		old, err := r.find(o)
		if err != nil {
			return nil, err
		}
		request.OldObject.Raw = old.JSON
	}
	return request, nil
}

// find returns an object before its UPDATE.
func (r *requests) find(o *manifest.Object) (*manifest.Object, error) {
	for i := range r.before.All {
		old := &r.before.All[i]
		if old.GroupVersionKind() == o.GroupVersionKind() && old.Namespace == o.Namespace && old.Name == o.Name {
			return old, nil
		}
	}
	return nil, fmt.Errorf("%s is not in %s, and cannot be updated", describe(o), strings.Join(r.old, ", "))
}

// place puts an object that names no namespace into that of the flag.
func (r *requests) place(o *manifest.Object) error {
	var named struct {
		Metadata map[string]json.RawMessage `json:"metadata"`
	}
	if err := json.Unmarshal(o.JSON, &named); err != nil {
		return err
	}
	if named.Metadata["namespace"] != nil || isReview(o) {
		return nil
	}
	patch := fmt.Sprintf(`[{"op": "add", "path": "/metadata/namespace", "value": %q}]`, r.namespace)
	if named.Metadata == nil {
		patch = fmt.Sprintf(`[{"op": "add", "path": "/metadata", "value": {"namespace": %q}}]`, r.namespace)
	}
	object, err := jsonpatch.Apply(o.JSON, []byte(patch))
	if err != nil {
		return fmt.Errorf("%s: %w", describe(o), err)
	}
	o.Namespace, o.JSON = r.namespace, object
	return nil
}

func isReview(o *manifest.Object) bool {
	return o.GroupVersionKind() == admissionv1.SchemeGroupVersion.WithKind("AdmissionReview")
}

// reviewed returns the request in an AdmissionReview, nil for any other object.
func reviewed(o *manifest.Object) (*admissionv1.AdmissionRequest, error) {
	if !isReview(o) {
		return nil, nil
	}
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(o.JSON, &review); err != nil {
		return nil, fmt.Errorf("read AdmissionReview: %w", err)
	}
	if review.Request == nil {
		return nil, errors.New("read AdmissionReview: it has no request")
	}
	return review.Request, nil
}

// about names the subject of a request.
func about(request *admissionv1.AdmissionRequest) string {
	name := request.Kind.Kind + " "
	if request.SubResource != "" {
		name = request.Kind.Kind + "/" + request.SubResource + " "
	}
	if request.Namespace != "" && request.Kind.Kind != "Namespace" {
		name += request.Namespace + "/"
	}
	return name + request.Name
}
