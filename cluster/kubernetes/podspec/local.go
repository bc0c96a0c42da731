package podspec

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Local bounds what each instance takes of its node in addition to its CPU and memory. An amount of zero
// sets nothing.
type Local struct {
	// StorageRequest is the ephemeral storage in bytes that the node keeps free for an instance.
	// One that exceeds StorageLimit is evicted. A profile's own amounts take precedence.
	StorageRequest, StorageLimit resource.Quantity
	// TmpSize is the maximum size of /tmp in bytes where that is a volume: in functions with a
	// read-only root file system.
	TmpSize resource.Quantity
	// UserNamespaces gives each pod a user namespace (hostUsers: false). Its nodes must support
	// them. A pod with a share of a GPU has none, because it mounts directories of the node.
	UserNamespaces bool
}

// apply puts the bounds into a pod with one container.
func (l Local) apply(spec *corev1.PodSpec, c *corev1.Container) {
	l.store(c)
	if size := l.TmpSize; !size.IsZero() {
		for i := range spec.Volumes {
			if v := &spec.Volumes[i]; v.Name == tmpVolume && v.EmptyDir != nil {
				v.EmptyDir.SizeLimit = &size
			}
		}
	}
	if l.UserNamespaces {
		host := false
		spec.HostUsers = &host
	}
}

// store sets the amounts of ephemeral storage. A limit alone would become the request, too, and
// fill nodes that are nearly empty, so the request is then 0.
func (l Local) store(c *corev1.Container) {
	_, requested := c.Resources.Requests[corev1.ResourceEphemeralStorage]
	_, limited := c.Resources.Limits[corev1.ResourceEphemeralStorage]
	if requested || limited || l.StorageRequest.IsZero() && l.StorageLimit.IsZero() {
		return
	}
	if c.Resources.Requests == nil {
		c.Resources.Requests = corev1.ResourceList{}
	}
	c.Resources.Requests[corev1.ResourceEphemeralStorage] = l.StorageRequest
	if l.StorageLimit.IsZero() {
		return
	}
	if c.Resources.Limits == nil {
		c.Resources.Limits = corev1.ResourceList{}
	}
	c.Resources.Limits[corev1.ResourceEphemeralStorage] = l.StorageLimit
}

// AlivePath is answered for as long as an instance's program runs, whatever its engine does.
const AlivePath = "/_/health"

// AliveAfter is the time in seconds from the start of a model's instance until it is asked whether
// it is alive: longer than it may take to load its model, when it answers nothing.
const AliveAfter = 180

// liveness returns the liveness probe of a model's instance. The kubelet kills only one whose
// program has answered nothing for a minute; the scaling engine then replaces it. A busy or parked
// instance answers at once, because the engine has threads of its own: the provider itself finds an
// engine that hangs, by its overdue batch.
func liveness() *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:        corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: AlivePath, Port: intstr.FromInt32(Port)}},
		InitialDelaySeconds: AliveAfter, PeriodSeconds: 20, TimeoutSeconds: 15, FailureThreshold: 3,
	}
}
