// Package v1 defines a custom resource in the way of a controller.
package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// CronTab is a custom resource.
type CronTab struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              CronTabSpec `json:"spec"`
}

// CronTabSpec is the desired state of a CronTab.
type CronTabSpec struct {
	Schedule   string              `json:"schedule"`
	Replicas   int32               `json:"replicas"`
	Suspend    bool                `json:"suspend,omitempty"`
	Since      *metav1.Time        `json:"since,omitempty"`
	Port       *intstr.IntOrString `json:"port,omitempty"`
	Labels     map[string]string   `json:"labels,omitempty"`
	Containers []Container         `json:"containers"`
}

// Container is a part of a CronTab.
type Container struct {
	Image string `json:"image"`
}

// DeepCopy returns a copy of c.
func (c *CronTab) DeepCopy() *CronTab {
	d := *c
	c.ObjectMeta.DeepCopyInto(&d.ObjectMeta)
	d.Spec.Containers = append([]Container(nil), c.Spec.Containers...)
	return &d
}

// DeepCopyObject implements runtime.Object.
func (c *CronTab) DeepCopyObject() runtime.Object { return c.DeepCopy() }
