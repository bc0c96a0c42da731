package nodes

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/faas-infer/faas-infer/gpu"
)

// Trim returns a copy of a node with only the fields that [Read] uses. A node's list of
// images alone can be larger than all other fields.
func Trim(object *corev1.Node) *corev1.Node {
	out := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: object.Name, UID: object.UID, ResourceVersion: object.ResourceVersion, Labels: object.Labels},
		Spec:       corev1.NodeSpec{Taints: object.Spec.Taints, Unschedulable: object.Spec.Unschedulable},
		Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
			corev1.ResourceCPU: *object.Status.Allocatable.Cpu(), corev1.ResourceMemory: *object.Status.Allocatable.Memory(),
			corev1.ResourcePods: *object.Status.Allocatable.Pods(),
		}, NodeInfo: corev1.NodeSystemInfo{KubeletVersion: object.Status.NodeInfo.KubeletVersion}},
	}
	for _, key := range []string{gpu.InventoryAnnotation, CPUAnnotation} {
		if text, ok := object.Annotations[key]; ok {
			if out.Annotations == nil {
				out.Annotations = map[string]string{}
			}
			out.Annotations[key] = text
		}
	}
	for name, n := range object.Status.Allocatable {
		if isWhole(name) {
			out.Status.Allocatable[name] = n
		}
	}
	for _, c := range object.Status.Conditions {
		if c.Type == corev1.NodeReady {
			out.Status.Conditions = []corev1.NodeCondition{{Type: c.Type, Status: c.Status}}
		}
	}
	return out
}
