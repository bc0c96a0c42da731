package podspec

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
)

const (
	// CopiesVariable names the directory of prepared copies in an instance. It is copies.Env of the
	// instance's program.
	CopiesVariable = "FAAS_INFER_COPIES"
	copiesVolume   = "faas-infer-copies"
	copiesPath     = "/var/lib/faas-infer/copies"
)

// addCopies mounts the directory of the node that the function's instances of one model share, and no
// other function's. The kubelet makes it with the mode of the volume.
func addCopies(spec *corev1.PodSpec, p ModelPlan) {
	c := &spec.Containers[0]
	spec.Volumes = append(spec.Volumes, corev1.Volume{Name: copiesVolume,
		VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: p.Copies}}})
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: copiesVolume, MountPath: copiesPath, SubPath: copiesOf(p.Owner, p.Spec.Artefact)})
	c.Env = append(c.Env, corev1.EnvVar{Name: CopiesVariable, Value: copiesPath}) // The deployment's own value does not replace it.
}

// copiesOf names the directory of a function's copies of one model. The UID is another one if the function
// was deleted and somebody made it again; the hash is that of the image's digest, the model's path and the
// sizes that it is prepared with.
func copiesOf(f *v1alpha1.Function, a cluster.Artefact) string {
	of := fmt.Appendf(nil, "%s\n%s", a.Bundle, a.Model)
	if a.Shapes != "" || a.Images != "" {
		of = fmt.Appendf(of, "\n%s\n%s", a.Shapes, a.Images)
	}
	sum := sha256.Sum256(of)
	return fmt.Sprintf("%s-%s-%s", f.Name, f.UID, hex.EncodeToString(sum[:8]))
}
