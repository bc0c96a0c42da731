package objects

import (
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/faas-infer/faas-infer/provider/web"
)

// The provider pulls with the credentials that the kubelet has: the function's secrets of both
// formats, and those of its service account.
func TestPullConfigs(t *testing.T) {
	secret := func(name string, kind corev1.SecretType, key, value string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "n"}, Type: kind, Data: map[string][]byte{key: []byte(value)}}
	}
	account := func(name string, secrets ...string) *corev1.ServiceAccount {
		a := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "n"}}
		for _, s := range secrets {
			a.ImagePullSecrets = append(a.ImagePullSecrets, corev1.LocalObjectReference{Name: s})
		}
		return a
	}
	client := fake.NewClientset(
		secret("key", corev1.SecretTypeOpaque, ".dockerconfigjson", "not for registries"),
		secret("new", corev1.SecretTypeDockerConfigJson, ".dockerconfigjson", "N"),
		secret("old", corev1.SecretTypeDockercfg, ".dockercfg", "O"),
		secret("of-default", corev1.SecretTypeDockerConfigJson, ".dockerconfigjson", "D"),
		secret("of-reader", corev1.SecretTypeDockerConfigJson, ".dockerconfigjson", "R"),
		account("default", "of-default", "not-there"), account("reader", "of-reader"))
	s := NewSecretStore(client)
	const old = `{"auths":O}`
	for _, c := range []struct {
		secrets []string
		account string
		want    []string
	}{
		{nil, "", []string{"D"}},
		{[]string{"key", "new", "old"}, "", []string{"N", old, "D"}},
		{[]string{"old"}, "reader", []string{old, "R"}},
		{[]string{"new"}, "nobody", []string{"N"}},
	} {
		got, err := s.PullConfigs(t.Context(), "n", c.secrets, c.account)
		var texts []string
		for _, g := range got {
			texts = append(texts, string(g))
		}
		if err != nil || !slices.Equal(texts, c.want) {
			t.Errorf("%+v: %q, %v", c, texts, err)
		}
	}
	if _, err := s.PullConfigs(t.Context(), "n", []string{"missing"}, ""); err == nil {
		t.Error("a secret of the function is missing, and nobody said so")
	}
	answer := error(apierrors.NewForbidden(corev1.Resource("serviceaccounts"), "default", errors.New("no role")))
	client.PrependReactor("get", "serviceaccounts", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, answer })
	if got, err := s.PullConfigs(t.Context(), "n", []string{"new"}, ""); err != nil || len(got) != 1 {
		t.Errorf("without the right to read accounts: %q, %v", got, err)
	}
	answer = apierrors.NewServiceUnavailable("starting")
	if _, err := s.PullConfigs(t.Context(), "n", nil, ""); err == nil {
		t.Error("the API server did not answer, and nobody said so")
	}
}

// A secret's value is that of its own name, or its only one.
func TestSecretValue(t *testing.T) {
	secret := func(name string, keys ...string) *corev1.Secret {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "n"}, Data: map[string][]byte{}}
		for _, key := range keys {
			s.Data[key] = []byte("of " + key)
		}
		return s
	}
	s := NewSecretStore(fake.NewClientset(secret("cli", "cli"), secret("one", "keys.txt"), secret("both", "both", "x"), secret("none"), secret("many", "x", "y")))
	for name, want := range map[string]string{"cli": "of cli", "one": "of keys.txt", "both": "of both", "none": "", "many": "", "absent": "", "../x": ""} {
		got, err := s.Value("n", name)
		if string(got) != want || (err == nil) != (want != "") || err != nil && web.StatusOf(err) != 400 {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}
