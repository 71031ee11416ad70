// Package newestapi generates the views of guest/api from the newest API of Kubernetes, and
// holds that they read all of it. It is a module of its own, since kubewasm asks for the oldest
// supported Kubernetes: guests see what a host of any version encodes.
package newestapi

//go:generate kubewasm gen --output-dir ../../../guest/api/admission k8s.io/api/admission/v1/generated.proto
//go:generate kubewasm gen --output-dir ../../../guest/api/apps k8s.io/api/apps/v1/generated.proto
//go:generate kubewasm gen --output-dir ../../../guest/api/authentication k8s.io/api/authentication/v1/generated.proto
//go:generate kubewasm gen --output-dir ../../../guest/api/autoscaling k8s.io/api/autoscaling/v2/generated.proto
//go:generate kubewasm gen --output-dir ../../../guest/api/batch k8s.io/api/batch/v1/generated.proto
//go:generate kubewasm gen --output-dir ../../../guest/api/core k8s.io/api/core/v1/generated.proto
//go:generate kubewasm gen --output-dir ../../../guest/api/meta k8s.io/apimachinery/pkg/apis/meta/v1/generated.proto
//go:generate kubewasm gen --output-dir ../../../guest/api/networking k8s.io/api/networking/v1/generated.proto
//go:generate kubewasm gen --output-dir ../../../guest/api/policy k8s.io/api/policy/v1/generated.proto
//go:generate kubewasm gen --output-dir ../../../guest/api/rbac k8s.io/api/rbac/v1/generated.proto
//go:generate kubewasm gen --output-dir ../../../guest/api/resourceapi k8s.io/api/resource/v1/generated.proto
//go:generate kubewasm gen --output-dir ../../../guest/api/scheduling k8s.io/api/scheduling/v1/generated.proto
//go:generate kubewasm gen --output-dir ../../../guest/api/schedulingv1alpha3 k8s.io/api/scheduling/v1alpha3/generated.proto
//go:generate kubewasm gen --output-dir ../../../guest/api/storage k8s.io/api/storage/v1/generated.proto
//go:generate kubewasm gen --lang rust --output-dir ../../../guest/rust/src/api/admission k8s.io/api/admission/v1/generated.proto
//go:generate kubewasm gen --lang rust --output-dir ../../../guest/rust/src/api/apps k8s.io/api/apps/v1/generated.proto
//go:generate kubewasm gen --lang rust --output-dir ../../../guest/rust/src/api/authentication k8s.io/api/authentication/v1/generated.proto
//go:generate kubewasm gen --lang rust --output-dir ../../../guest/rust/src/api/autoscaling k8s.io/api/autoscaling/v2/generated.proto
//go:generate kubewasm gen --lang rust --output-dir ../../../guest/rust/src/api/batch k8s.io/api/batch/v1/generated.proto
//go:generate kubewasm gen --lang rust --output-dir ../../../guest/rust/src/api/core k8s.io/api/core/v1/generated.proto
//go:generate kubewasm gen --lang rust --output-dir ../../../guest/rust/src/api/meta k8s.io/apimachinery/pkg/apis/meta/v1/generated.proto
//go:generate kubewasm gen --lang rust --output-dir ../../../guest/rust/src/api/networking k8s.io/api/networking/v1/generated.proto
//go:generate kubewasm gen --lang rust --output-dir ../../../guest/rust/src/api/policy k8s.io/api/policy/v1/generated.proto
//go:generate kubewasm gen --lang rust --output-dir ../../../guest/rust/src/api/rbac k8s.io/api/rbac/v1/generated.proto
//go:generate kubewasm gen --lang rust --output-dir ../../../guest/rust/src/api/resourceapi k8s.io/api/resource/v1/generated.proto
//go:generate kubewasm gen --lang rust --output-dir ../../../guest/rust/src/api/scheduling k8s.io/api/scheduling/v1/generated.proto
//go:generate kubewasm gen --lang rust --output-dir ../../../guest/rust/src/api/schedulingv1alpha3 k8s.io/api/scheduling/v1alpha3/generated.proto
//go:generate kubewasm gen --lang rust --output-dir ../../../guest/rust/src/api/storage k8s.io/api/storage/v1/generated.proto
//go:generate kubewasm gen --lang c --output-dir ../../../guest/c/kubewasm/admission k8s.io/api/admission/v1/generated.proto
//go:generate kubewasm gen --lang c --output-dir ../../../guest/c/kubewasm/apps k8s.io/api/apps/v1/generated.proto
//go:generate kubewasm gen --lang c --output-dir ../../../guest/c/kubewasm/authentication k8s.io/api/authentication/v1/generated.proto
//go:generate kubewasm gen --lang c --output-dir ../../../guest/c/kubewasm/autoscaling k8s.io/api/autoscaling/v2/generated.proto
//go:generate kubewasm gen --lang c --output-dir ../../../guest/c/kubewasm/batch k8s.io/api/batch/v1/generated.proto
//go:generate kubewasm gen --lang c --output-dir ../../../guest/c/kubewasm/core k8s.io/api/core/v1/generated.proto
//go:generate kubewasm gen --lang c --output-dir ../../../guest/c/kubewasm/meta k8s.io/apimachinery/pkg/apis/meta/v1/generated.proto
//go:generate kubewasm gen --lang c --output-dir ../../../guest/c/kubewasm/networking k8s.io/api/networking/v1/generated.proto
//go:generate kubewasm gen --lang c --output-dir ../../../guest/c/kubewasm/policy k8s.io/api/policy/v1/generated.proto
//go:generate kubewasm gen --lang c --output-dir ../../../guest/c/kubewasm/rbac k8s.io/api/rbac/v1/generated.proto
//go:generate kubewasm gen --lang c --output-dir ../../../guest/c/kubewasm/resourceapi k8s.io/api/resource/v1/generated.proto
//go:generate kubewasm gen --lang c --output-dir ../../../guest/c/kubewasm/scheduling k8s.io/api/scheduling/v1/generated.proto
//go:generate kubewasm gen --lang c --output-dir ../../../guest/c/kubewasm/schedulingv1alpha3 k8s.io/api/scheduling/v1alpha3/generated.proto
//go:generate kubewasm gen --lang c --output-dir ../../../guest/c/kubewasm/storage k8s.io/api/storage/v1/generated.proto
//go:generate kubewasm gen --lang as --output-dir ../../../guest/assemblyscript/api/admission k8s.io/api/admission/v1/generated.proto
//go:generate kubewasm gen --lang as --output-dir ../../../guest/assemblyscript/api/apps k8s.io/api/apps/v1/generated.proto
//go:generate kubewasm gen --lang as --output-dir ../../../guest/assemblyscript/api/authentication k8s.io/api/authentication/v1/generated.proto
//go:generate kubewasm gen --lang as --output-dir ../../../guest/assemblyscript/api/autoscaling k8s.io/api/autoscaling/v2/generated.proto
//go:generate kubewasm gen --lang as --output-dir ../../../guest/assemblyscript/api/batch k8s.io/api/batch/v1/generated.proto
//go:generate kubewasm gen --lang as --output-dir ../../../guest/assemblyscript/api/core k8s.io/api/core/v1/generated.proto
//go:generate kubewasm gen --lang as --output-dir ../../../guest/assemblyscript/api/meta k8s.io/apimachinery/pkg/apis/meta/v1/generated.proto
//go:generate kubewasm gen --lang as --output-dir ../../../guest/assemblyscript/api/networking k8s.io/api/networking/v1/generated.proto
//go:generate kubewasm gen --lang as --output-dir ../../../guest/assemblyscript/api/policy k8s.io/api/policy/v1/generated.proto
//go:generate kubewasm gen --lang as --output-dir ../../../guest/assemblyscript/api/rbac k8s.io/api/rbac/v1/generated.proto
//go:generate kubewasm gen --lang as --output-dir ../../../guest/assemblyscript/api/resourceapi k8s.io/api/resource/v1/generated.proto
//go:generate kubewasm gen --lang as --output-dir ../../../guest/assemblyscript/api/scheduling k8s.io/api/scheduling/v1/generated.proto
//go:generate kubewasm gen --lang as --output-dir ../../../guest/assemblyscript/api/schedulingv1alpha3 k8s.io/api/scheduling/v1alpha3/generated.proto
//go:generate kubewasm gen --lang as --output-dir ../../../guest/assemblyscript/api/storage k8s.io/api/storage/v1/generated.proto
//go:generate go run list.go
