package nodes

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// cpuModel are the labels of Node Feature Discovery with a node's CPU.
var cpuModel = []string{
	"feature.node.kubernetes.io/cpu-model.vendor_id", "feature.node.kubernetes.io/cpu-model.family", "feature.node.kubernetes.io/cpu-model.id",
}

// CPUAnnotation is the annotation in which an administrator, or the node agent, names a node's CPU.
const CPUAnnotation = "faas-infer.dev/cpu"

// TypeOf tells nodes apart that are not equally fast. It is the first of these that the node has:
// the CPU's vendor, family and model by Node Feature Discovery, the instance type by the cloud's
// controller, the CPU by [CPUAnnotation], and the architecture. Nodes with the same CPU but of
// another size are of one type.
func TypeOf(object *corev1.Node) string {
	var parts []string
	for _, label := range cpuModel {
		if text := object.Labels[label]; text != "" {
			parts = append(parts, text)
		}
	}
	if len(parts) == len(cpuModel) {
		return strings.Join(parts, " ")
	}
	for _, text := range []string{
		object.Labels[corev1.LabelInstanceTypeStable], object.Labels[corev1.LabelInstanceType], object.Annotations[CPUAnnotation],
		object.Labels[corev1.LabelArchStable],
	} {
		if text != "" {
			return text
		}
	}
	return ""
}
