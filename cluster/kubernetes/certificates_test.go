package kubernetes

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/podspec"
)

// plain returns an instance of a function without secrets.
func plain(id cluster.InstanceID) cluster.InstanceSpec {
	spec := withSecret(id)
	spec.Secrets = nil
	return spec
}

// files returns the certificate of a version.
func files(version string) map[string][]byte {
	return map[string][]byte{"tls.crt": []byte(version), "tls.key": []byte("key"), "ca.crt": []byte("ca")}
}

// The first start in a namespace brings the instances' certificate there, later ones leave it, and a
// renewed one replaces it. The pod mounts it, and its address is one with TLS.
func TestCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, client := starter()
		now := files("first")
		b.options.Certificate = func() map[string][]byte { return now }
		secret := func() *corev1.Secret {
			t.Helper()
			s, err := client.CoreV1().Secrets("team").Get(t.Context(), podspec.CertificateSecret, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		if _, err := b.Start(t.Context(), plain("m-1")); err != nil {
			t.Fatal(err)
		}
		if s := secret(); string(s.Data["tls.crt"]) != "first" || s.Type != corev1.SecretTypeTLS || s.Labels["app.kubernetes.io/managed-by"] != "" {
			t.Errorf("the secret is %v", s)
		}
		pod, err := client.CoreV1().Pods("team").Get(t.Context(), "m-1", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		pod.Status.PodIP = "10.0.0.1"
		if in, err := podspec.ReadModel(podspec.Trim(pod)); err != nil || in.Network != "tls" || pod.Spec.Containers[0].VolumeMounts[0].MountPath != podspec.CertificatePath {
			t.Errorf("the pod is read as %s %s, %v", in.Network, in.Address, err)
		}
		calls := len(client.Actions())
		if _, err := b.Start(t.Context(), plain("m-2")); err != nil {
			t.Fatal(err)
		}
		for _, a := range client.Actions()[calls:] {
			if a.GetResource().Resource == "secrets" {
				t.Errorf("a second start asks again: %v", a)
			}
		}
		now = files("second")
		if err := RenewCertificates(t.Context(), b, "ordinary"); err != nil || string(secret().Data["tls.crt"]) != "second" {
			t.Errorf("after a renewal: %v", err)
		}
		if s, err := client.CoreV1().Secrets("ordinary").Get(t.Context(), podspec.CertificateSecret, metav1.GetOptions{}); err != nil || string(s.Data["tls.crt"]) != "second" {
			t.Errorf("a namespace with ordinary functions has %v, %v", s, err)
		}
		if err := client.CoreV1().Secrets("team").Delete(t.Context(), podspec.CertificateSecret, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := RenewCertificates(t.Context(), b); err != nil || string(secret().Data["tls.crt"]) != "second" {
			t.Errorf("after somebody has deleted it: %v", err)
		}
		b.cancel()
		synctest.Wait()
	})
}

// A secret of somebody else with that name stays, and the start says why it fails. So it does where the
// provider may not write secrets.
func TestNoCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, client := starter()
		b.options.Certificate = func() map[string][]byte { return files("first") }
		foreign := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: podspec.CertificateSecret, Namespace: "team"}, Data: map[string][]byte{"mine": nil}}
		if err := client.Tracker().Add(foreign); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Start(t.Context(), plain("m-1")); err == nil || !strings.Contains(err.Error(), "rename it") {
			t.Errorf("with another secret: %v", err)
		}
		client.PrependReactor("get", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(corev1.Resource("secrets"), podspec.CertificateSecret, errors.New("no role"))
		})
		if _, err := b.Start(t.Context(), plain("m-2")); err == nil || !strings.Contains(err.Error(), "namespace team") {
			t.Errorf("without the right: %v", err)
		}
		if pods, err := client.CoreV1().Pods("team").List(t.Context(), metav1.ListOptions{}); err != nil || len(pods.Items) != 0 {
			t.Errorf("%d pods, %v", len(pods.Items), err)
		}
		if nodes, _ := b.Nodes(t.Context()); nodes[0].Free.CPU != 8000 {
			t.Error("a start that failed holds its share")
		}
		b.cancel()
	})
}

// Another replica may write the secret at the same moment.
func TestCertificateWrittenByTwo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, client := starter()
		b.options.Certificate = func() map[string][]byte { return files("first") }
		tries := 0
		client.PrependReactor("create", "secrets", func(a clienttesting.Action) (bool, runtime.Object, error) {
			if tries++; tries > 1 {
				return false, nil, nil
			}
			return true, nil, apierrors.NewAlreadyExists(schema.GroupResource{Resource: "secrets"}, podspec.CertificateSecret)
		})
		if _, err := b.Start(t.Context(), plain("m-1")); err != nil || tries != 2 {
			t.Errorf("after %d tries: %v", tries, err)
		}
		b.cancel()
		synctest.Wait()
	})
}

// A namespace that is deleted and made again gets the certificate again, with its first instance.
func TestCertificateOfNewNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, client := starter()
		b.options.Certificate = func() map[string][]byte { return files("first") }
		if _, err := b.Start(t.Context(), plain("m-1")); err != nil {
			t.Fatal(err)
		}
		b.entries["m-1"].abandon(false)
		if err := client.CoreV1().Secrets("team").Delete(t.Context(), podspec.CertificateSecret, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Start(t.Context(), plain("m-2")); err != nil {
			t.Fatal(err)
		}
		if _, err := client.CoreV1().Secrets("team").Get(t.Context(), podspec.CertificateSecret, metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
		b.cancel()
		synctest.Wait()
	})
}

// A namespace whose secret cannot be written for now delays no start in others.
func TestCertificatesApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, client := starter()
		b.options.Certificate = func() map[string][]byte { return files("first") }
		client.PrependReactor("get", "secrets", func(a clienttesting.Action) (bool, runtime.Object, error) {
			return a.GetNamespace() == "slow", nil, apierrors.NewServiceUnavailable("later")
		})
		failed := make(chan error)
		go func() { failed <- certificates{b}.ensure(t.Context(), "slow", true) }()
		synctest.Wait()
		began := time.Now()
		if _, err := b.Start(t.Context(), plain("m-1")); err != nil || time.Since(began) > time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if err := <-failed; err == nil {
			t.Error("a secret was written without an API server")
		}
		b.cancel()
		synctest.Wait()
	})
}
