package podspec

import (
	corev1 "k8s.io/api/core/v1"
)

const (
	// ContentPath is the directory below which an instance finds a model that the provider sends to it.
	ContentPath = "/var/lib/faas-infer/model"
	// contentVariable names the content, and contentDirVariable the directory, for the instance's program.
	contentVariable    = "FAAS_INFER_CONTENT"
	contentDirVariable = "FAAS_INFER_CONTENT_DIR"
	contentVolume      = "model"
	// NodeModelVariable names the directory of the node's agent with the content. It is copies.ModelEnv of the
	// instance's program.
	NodeModelVariable = "FAAS_INFER_NODE_MODEL"
	nodeModelPath     = "/var/lib/faas-infer/node-model"
	// loadProbes is how many probes in a row an instance may leave without an answer that has received its model. It
	// answers none while it loads the model, and the time before the first probe may have passed by then. The provider
	// gives it up sooner.
	loadProbes = 9
)

// addContent gives the pod a directory for the model, which is not in its image. It is on the node's disk, and
// empty if the pods of the node share the model: then the pod also sees the directory that the node's agent has for
// the content, and cannot write there.
func addContent(spec *corev1.PodSpec, p ModelPlan) {
	c := &spec.Containers[0]
	c.LivenessProbe.FailureThreshold = loadProbes
	spec.Volumes = append(spec.Volumes, corev1.Volume{Name: contentVolume,
		VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: contentVolume, MountPath: ContentPath})
	// The deployment's own values do not replace these.
	c.Env = append(c.Env, corev1.EnvVar{Name: contentVariable, Value: p.Content},
		corev1.EnvVar{Name: contentDirVariable, Value: ContentPath})
	if p.Copies == "" {
		return
	}
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{
		Name: copiesVolume, MountPath: nodeModelPath, SubPath: ModelDir(p.Content), ReadOnly: true,
	})
	c.Env = append(c.Env, corev1.EnvVar{Name: NodeModelVariable, Value: nodeModelPath})
}

// ModelDir names the directory of a content in the namespace's directory of copies. It is copies.ModelDir of the node's
// agent.
func ModelDir(content string) string { return "model." + content }
