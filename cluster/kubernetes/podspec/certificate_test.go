package podspec

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// An image with the watchdog gets the certificate, and the paths of its probes stay open. The pod is then
// one to which the provider speaks TLS. Another image gets neither.
func TestSecureWatchdog(t *testing.T) {
	args := []string{"watchdog", "--bundle", "/bundle", "--listen", "tcp://:8080"}
	d := deployment(annotated(HealthPrefix+"path", "/alive?deep=1"), annotated(ReadyPrefix+"path", "/up"))
	spec, err := Ordinary(d, Settings{User: DefaultUser, Watchdog: args}, "")
	if err != nil {
		t.Fatal(err)
	}
	c := spec.Containers[0]
	want := append(slices.Clone(args), "--name", d.Service, "--tls", CertificatePath, "--open", "/alive", "--open", "/up")
	if !slices.Equal(c.Args, want) || len(args) != 5 {
		t.Errorf("it is started with %q, want %q", c.Args, want)
	}
	if v := spec.Volumes[0]; v.Secret == nil || v.Secret.SecretName != CertificateSecret || c.VolumeMounts[0].MountPath != CertificatePath {
		t.Errorf("it mounts %v of %v", c.VolumeMounts, spec.Volumes)
	}
	if n := Network(&corev1.Pod{Spec: spec}); n != TLS {
		t.Errorf("the provider connects by %s", n)
	}
	if spec, err = Ordinary(d, Settings{User: DefaultUser}, ""); err != nil || len(spec.Containers[0].Args) > 0 || len(spec.Volumes) > 0 || Network(&corev1.Pod{Spec: spec}) != "tcp" {
		t.Errorf("another image gets %q and %v, %v", spec.Containers[0].Args, spec.Volumes, err)
	}
}

// The path of a probe is open also if it is another argument, once if both probes have it, and never the
// whole function.
func TestOpenPaths(t *testing.T) {
	args := []string{"watchdog", "--bundle", "/bundle"}
	for ready, want := range map[string][]string{"/bundle": {"--open", HealthPath, "--open", "/bundle"}, HealthPath + "?x": {"--open", HealthPath}, "/": nil, "/?deep=1": nil} {
		spec, err := Ordinary(deployment(annotated(ReadyPrefix+"path", ready)), Settings{User: DefaultUser, Watchdog: args}, "")
		if want == nil {
			if err == nil || !strings.Contains(err.Error(), ReadyPrefix+"path") {
				t.Errorf("%s: %v", ready, err)
			}
			continue
		}
		if err != nil || !slices.Equal(spec.Containers[0].Args[7:], want) {
			t.Errorf("%s: it is started with %q, want %q at the end: %v", ready, spec.Containers[0].Args, want, err)
		}
	}
}
