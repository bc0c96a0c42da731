package podspec

import corev1 "k8s.io/api/core/v1"

const (
	// CertificateSecret is the Secret with the certificate of a namespace's instances.
	CertificateSecret = "faas-infer-instance-tls"
	// CertificatePath is the directory in which instances find it.
	CertificatePath = "/var/run/faas-infer/tls"

	certificateVolume = "faas-infer-tls"
)

// addCertificate mounts the instances' certificate. The kubelet replaces the files when the Secret
// changes.
func addCertificate(spec *corev1.PodSpec) {
	spec.Volumes = append(spec.Volumes, corev1.Volume{Name: certificateVolume,
		VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: CertificateSecret}}})
	c := &spec.Containers[0]
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: certificateVolume, MountPath: CertificatePath, ReadOnly: true})
}

// network returns how to connect to a pod's instance: "tls" if it has a certificate, otherwise "tcp".
// So instances from before the option was changed go on serving.
func network(pod *corev1.Pod) string {
	if len(certificates(pod)) > 0 {
		return "tls"
	}
	return "tcp"
}

// certificates returns the volumes with the instance's certificate: one or none.
func certificates(pod *corev1.Pod) (out []corev1.Volume) {
	for _, v := range pod.Spec.Volumes {
		if v.Name == certificateVolume && v.Secret != nil {
			out = append(out, v)
		}
	}
	return out
}
