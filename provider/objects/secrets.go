package objects

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/store"
	"github.com/faas-infer/faas-infer/provider/web"
)

// netes is faas-netes' value of the label. A cluster that comes from faas-netes keeps its
// secrets.
const netes = "openfaas"

// managed selects the secrets that are listed and changed.
const managed = v1alpha1.ManagedByLabel + " in (" + v1alpha1.ManagedBy + "," + netes + ")"

// secretPatience is how long the API server may take for one call of a method.
const secretPatience = 10 * time.Second

// SecretStore keeps functions' secrets as Kubernetes secrets. It is safe for concurrent
// use. It has no cache, so it sees other clients' changes at once. The request path does
// not use it.
type SecretStore struct{ client kubernetes.Interface }

// NewSecretStore returns the secret store of a cluster.
func NewSecretStore(client kubernetes.Interface) *SecretStore { return &SecretStore{client: client} }

// List returns the names of a namespace's secrets, sorted.
func (s *SecretStore) List(namespace string) ([]string, error) {
	if !annotation.IsName(namespace) {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), secretPatience)
	defer cancel()
	list, err := s.client.CoreV1().Secrets(namespace).List(ctx, metav1.ListOptions{LabelSelector: managed})
	if err != nil {
		return nil, problemFrom(err, "the secrets of namespace %s cannot be listed", namespace)
	}
	names := make([]string, len(list.Items))
	for i, of := range list.Items {
		names[i] = of.Name
	}
	slices.Sort(names)
	return names, nil
}

// Create stores a new secret; 409 if there is one with its name.
func (s *SecretStore) Create(namespace, name string, value []byte) error {
	if err := store.CheckValue(namespace, name, value); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), secretPatience)
	defer cancel()
	_, err := s.client.CoreV1().Secrets(namespace).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: map[string]string{v1alpha1.ManagedByLabel: v1alpha1.ManagedBy}},
		Type:       corev1.SecretTypeOpaque, Data: map[string][]byte{name: value},
	}, metav1.CreateOptions{FieldManager: v1alpha1.ManagedBy})
	if apierrors.IsAlreadyExists(err) {
		return web.Refuse(http.StatusConflict, "secret %q exists already in namespace %q; update it instead", name, namespace)
	}
	return problemFrom(err, "secret %s was not stored", name)
}

// Update replaces a secret's value; 404 if there is no such secret.
func (s *SecretStore) Update(namespace, name string, value []byte) error {
	if err := store.CheckValue(namespace, name, value); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), secretPatience)
	defer cancel()
	for {
		found, err := s.find(ctx, namespace, name)
		if err != nil {
			return err
		}
		found.Data = map[string][]byte{name: value}
		_, err = s.client.CoreV1().Secrets(namespace).Update(ctx, found, metav1.UpdateOptions{FieldManager: v1alpha1.ManagedBy})
		if !apierrors.IsConflict(err) {
			return problemFrom(err, "secret %s was not stored", name)
		}
	}
}

// find returns a secret for a change; 404 if there is none, 409 if another tool manages
// it.
func (s *SecretStore) find(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	found, err := s.client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, web.Refuse(http.StatusNotFound, "there is no secret %q in namespace %q", name, namespace)
	case err != nil:
		return nil, problemFrom(err, "secret %s could not be read", name)
	}
	if by := found.Labels[v1alpha1.ManagedByLabel]; by != v1alpha1.ManagedBy && by != netes {
		return nil, web.Refuse(http.StatusConflict, "secret %q in namespace %q was not created with faas-cli; change it with the tool that created it, for example kubectl", name, namespace)
	}
	return found, nil
}

// Delete deletes a secret; 404 if there is none.
func (s *SecretStore) Delete(namespace, name string) error {
	if err := store.CheckSecret(namespace, name); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), secretPatience)
	defer cancel()
	found, err := s.find(ctx, namespace, name)
	if err != nil {
		return err
	}
	err = s.client.CoreV1().Secrets(namespace).Delete(ctx, name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(found.UID))})
	if apierrors.IsNotFound(err) {
		return web.Refuse(http.StatusNotFound, "there is no secret %q in namespace %q", name, namespace)
	}
	return problemFrom(err, "secret %s was not deleted", name)
}

// DeleteNamespace deletes a namespace's secrets that were created with faas-cli. It
// returns nil if there are none.
func (s *SecretStore) DeleteNamespace(namespace string) error {
	names, err := s.List(namespace)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), secretPatience)
	defer cancel()
	for _, name := range names {
		err := s.client.CoreV1().Secrets(namespace).Delete(ctx, name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return problemFrom(err, "the secrets of namespace %s were not all deleted", namespace)
		}
	}
	return nil
}

// File returns "", because the kubelet mounts a pod's secrets. If there is no such
// secret, the error says how to create it.
func (s *SecretStore) File(namespace, name string) (string, error) {
	if err := store.CheckSecret(namespace, name); err != nil {
		return "", err
	}
	_, err := s.present(namespace, name)
	return "", err
}

// present returns a secret. If there is none, the error says how to create it.
func (s *SecretStore) present(namespace, name string) (*corev1.Secret, error) {
	ctx, cancel := context.WithTimeout(context.Background(), secretPatience)
	defer cancel()
	found, err := s.client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, web.Refuse(http.StatusBadRequest, "there is no secret %q in namespace %q: create it with faas-cli secret create %s --namespace %s", name, namespace, name, namespace)
	}
	return found, problemFrom(err, "secret %s could not be read", name)
}

// Value returns a secret's value: that of the key with the secret's name, as faas-cli makes it, or of
// its only key. If there is none, the error says how to create it.
func (s *SecretStore) Value(namespace, name string) ([]byte, error) {
	if err := store.CheckSecret(namespace, name); err != nil {
		return nil, err
	}
	found, err := s.present(namespace, name)
	if err != nil {
		return nil, err
	}
	value, ok := found.Data[name]
	if !ok && len(found.Data) == 1 {
		for _, value = range found.Data {
			ok = true
		}
	}
	if !ok {
		return nil, web.Refuse(http.StatusBadRequest, "secret %q in namespace %q has %d keys and none is named %q: give it this one", name, namespace, len(found.Data), name)
	}
	return value, nil
}

// Version returns a text that changes when the secret is replaced, "" if the secret cannot
// be read.
func (s *SecretStore) Version(namespace, name string) string {
	ctx, cancel := context.WithTimeout(context.Background(), secretPatience)
	defer cancel()
	found, err := s.client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return ""
	}
	return string(found.UID) + " " + found.ResourceVersion
}

// PullConfigs returns the credentials for image registries with which the kubelet pulls a
// function's image, each as the value of a key .dockerconfigjson: those among the function's
// secrets, then the imagePullSecrets of its service account, "" for "default". Like the
// kubelet, it passes over an account and an account's secrets that it cannot find or may not read.
func (s *SecretStore) PullConfigs(ctx context.Context, namespace string, secrets []string, account string) ([][]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, secretPatience)
	defer cancel()
	core := s.client.CoreV1()
	var configs [][]byte
	for _, name := range secrets {
		of, err := core.Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, problemFrom(err, "secret %s could not be read", name)
		}
		configs = append(configs, pullConfig(of)...)
	}
	found, err := core.ServiceAccounts(namespace).Get(ctx, cmp.Or(account, "default"), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return configs, nil
	case err != nil:
		return nil, problemFrom(err, "service account %s could not be read", cmp.Or(account, "default"))
	}
	for _, reference := range found.ImagePullSecrets {
		of, err := core.Secrets(namespace).Get(ctx, reference.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			return nil, problemFrom(err, "secret %s could not be read", reference.Name)
		}
		configs = append(configs, pullConfig(of)...)
	}
	return configs, nil
}

// pullConfig returns a secret's credentials as the value of a key .dockerconfigjson; none if the
// secret is for the function.
func pullConfig(of *corev1.Secret) [][]byte {
	switch of.Type {
	case corev1.SecretTypeDockerConfigJson:
		return [][]byte{of.Data[corev1.DockerConfigJsonKey]}
	case corev1.SecretTypeDockercfg: // The older format is the value of auths.
		return [][]byte{slices.Concat([]byte(`{"auths":`), of.Data[corev1.DockerConfigKey], []byte("}"))}
	}
	return nil
}
