package podspec

import (
	"slices"

	"github.com/openfaas/faas-provider/types"
	corev1 "k8s.io/api/core/v1"
)

// IsPullSecret reports whether secrets of a type hold a registry's credentials. They are
// used to pull a function's image and are not mounted into it.
func IsPullSecret(t corev1.SecretType) bool {
	return t == corev1.SecretTypeDockerConfigJson || t == corev1.SecretTypeDockercfg
}

// addSecrets mounts a deployment's secrets, every key as a file. It uses credentials of
// registries to pull the image instead.
func addSecrets(spec *corev1.PodSpec, c *corev1.Container, d types.FunctionDeployment, kinds map[string]corev1.SecretType) {
	var sources []corev1.VolumeProjection
	for i, name := range d.Secrets {
		if slices.Contains(d.Secrets[:i], name) {
			continue
		}
		reference := corev1.LocalObjectReference{Name: name}
		if IsPullSecret(kinds[name]) {
			if !slices.Contains(spec.ImagePullSecrets, reference) {
				spec.ImagePullSecrets = append(spec.ImagePullSecrets, reference)
			}
			continue
		}
		sources = append(sources, corev1.VolumeProjection{Secret: &corev1.SecretProjection{LocalObjectReference: reference}})
	}
	if len(sources) == 0 {
		return
	}
	spec.Volumes = append(spec.Volumes, corev1.Volume{Name: secretsVolume,
		VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: sources}}})
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: secretsVolume, MountPath: SecretsPath, ReadOnly: true})
}
