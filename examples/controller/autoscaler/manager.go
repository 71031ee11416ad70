package autoscaler

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/scale"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/kubewasm/kubewasm/examples/controller/api/v1alpha1"
)

// NewScheme returns the types needed by the manager of the controller.
func NewScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(corev1.AddToScheme(s))
	utilruntime.Must(v1alpha1.AddToScheme(s))
	utilruntime.Must(metav1.AddMetaToScheme(s))
	return s
}

// NewScales returns a client for the subresource scale of any kind.
func NewScales(mgr manager.Manager) (scale.ScalesGetter, error) {
	found, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, err
	}
	return scale.NewForConfig(mgr.GetConfig(), mgr.GetRESTMapper(), dynamic.LegacyAPIPathResolverFunc, scale.NewDiscoveryScaleKindResolver(found))
}

// NewReconciler returns the Reconciler of a manager, with the clock of the machine.
func NewReconciler(mgr manager.Manager, scales scale.ScalesGetter, plugins *Plugins, metrics Metrics) *Reconciler {
	return &Reconciler{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Mapper: mgr.GetRESTMapper(), Scales: scales,
		Events: mgr.GetEventRecorder("scalepolicy-controller"), Plugins: plugins, Metrics: metrics, Clock: clock.RealClock{},
	}
}
