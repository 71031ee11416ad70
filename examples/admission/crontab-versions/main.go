// Crontab-versions is the conversion of a custom resource: CronTabs of the version v1beta1,
// which have the host and the port in one field, to v1 and back. What v1beta1 has no field
// for is kept in an annotation, so that nothing is lost on the way. The views of both
// versions are generated from the CustomResourceDefinition, crontabs.yaml.
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -ldflags="-s -w" -o crontab-versions.wasm .
package main

import (
	"errors"
	"strconv"
	"strings"

	"github.com/kubewasm/kubewasm/examples/admission/crontab-versions/v1"
	"github.com/kubewasm/kubewasm/examples/admission/crontab-versions/v1beta1"
	"github.com/kubewasm/kubewasm/guest/admission"
	"github.com/kubewasm/kubewasm/guest/admission/field"
)

//go:generate kubewasm gen --api-version v1 --package v1 --output-dir v1 crontabs.yaml
//go:generate kubewasm gen --api-version v1beta1 --package v1beta1 --output-dir v1beta1 crontabs.yaml

var (
	spec        = field.NewPath("spec")
	annotations = field.NewPath("metadata", "annotations")
)

// The annotations that keep, in v1beta1, what only v1 has a field for.
const (
	timeZone = "stable.example.com/time-zone"
	suspend  = "stable.example.com/suspend"
)

type versions struct{}

func (versions) Convert(c *admission.Conversion, patch *admission.Patch) error {
	if c.Kind() != "CronTab" {
		return c.Unsupported()
	}
	switch c.From() + " " + c.To() {
	case "v1beta1 v1":
		return up(v1beta1.CronTabFromJSON(c.Object()), patch)
	case "v1 v1beta1":
		return down(v1.CronTabFromJSON(c.Object()), patch)
	}
	return c.Unsupported()
}

// up makes a CronTab of v1 of one of v1beta1.
func up(tab v1beta1.CronTab, patch *admission.Patch) error {
	host, portText, ok := strings.Cut(tab.Spec().HostPort(), ":")
	if !ok {
		return errors.New("spec.hostPort: " + strconv.Quote(host) + " has no port")
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return errors.New("spec.hostPort: port " + strconv.Quote(portText) + " is no number up to 65535")
	}
	patch.Remove(spec.Child("hostPort"))
	patch.Remove(spec.Child("cronSpec"))
	patch.Set(spec.Child("host"), host)
	patch.Set(spec.Child("port"), int64(port))
	patch.Set(spec.Child("schedule", "cron"), tab.Spec().CronSpec())
	kept := tab.Metadata().Annotations()
	others := kept.Len()
	if zone, ok := kept.Lookup(timeZone); ok {
		patch.Set(spec.Child("schedule", "timeZone"), zone)
		patch.Remove(annotations.Key(timeZone))
		others--
	}
	if suspended, ok := kept.Lookup(suspend); ok {
		patch.Set(spec.Child("suspend"), suspended == "true")
		patch.Remove(annotations.Key(suspend))
		others--
	}
	if others == 0 {
		patch.Remove(annotations)
	}
	return nil
}

// down makes a CronTab of v1beta1 of one of v1.
func down(tab v1.CronTab, patch *admission.Patch) error {
	patch.Remove(spec.Child("host"))
	patch.Remove(spec.Child("port"))
	patch.Remove(spec.Child("schedule"))
	patch.Remove(spec.Child("suspend"))
	patch.Set(spec.Child("hostPort"), tab.Spec().Host()+":"+strconv.Itoa(int(tab.Spec().Port())))
	patch.Set(spec.Child("cronSpec"), tab.Spec().Schedule().Cron())
	if tab.Spec().Schedule().HasTimeZone() {
		patch.Set(annotations.Key(timeZone), tab.Spec().Schedule().TimeZone())
	}
	if tab.Spec().HasSuspend() {
		patch.Set(annotations.Key(suspend), strconv.FormatBool(tab.Spec().Suspend()))
	}
	return nil
}

func init() { admission.Register(versions{}) }

func main() {}
