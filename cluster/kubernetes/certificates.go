package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/podspec"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
)

// certificateLabel marks the Secrets with the instances' certificate. It is not that of functions'
// secrets, which users of the gateway may change.
const certificateLabel = "faas-infer.dev/certificate"

// certificates keeps the instances' certificate in the namespaces of functions.
type certificates struct{ *Backend }

// certificate is the instances' certificate in a namespace.
type certificate struct {
	// mu is held while the Secret is written: instances of one namespace start at the same time.
	mu sync.Mutex
	// files are what this replica has written, nil for nothing.
	files map[string][]byte
}

// of returns a namespace's certificate. It is known until the namespace has no instances
// any more: it may be deleted then, and made again.
func (b certificates) of(namespace string) *certificate {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.written[namespace]
	if c == nil {
		c = &certificate{}
		if b.inhabited(namespace) {
			if b.written == nil {
				b.written = map[string]*certificate{}
			}
			b.written[namespace] = c
		}
	}
	return c
}

// inhabited reports whether a namespace has instances. The caller holds mu.
func (b certificates) inhabited(namespace string) bool {
	for _, e := range b.entries {
		if e.namespace == namespace {
			return true
		}
	}
	return false
}

// ensure makes a namespace's Secret hold the instances' certificate of now. It asks the API
// server only if this replica has not written that there. again asks in any case.
func (b certificates) ensure(ctx context.Context, namespace string, again bool) error {
	if b.options.Certificate == nil {
		return nil
	}
	c := b.of(namespace)
	c.mu.Lock()
	defer c.mu.Unlock()
	files := b.options.Certificate()
	if !again && sameFiles(c.files, files) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	defer context.AfterFunc(b.ctx, cancel)()
	var foreign bool
	err := attempt(ctx, func(ctx context.Context) (err error) {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		foreign, err = b.write(ctx, namespace, files)
		return err
	})
	switch {
	case err != nil:
		return fmt.Errorf("the certificate of instances in namespace %s: %w", namespace, err)
	case foreign:
		return fmt.Errorf("the certificate of instances in namespace %s: there is another secret %s: rename it, since the provider keeps the certificate there", namespace, podspec.CertificateSecret)
	}
	c.files = files
	return nil
}

// write creates or updates a namespace's Secret. foreign reports that another one has its
// name.
func (b certificates) write(ctx context.Context, namespace string, files map[string][]byte) (foreign bool, err error) {
	secrets := b.options.Client.CoreV1().Secrets(namespace)
	for {
		found, err := secrets.Get(ctx, podspec.CertificateSecret, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			_, err = secrets.Create(ctx, &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Name: podspec.CertificateSecret, Namespace: namespace, Labels: map[string]string{certificateLabel: "instances"}},
				Type:       corev1.SecretTypeTLS, Data: files,
			}, metav1.CreateOptions{FieldManager: v1alpha1.ManagedBy})
		case err != nil:
			return false, err
		case found.Labels[certificateLabel] == "":
			return true, nil
		case sameFiles(found.Data, files):
			return false, nil
		default:
			found.Data = files
			_, err = secrets.Update(ctx, found, metav1.UpdateOptions{FieldManager: v1alpha1.ManagedBy})
		}
		// A replica that led until now may have been first.
		if !apierrors.IsAlreadyExists(err) && !apierrors.IsConflict(err) {
			return false, err
		}
	}
}

func sameFiles(a, b map[string][]byte) bool { return maps.EqualFunc(a, b, slices.Equal) }

// EnsureCertificate makes a namespace have the instances' certificate of now, for pods that the backend
// does not make.
func EnsureCertificate(ctx context.Context, b *Backend, namespace string) error {
	return certificates{b}.ensure(ctx, namespace, true)
}

// RenewCertificates brings the instances' certificate of now into each namespace that has instances,
// and into others. The replica that leads calls it from time to time.
func RenewCertificates(ctx context.Context, b *Backend, others ...string) error {
	b.mu.Lock()
	namespaces := map[string]bool{}
	for _, namespace := range others {
		namespaces[namespace] = true
	}
	for _, e := range b.entries {
		namespaces[e.namespace] = true
	}
	b.mu.Unlock()
	var failed []error
	for _, namespace := range slices.Sorted(maps.Keys(namespaces)) {
		failed = append(failed, certificates{b}.ensure(ctx, namespace, true))
	}
	return errors.Join(failed...)
}
