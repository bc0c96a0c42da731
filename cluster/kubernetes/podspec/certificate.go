package podspec

import (
	"net/url"
	"slices"

	"github.com/openfaas/faas-provider/types"
	corev1 "k8s.io/api/core/v1"
)

const (
	// CertificateSecret is the Secret with the certificate of a namespace's instances.
	CertificateSecret = "faas-infer-instance-tls"
	// CertificatePath is the directory in which instances find it.
	CertificatePath = "/var/run/faas-infer/tls"

	// TLS is the network of an instance with a certificate, as [Network] returns it.
	TLS = "tls"

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

// secureWatchdog gives an ordinary function's pod the instances' certificate. args are those with
// which its image starts the watchdog. The kubelet has no certificate, so the paths of its probes
// need none.
func secureWatchdog(spec *corev1.PodSpec, d types.FunctionDeployment, args []string) error {
	addCertificate(spec)
	c := &spec.Containers[0]
	c.Args = append(slices.Clone(args), "--name", d.Service, "--tls", CertificatePath)
	var open []string
	for _, p := range []struct {
		prefix string
		probe  *corev1.Probe
	}{{HealthPrefix, c.LivenessProbe}, {ReadyPrefix, c.ReadinessProbe}} {
		u, err := url.Parse(p.probe.HTTPGet.Path)
		if err != nil || slices.Contains(open, u.Path) {
			continue
		}
		if u.Path == "" || u.Path == "/" {
			return &Error{Key: p.prefix + "path", Value: p.probe.HTTPGet.Path, Example: HealthPath,
				Why: "with --instance-tls everybody may GET this path without a certificate, and this one is the function itself; use a path of its own"}
		}
		open = append(open, u.Path)
		c.Args = append(c.Args, "--open", u.Path)
	}
	return nil
}

// Network returns how to connect to a pod's instance: "tls" if it has a certificate, otherwise "tcp".
// So instances from before the option was changed go on serving.
func Network(pod *corev1.Pod) string {
	if len(Certificates(pod)) > 0 {
		return TLS
	}
	return "tcp"
}

// Certificates returns the volumes with the instance's certificate: one or none.
func Certificates(pod *corev1.Pod) (out []corev1.Volume) {
	for _, v := range pod.Spec.Volumes {
		if v.Name == certificateVolume && v.Secret != nil {
			out = append(out, v)
		}
	}
	return out
}
