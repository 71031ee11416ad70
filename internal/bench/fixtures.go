package main

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const zoneLabel = "topology.kubernetes.io/zone"

// node returns a Node as a cloud provider's kubelet reports it. With 50 images,
// the most that a kubelet reports, it has about 11.3 KB of protobuf, with 41 of
// them 9.7 KB.
func node(i, images int) *corev1.Node {
	name := fmt.Sprintf("ip-10-0-%d-%d.eu-central-1.compute.internal", i/250, i%250)
	zone := string("abc"[i%3])
	labels := map[string]string{
		"beta.kubernetes.io/arch": "amd64", "beta.kubernetes.io/os": "linux",
		"beta.kubernetes.io/instance-type":              "m6i.4xlarge",
		"failure-domain.beta.kubernetes.io/region":      "eu-central-1",
		"failure-domain.beta.kubernetes.io/zone":        "eu-central-1" + zone,
		"kubernetes.io/arch":                            "amd64",
		"kubernetes.io/hostname":                        name,
		"kubernetes.io/os":                              "linux",
		"node.kubernetes.io/instance-type":              "m6i.4xlarge",
		"topology.kubernetes.io/region":                 "eu-central-1",
		zoneLabel:                                       "eu-central-1" + zone,
		"topology.ebs.csi.aws.com/zone":                 "eu-central-1" + zone,
		"eks.amazonaws.com/nodegroup":                   "general-purpose-m6i",
		"eks.amazonaws.com/nodegroup-image":             "ami-0a1b2c3d4e5f60718",
		"eks.amazonaws.com/capacityType":                "ON_DEMAND",
		"eks.amazonaws.com/sourceLaunchTemplateId":      "lt-0123456789abcdef0",
		"eks.amazonaws.com/sourceLaunchTemplateVersion": "17",
		"k8s.io/cloud-provider-aws":                     "d9f8e7c6b5a493827160f5e4d3c2b1a0",
		"karpenter.sh/provisioner-name":                 "default",
		"node-role.kubernetes.io/worker":                "",
		"example.com/team":                              "platform",
		"example.com/environment":                       "production",
		"example.com/rack":                              fmt.Sprint("rack-", i%40),
	}
	now := metav1.NewTime(time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC))
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID(fmt.Sprintf("1b4e28ba-2fa1-11d2-883f-%012d", i)), ResourceVersion: fmt.Sprint(1000000 + i),
			CreationTimestamp: now, Labels: labels,
			Annotations: map[string]string{
				"csi.volume.kubernetes.io/nodeid":                        `{"ebs.csi.aws.com":"i-0123456789abcdef0","efs.csi.aws.com":"i-0123456789abcdef0"}`,
				"node.alpha.kubernetes.io/ttl":                           "0",
				"volumes.kubernetes.io/controller-managed-attach-detach": "true",
				"alpha.kubernetes.io/provided-node-ip":                   "10.0.1.17",
			},
		},
		Spec: corev1.NodeSpec{
			PodCIDR: "10.0.1.0/24", PodCIDRs: []string{"10.0.1.0/24"}, ProviderID: "aws:///eu-central-1a/i-0123456789abcdef0",
			Taints: []corev1.Taint{
				{Key: "example.com/maintenance", Value: "soon", Effect: corev1.TaintEffectPreferNoSchedule},
				{Key: "example.com/dedicated", Value: "shop", Effect: corev1.TaintEffectNoSchedule},
			},
		},
		Status: corev1.NodeStatus{
			Capacity:    resources("16", "64Gi", "110", "100Gi"),
			Allocatable: resources("15890m", "60Gi", "110", "92Gi"),
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: "10.0.1.17"}, {Type: corev1.NodeHostName, Address: name}, {Type: corev1.NodeInternalDNS, Address: name},
			},
			NodeInfo: corev1.NodeSystemInfo{
				MachineID: "ec2f9b8a7c6d5e4f3a2b1c0d9e8f7a6b", SystemUUID: "ec2f9b8a-7c6d-5e4f-3a2b-1c0d9e8f7a6b", BootID: "0e1d2c3b-4a59-6877-8695-a4b3c2d1e0f9",
				KernelVersion: "6.1.112-122.189.amzn2023.x86_64", OSImage: "Amazon Linux 2023.6.20241010", ContainerRuntimeVersion: "containerd://2.1.4",
				KubeletVersion: "v1.37.1", OperatingSystem: "linux", Architecture: "amd64",
			},
		},
	}
	for _, c := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure, corev1.NodeReady} {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
			Type: c, Status: corev1.ConditionFalse, LastHeartbeatTime: now, LastTransitionTime: now,
			Reason: "KubeletHas" + string(c), Message: "kubelet reports the state of " + string(c),
		})
	}
	for j := range images {
		repository := fmt.Sprintf("123456789012.dkr.ecr.eu-central-1.amazonaws.com/service-%02d", j)
		n.Status.Images = append(n.Status.Images, corev1.ContainerImage{
			Names:     []string{repository + "@sha256:" + strings.Repeat("0a", 16), fmt.Sprint(repository, ":1.", j)},
			SizeBytes: int64(j+1) * 12_345_678,
		})
	}
	return n
}

func resources(cpu, memory, pods, disk string) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory),
		corev1.ResourcePods: resource.MustParse(pods), corev1.ResourceEphemeralStorage: resource.MustParse(disk),
		"hugepages-1Gi": resource.MustParse("0"), "hugepages-2Mi": resource.MustParse("0"),
	}
}

// pod returns a Pod of a usual Deployment: two containers with probes, mounts
// and environment, about 3 KB of protobuf and 4.2 KB of JSON.
func pod() *corev1.Pod {
	container := func(name string) corev1.Container {
		c := corev1.Container{
			Name: name, Image: "registry.example.com/shop/" + name + ":1.4.2", ImagePullPolicy: corev1.PullIfNotPresent,
			Command: []string{"/usr/local/bin/" + name}, Args: []string{"--config=/etc/shop/config.yaml", "--log-level=info", "--listen=:8080"},
			Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}},
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("256Mi")},
				Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("512Mi")},
			},
			VolumeMounts: []corev1.VolumeMount{
				{Name: "config", MountPath: "/etc/shop", ReadOnly: true},
				{Name: "kube-api-access-x7k2p", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true},
			},
			TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: corev1.TerminationMessageReadFile,
			ReadinessProbe: &corev1.Probe{
				ProbeHandler:   corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Scheme: corev1.URISchemeHTTP}},
				TimeoutSeconds: 1, PeriodSeconds: 10, SuccessThreshold: 1, FailureThreshold: 3,
			},
		}
		for i := range 8 {
			c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("SHOP_FEATURE_%d_ENABLED", i), Value: "true"})
		}
		return c
	}
	enabled, priority, grace := true, int32(1000), int64(30)
	return &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "web-7d4b9c6f5d-x2kqv", GenerateName: "web-7d4b9c6f5d-", Namespace: "shop", UID: "8dbc5577-d0e2-4706-8787-57d52c03ddf2",
			CreationTimestamp: metav1.NewTime(time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)),
			Labels: map[string]string{
				"app": "web", "team": "storefront", "pod-template-hash": "7d4b9c6f5d",
				"app.kubernetes.io/name": "web", "app.kubernetes.io/instance": "web-production", "app.kubernetes.io/version": "1.4.2",
				"app.kubernetes.io/part-of": "shop", "app.kubernetes.io/managed-by": "Helm",
			},
			Annotations: map[string]string{
				"prometheus.io/scrape": "true", "prometheus.io/port": "8080", "checksum/config": strings.Repeat("9f86d081", 8),
				"kubewasm.dev/cpu": "1500m", "kubewasm.dev/zones": "eu-central-1a, eu-central-1b, eu-central-1c",
			},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-7d4b9c6f5d", UID: "0c9a6f2e-58f4-4f0b-9c56-0d7f2a3b4c5d",
				Controller: &enabled, BlockOwnerDeletion: &enabled,
			}},
		},
		Spec: corev1.PodSpec{
			Volumes: []corev1.Volume{
				{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "web-config"}}}},
				{Name: "kube-api-access-x7k2p", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			},
			Containers:    []corev1.Container{container("web"), container("agent")},
			RestartPolicy: corev1.RestartPolicyAlways, DNSPolicy: corev1.DNSClusterFirst, SchedulerName: corev1.DefaultSchedulerName,
			ServiceAccountName: "web", TerminationGracePeriodSeconds: &grace, Priority: &priority,
			SecurityContext: &corev1.PodSecurityContext{},
			Tolerations: []corev1.Toleration{
				{Key: "node.kubernetes.io/not-ready", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
				{Key: "node.kubernetes.io/unreachable", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
				{Key: "example.com/dedicated", Operator: corev1.TolerationOpEqual, Value: "shop", Effect: corev1.TaintEffectNoSchedule},
			},
		},
	}
}
