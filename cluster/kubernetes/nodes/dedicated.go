package nodes

import (
	"cmp"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/faas-infer/faas-infer/gpu"
)

// The labels of NVIDIA's GPU feature discovery with a node's GPUs.
const (
	productLabel  = "nvidia.com/gpu.product"
	memoryLabel   = "nvidia.com/gpu.memory" // In MiB.
	replicasLabel = "nvidia.com/gpu.replicas"
	driverLabel   = "nvidia.com/cuda.driver-version.full"
)

// olderDriver are the labels of its older versions with the parts of the driver's version.
var olderDriver = []string{"nvidia.com/cuda.driver.major", "nvidia.com/cuda.driver.minor", "nvidia.com/cuda.driver.rev"}

// dedicated lists the whole GPUs that NVIDIA's device plugin gives to containers of a node that ask for
// them, those that other pods have included and those that the agent has left out. It lists none if nobody says which model they are, if MIG
// divides them, or if the plugin gives each to several containers. The plugin names no GPU before it gives
// it, so they have names by number.
func dedicated(object *corev1.Node, agent gpu.Inventory) (all []gpu.Device) {
	offered := object.Status.Allocatable[gpu.WholeResource]
	count := int(offered.Value())
	like, ok := modelOf(object, agent)
	if count <= 0 || !ok || agent.Repeats(count) {
		return nil
	}
	for n := range count - given(agent) {
		like.Index, like.UUID = n, gpu.Granted(n)
		all = append(all, like)
	}
	return all
}

// given returns how many GPUs the device plugin has given to the node agent.
func given(agent gpu.Inventory) int {
	if !agent.Claimed {
		return 0
	}
	return len(agent.Usable())
}

// modelOf describes any of a node's GPUs by the node agent's inventory or by labels, and reports false if they
// are not known or not alike.
func modelOf(object *corev1.Node, agent gpu.Inventory) (like gpu.Device, ok bool) {
	product := object.Labels[productLabel]
	if n, err := strconv.Atoi(object.Labels[replicasLabel]); err == nil && n > 1 || strings.HasSuffix(product, "-SHARED") || strings.Contains(product, "-MIG-") {
		return like, false
	}
	like = gpu.Device{Dedicated: true, Grant: gpu.WholeResource, Whole: true, Unshareable: "the device plugin gives it to one container"}
	for n, d := range agent.Devices {
		if d.Divided || d.Parent != "" || n > 0 && (d.Model != like.Model || d.Memory != like.Memory) {
			return like, false
		}
		like.Model, like.Memory, like.Driver = d.Model, d.Memory, agent.Driver
	}
	if like.Model != "" {
		return like, true
	}
	var parts []string
	for _, label := range olderDriver {
		if part := object.Labels[label]; part != "" {
			parts = append(parts, part)
		}
	}
	like.Model, like.Driver = product, cmp.Or(object.Labels[driverLabel], strings.Join(parts, "."), "unknown")
	if mib, err := strconv.ParseInt(object.Labels[memoryLabel], 10, 32); err == nil && mib > 0 {
		like.Memory = mib << 20
	}
	return like, product != ""
}

// Granted returns how many whole GPUs of NVIDIA's device plugin a pod holds.
func Granted(pod *corev1.Pod) (count int) {
	for i := range pod.Spec.Containers {
		n := pod.Spec.Containers[i].Resources.Limits[gpu.WholeResource]
		count += int(n.Value())
	}
	return count
}

// Withhold marks the GPUs of the device plugin that nobody can get now: others is how many other pods have,
// held are those of our instances, by name. One of ours that the plugin does not count any more takes another's
// place, since the plugin names none.
func Withhold(devices []gpu.Device, others int, held map[string]bool) {
	taken := others + len(held)
	for i := range devices {
		if held[devices[i].UUID] {
			taken--
		}
	}
	for i := len(devices) - 1; i >= 0 && taken > 0; i-- {
		if d := &devices[i]; d.Grant != "" && !held[d.UUID] {
			d.Lost = "another pod has it"
			taken--
		}
	}
}
