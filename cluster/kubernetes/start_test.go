package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/podspec"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
)

// starter returns a backend with one node and an API server in memory. No pod on it gets ready.
func starter() (*Backend, *fake.Clientset) {
	b, client := still(1, 0), fake.NewClientset()
	b.prober, b.writes = newProber(nil), make(writes, 1)
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.options.Client, b.options.StartTimeout = client, defaultStartTimeout
	b.options.Args = func(cluster.InstanceSpec) []string { return nil }
	b.options.Functions = func(string) (*v1alpha1.Function, bool) {
		return &v1alpha1.Function{ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: "team"}}, true
	}
	return b, client
}

// withSecret returns an instance of a function that names the secret "hub".
func withSecret(id cluster.InstanceID) cluster.InstanceSpec {
	return cluster.InstanceSpec{ID: id, Function: "m.team", Node: "n0000", Secrets: map[string]string{"hub": ""},
		Config: cluster.Config{Batch: 1, Resources: cluster.Resources{CPU: 1000, Memory: 1 << 30}}}
}

// A secret whose type cannot be read is not mounted: it may hold a registry's credentials.
func TestNoStartWithoutSecretType(t *testing.T) {
	for name, answer := range map[string]error{
		"may not be read":   apierrors.NewForbidden(corev1.Resource("secrets"), "hub", errors.New("no role")),
		"is not there":      apierrors.NewNotFound(corev1.Resource("secrets"), "hub"),
		"cannot be reached": apierrors.NewServiceUnavailable("starting"),
	} {
		synctest.Test(t, func(t *testing.T) {
			b, client := starter()
			client.PrependReactor("get", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, answer })
			if _, err := b.Start(t.Context(), withSecret("m-1")); err == nil || !strings.Contains(err.Error(), `"hub"`) {
				t.Errorf("%s: %v", name, err)
			}
			if pods, err := client.CoreV1().Pods("team").List(t.Context(), metav1.ListOptions{}); err != nil || len(pods.Items) != 0 {
				t.Errorf("%s: made %d pods, %v", name, len(pods.Items), err)
			}
			if nodes, _ := b.Nodes(t.Context()); nodes[0].Free.CPU != 8000 {
				t.Errorf("%s: the instance still holds its room: %+v", name, nodes[0])
			}
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A short failure of the API server delays the start. A secret that is deleted and created
// again with another type is used as its new type says.
func TestSecretTypeIsReadAtEachStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, client := starter()
		secrets, failures := client.CoreV1().Secrets("team"), 2
		client.PrependReactor("get", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
			failures--
			return failures >= 0, nil, apierrors.NewServiceUnavailable("starting")
		})
		for i, kind := range []corev1.SecretType{corev1.SecretTypeOpaque, corev1.SecretTypeDockerConfigJson, corev1.SecretTypeDockercfg, corev1.SecretTypeOpaque} {
			id := cluster.InstanceID(fmt.Sprint("m-", i))
			_ = secrets.Delete(t.Context(), "hub", metav1.DeleteOptions{})
			if _, err := secrets.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "hub"}, Type: kind}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			if _, err := b.Start(t.Context(), withSecret(id)); err != nil {
				t.Fatal(id, err)
			}
			pod, err := client.CoreV1().Pods("team").Get(t.Context(), string(id), metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			mounted := slices.ContainsFunc(pod.Spec.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == podspec.SecretsPath })
			if pulls := len(pod.Spec.ImagePullSecrets) == 1; pulls == mounted || pulls != podspec.IsPullSecret(kind) {
				t.Errorf("%s, %s: pulls with it: %v, mounted: %v", id, kind, pulls, mounted)
			}
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A pod's grace period is its function's.
func TestPodsHaveTheirFunctionsGrace(t *testing.T) {
	f := &v1alpha1.Function{ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: "openfaas-fn"}}
	b := &Backend{options: Options{
		Functions: func(string) (*v1alpha1.Function, bool) { return f, true }, Now: time.Now,
		Args:  func(cluster.InstanceSpec) []string { return nil },
		Grace: func(*v1alpha1.Function) time.Duration { return 7 * time.Minute },
	}}
	p, err := b.plan(cluster.InstanceSpec{Function: "m.openfaas-fn"}, f)
	if err != nil || p.Grace != 7*time.Minute {
		t.Errorf("the grace period is %v, %v", p.Grace, err)
	}
}

// A pod waits for the object of its revision: the one before has another image, and a new function has none yet.
func TestPodsWaitForTheirRevision(t *testing.T) {
	object := func(revision, image string) *v1alpha1.Function {
		annotations := map[string]string{v1alpha1.RevisionAnnotation: revision}
		return &v1alpha1.Function{
			ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: "team", Annotations: annotations},
			Spec:       v1alpha1.FunctionSpec{Image: image},
		}
	}
	for name, first := range map[string]*v1alpha1.Function{"none": nil, "the one before": object("1", "old")} {
		synctest.Test(t, func(t *testing.T) {
			b, _ := starter()
			written := time.Now().Add(time.Second)
			comes := true
			b.options.Functions = func(string) (*v1alpha1.Function, bool) {
				if !comes || time.Now().Before(written) {
					return first, first != nil
				}
				return object("2", "new"), true
			}
			spec := cluster.InstanceSpec{Function: "m.team", Revision: 2}
			if owner, err := ownerOf(t.Context(), b.options.Functions, spec); err != nil || owner.Spec.Image != "new" {
				t.Errorf("%s: %v, %v", name, owner, err)
			}
			comes = false
			if owner, err := ownerOf(t.Context(), b.options.Functions, spec); err == nil {
				t.Errorf("%s: without the revision it is %v", name, owner)
			}
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
