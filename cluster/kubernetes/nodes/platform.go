package nodes

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// linux is the system of every instance's program.
const linux = "linux"

// Runs reports whether an image for these platforms, as "linux/amd64", runs on the node. An image
// that names none is for linux. A node that does not say what it is runs everything.
func (n *Node) Runs(platforms []string) bool {
	system, architecture := n.Labels[corev1.LabelOSStable], n.Labels[corev1.LabelArchStable]
	if len(platforms) == 0 {
		return system == "" || system == linux
	}
	return slices.ContainsFunc(platforms, func(p string) bool {
		of, on, _ := strings.Cut(p, "/")
		return (system == "" || system == of) && (architecture == "" || architecture == on)
	})
}

// NoPlatform says why no node runs an image for these platforms.
func NoPlatform(platforms []string) string {
	if len(platforms) == 0 {
		platforms = []string{linux}
	}
	return "its image runs on " + strings.Join(platforms, ", ") + ", and no node does; build the image for a platform that the cluster has"
}
