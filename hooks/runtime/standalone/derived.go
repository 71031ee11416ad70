package standalone

import (
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks/cgroup"
	"github.com/kubewasm/kubewasm/hooks/internal/facts"
)

// claimed holds resources of the node that a pod has through a claim
// (nodeAllocatableResourceClaimStatuses, of the kubelet's DRANodeAllocatableResources).
type claimed struct {
	// Containers are the names of the containers that refer to the claim.
	Containers []string `json:"containers"`
	Mapping    []struct {
		Name     corev1.ResourceName `json:"name"`
		Quantity *resource.Quantity  `json:"quantity"`
	} `json:"mapping"`
	Overhead []struct {
		Name         corev1.ResourceName `json:"name"`
		PerPod       *resource.Quantity  `json:"perPod"`
		PerContainer *resource.Quantity  `json:"perContainer"`
	} `json:"overhead"`
}

// claims are the claims of a pod.
type claims []claimed

// ofPod returns the amount of a resource that a pod has by all claims.
func (c claims) ofPod(name corev1.ResourceName) (sum resource.Quantity) {
	for i := range c {
		for range c[i].add(name, &sum, false) - 1 { // Once for each further container.
			for _, o := range c[i].Overhead {
				if o.Name == name && o.PerContainer != nil {
					sum.Add(*o.PerContainer)
				}
			}
		}
	}
	return sum
}

// ofContainer returns the amount of a resource that a container may use by the claims that it
// refers to.
func (c claims) ofContainer(container string, name corev1.ResourceName) (sum resource.Quantity) {
	for i := range c {
		if slices.Contains(c[i].Containers, container) {
			c[i].add(name, &sum, true)
		}
	}
	return sum
}

// add adds the amount that a container has by the claim, or a pod with at most one container, and
// returns the number of containers.
func (c *claimed) add(name corev1.ResourceName, sum *resource.Quantity, container bool) int {
	for _, m := range c.Mapping {
		if m.Name == name && m.Quantity != nil {
			sum.Add(*m.Quantity)
		}
	}
	for _, o := range c.Overhead {
		if o.Name != name {
			continue
		}
		if o.PerPod != nil {
			sum.Add(*o.PerPod)
		}
		if o.PerContainer != nil && (container || len(c.Containers) != 0) {
			sum.Add(*o.PerContainer)
		}
	}
	return max(len(c.Containers), 1)
}

// hugepages returns the names of resources of huge pages, sorted.
func (c claims) hugepages(lists ...corev1.ResourceList) []corev1.ResourceName {
	names := map[corev1.ResourceName]bool{}
	for _, list := range lists {
		for name := range list {
			names[name] = true
		}
	}
	for i := range c {
		for _, m := range c[i].Mapping {
			names[m.Name] = true
		}
		for _, o := range c[i].Overhead {
			names[o.Name] = true
		}
	}
	maps.DeleteFunc(names, func(name corev1.ResourceName, _ bool) bool {
		return !strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
	})
	return slices.Sorted(maps.Keys(names))
}

// pageSize returns the kernel's name of a size of huge pages, "2MB" of hugepages-2Mi; empty if
// there is none.
func pageSize(name corev1.ResourceName) string {
	q, err := resource.ParseQuantity(strings.TrimPrefix(string(name), corev1.ResourceHugePagesPrefix))
	if err != nil || q.Value() <= 0 {
		return ""
	}
	n, unit := q.Value(), 0
	units := [...]string{"B", "KB", "MB", "GB", "TB", "PB"}
	for ; n%1024 == 0 && unit < len(units)-1; unit++ {
		n /= 1024
	}
	return strconv.FormatInt(n, 10) + units[unit]
}

// put adds the limit of a size to those of a pod or a container.
func put(limits map[string]int64, name corev1.ResourceName, q resource.Quantity) map[string]int64 {
	size := pageSize(name)
	if size == "" {
		return limits
	}
	if limits == nil {
		limits = map[string]int64{}
	}
	limits[size] = q.Value()
	return limits
}

// containerHugepages returns the limits of huge pages requested by the kubelet for a container:
// GetHugepageLimitsFromResources in k8s.io/kubernetes.
func containerHugepages(pod *corev1.Pod, c *corev1.Container, of claims) (limits map[string]int64) {
	var pods corev1.ResourceList
	if pod.Spec.Resources != nil {
		pods = pod.Spec.Resources.Limits
	}
	for _, name := range of.hugepages(pods, c.Resources.Limits) {
		claimed := of.ofContainer(c.Name, name)
		own, has := c.Resources.Limits[name]
		shared, above := pods[name]
		switch {
		case has:
			own = own.DeepCopy()
			own.Add(claimed)
		case above:
			own = shared
		case claimed.IsZero():
			continue
		default:
			own = claimed
		}
		limits = put(limits, name, own)
	}
	return limits
}

// podHugepages returns the limits of huge pages of a pod: its requests, which are also its limits.
func podHugepages(requests corev1.ResourceList, of claims) (limits map[string]int64) {
	for _, name := range of.hugepages(requests) {
		q := requests[name].DeepCopy()
		q.Add(of.ofPod(name))
		limits = put(limits, name, q)
	}
	return limits
}

// swapRequest returns the memory from which the kubelet derives swap with LimitedSwap, 0 if the
// container then has none: GetContainerSwapBehavior in k8s.io/kubernetes.
func swapRequest(pod *corev1.Pod, c *corev1.Container, class abi.QOSClass) int64 {
	source := pod.Annotations["kubernetes.io/config.source"]
	_, mirror := pod.Annotations["kubernetes.io/config.mirror"]
	critical := source != "" && source != "api" || mirror || pod.Spec.Priority != nil && *pod.Spec.Priority >= 2_000_000_000
	request, limit := c.Resources.Requests.Memory(), c.Resources.Limits.Memory()
	if critical || class != abi.QOSBurstable || request.Cmp(*limit) == 0 {
		return 0
	}
	return request.Value()
}

const swapFile = "memory.swap.max"

// files returns the files of unified that the kubelet requests and plugins own, nil for none.
func (r *Reconciler) files(of facts.Subject, path string, hugepages map[string]int64, swap int64) map[string]string {
	v2 := r.cfg.Enforcer.Applier().Version() == cgroup.V2
	files := map[string]string{}
	for size, n := range hugepages {
		name := "hugetlb." + size + ".limit_in_bytes"
		if v2 {
			name = "hugetlb." + size + ".max"
		}
		if r.cfg.Engine.OwnsFile(name) {
			files[name] = strconv.FormatInt(n, 10)
		}
	}
	if v2 && of.ContainerID != "" && r.cfg.Engine.OwnsFile(swapFile) {
		if text := r.swap(of, path, swap); text != "" {
			files[swapFile] = text
		}
	}
	if len(files) == 0 {
		return nil
	}
	return files
}

// swap returns the text of memory.swap.max requested by the kubelet for a container, empty if it is
// unknown. A node has NoSwap, which is 0, or LimitedSwap, by which a container gets the share of
// the swap space that it requests of the memory. The mode is detected from containers with exactly
// that share.
func (r *Reconciler) swap(of facts.Subject, path string, request int64) string {
	if known := r.facts().Get(of); known.Swap != "" && known.SwapRequest == request {
		return known.Swap
	}
	memory, space := r.cfg.Enforcer.Applier().NodeMemory()
	if memory <= 0 || request > memory {
		return ""
	}
	limited := int64(float64(request) / float64(memory) * float64(space))
	have, ok := r.cfg.Enforcer.Applier().File(path, swapFile)
	if !ok {
		return "" // The node has no swap controller.
	}
	if kept := limited - limited%int64(os.Getpagesize()); kept > 0 && have == strconv.FormatInt(kept, 10) {
		r.limitedSwap = true
	}
	text := ""
	switch {
	case r.limitedSwap:
		text = strconv.FormatInt(limited, 10)
	case have == "0":
		text = have
	}
	if text != "" && (limited == 0 || r.limitedSwap) {
		r.facts().Learn(of, func(f *facts.Facts) { f.Swap, f.SwapRequest = text, request })
	}
	return text
}

// findFiles returns known together with the current texts of files that are decided now and were
// not decided before.
func (r *Reconciler) findFiles(known map[string]string, before *hookmsg.Resources, d cgroup.Target) map[string]string {
	if d.Resources == nil {
		return known
	}
	found := map[string]string{}
	for file, value := range d.Resources.Unified {
		if before != nil {
			if _, ok := before.Unified[file]; ok {
				continue
			}
		}
		if _, ok := known[file]; ok {
			continue
		}
		// A file that has the decided text may have it from an earlier process.
		t := d
		t.Resources = &hookmsg.Resources{Unified: map[string]string{file: value}}
		if text, ok := r.cfg.Enforcer.Applier().File(d.Cgroup, file); ok && r.cfg.Enforcer.Applier().Differing(t) != nil {
			found[file] = text
		}
	}
	if len(found) == 0 {
		return known
	}
	maps.Copy(found, known)
	return found
}

// notes returns the texts that files of a cgroup had before they were decided, by earlier processes
// or this one, and what earlier processes have decided. The values of the latter are unknown.
func (r *Reconciler) notes(cgroup string, known map[string]string) (files map[string]string, earlier *hookmsg.Resources) {
	notes := r.cfg.Enforcer.Applier().Notes(cgroup)
	earlier = &hookmsg.Resources{Unified: notes.Files}
	if notes.CoreSchedGroup != "" {
		earlier.CoreSchedGroup = &notes.CoreSchedGroup
	}
	if earlier.Fields() == 0 {
		return known, nil
	}
	files = maps.Clone(notes.Files)
	if files == nil {
		files = map[string]string{}
	}
	maps.Copy(files, known)
	return files, earlier
}

// stillEarlier returns the fields of earlier that are neither decided nor given back.
func stillEarlier(earlier, decided *hookmsg.Resources, dropped hookmsg.Fields, given map[string]string) *hookmsg.Resources {
	if earlier == nil {
		return nil
	}
	left := &hookmsg.Resources{Unified: without(earlier.Unified, given)}
	if decided != nil {
		left.Unified = without(left.Unified, decided.Unified)
	}
	if dropped&hookmsg.FieldCoreSchedGroup == 0 && (decided == nil || decided.CoreSchedGroup == nil) {
		left.CoreSchedGroup = earlier.CoreSchedGroup
	}
	if left.Fields() == 0 {
		return nil
	}
	return left
}

// without returns files without those in given: before the next decision on them, their texts may
// change.
func without(files, given map[string]string) map[string]string {
	left := maps.Clone(files)
	maps.DeleteFunc(left, func(file, _ string) bool { _, ok := given[file]; return ok })
	return left
}

// givenFiles returns the texts for files that are no longer decided: those requested by the
// kubelet, or those from before the decision.
func givenFiles(known *facts.Facts, before, decided *hookmsg.Resources, answered func(file string) bool) map[string]string {
	if before == nil {
		return nil
	}
	var given map[string]string
	for file := range before.Unified {
		if decided != nil {
			if _, ok := decided.Unified[file]; ok {
				continue
			}
		}
		if !answered(file) {
			continue
		}
		text, ok := "", false
		if known.Asked != nil {
			text, ok = known.Asked.Unified[file]
		}
		if !ok {
			text, ok = known.Files[file]
		}
		if ok {
			if given == nil {
				given = map[string]string{}
			}
			given[file] = text
		}
	}
	return given
}
