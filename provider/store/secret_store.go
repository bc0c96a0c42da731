package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"sync"

	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/web"
)

// MaxSecret is the most bytes that a secret may have, as in Kubernetes.
const MaxSecret = 1 << 20

// Secrets is an open directory of secrets. It is safe for concurrent use. Two
// Secrets must not change the same directory.
type Secrets struct {
	dir string
	// root keeps every path inside the directory, even through links.
	root *os.Root
	// mu is held during a change, which reads before it writes.
	mu sync.Mutex
}

// OpenSecrets opens the directory of secrets. It makes an absent one, readable by this
// user only, and removes files that an earlier process left half written.
func OpenSecrets(dir string) (*Secrets, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("secrets: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("secrets: %w", err)
	}
	s := &Secrets{dir: dir, root: root}
	if err := s.clean(); err != nil {
		return nil, errors.Join(fmt.Errorf("secrets: %w", err), root.Close())
	}
	return s, nil
}

// Close closes the directory.
func (s *Secrets) Close() error { return s.root.Close() }

// List returns the names of a namespace's secrets, sorted; none if there is no such
// namespace. It leaves out files that are not secrets.
func (s *Secrets) List(namespace string) ([]string, error) {
	if !annotation.IsName(namespace) {
		return nil, nil
	}
	exists, err := s.hasNamespace(namespace)
	if err != nil || !exists {
		return nil, err
	}
	files, err := fs.ReadDir(s.root.FS(), namespace)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the secrets of namespace %s cannot be listed: %w", namespace, err)
	}
	names := []string{}
	for _, file := range files {
		if file.Type().IsRegular() && annotation.IsSecret(file.Name()) {
			names = append(names, file.Name())
		}
	}
	return names, nil
}

// Create stores a new secret; 409 if there is one with its name.
func (s *Secrets) Create(namespace, name string, value []byte) error {
	return s.put(namespace, name, value, false)
}

// Update replaces a secret's value; 404 if there is no such secret.
func (s *Secrets) Update(namespace, name string, value []byte) error {
	return s.put(namespace, name, value, true)
}

func (s *Secrets) put(namespace, name string, value []byte, update bool) error {
	if err := CheckValue(namespace, name, value); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	exists, err := s.has(namespace, name)
	switch {
	case err != nil:
		return err
	case update && !exists:
		return absent(namespace, name)
	case !update && exists:
		return web.Refuse(http.StatusConflict, "secret %q exists already in namespace %q; update it instead", name, namespace)
	}
	if err := s.write(namespace, name, value); err != nil {
		return fmt.Errorf("secret %s was not stored: %w", name, err)
	}
	return nil
}

// Delete deletes a secret; 404 if there is none.
func (s *Secrets) Delete(namespace, name string) error {
	if err := CheckSecret(namespace, name); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	exists, err := s.has(namespace, name)
	if err == nil && !exists {
		return absent(namespace, name)
	}
	if err == nil {
		err = errors.Join(s.root.Remove(path.Join(namespace, name)), s.sync(namespace))
	}
	if err != nil {
		return fmt.Errorf("secret %s was not deleted: %w", name, err)
	}
	return nil
}

// DeleteNamespace deletes all secrets of a namespace. It returns nil if there are none.
func (s *Secrets) DeleteNamespace(namespace string) error {
	if !annotation.IsName(namespace) {
		return badNamespace(namespace)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := errors.Join(s.root.RemoveAll(namespace), s.sync(".")); err != nil {
		return fmt.Errorf("the secrets of namespace %s were not all deleted: %w", namespace, err)
	}
	return nil
}

// File returns the path of the file that holds a secret. If there is none, the error says
// how to create it.
func (s *Secrets) File(namespace, name string) (string, error) {
	if err := CheckSecret(namespace, name); err != nil {
		return "", err
	}
	file := filepath.Join(s.dir, namespace, name)
	exists, err := s.has(namespace, name)
	if err != nil {
		return "", err
	}
	if !exists {
		return "", web.Refuse(http.StatusBadRequest, "there is no secret %q in namespace %q: create it with faas-cli secret create %s --namespace %s, or put its value into the file %s",
			name, namespace, name, namespace, file)
	}
	return file, nil
}

// Value returns a secret's value. If there is none, the error says how to create it.
func (s *Secrets) Value(namespace, name string) ([]byte, error) {
	if _, err := s.File(namespace, name); err != nil {
		return nil, err
	}
	file, err := s.root.Open(path.Join(namespace, name))
	if err != nil {
		return nil, fmt.Errorf("secret %s cannot be read: %w", name, err)
	}
	defer file.Close()
	value, err := io.ReadAll(io.LimitReader(file, MaxSecret+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("secret %s cannot be read: %w", name, err)
	case len(value) > MaxSecret: // Somebody has written the file.
		return nil, web.Refuse(http.StatusBadRequest, "secret %q has more than %d bytes, the maximum", name, MaxSecret)
	}
	return value, nil
}

// CheckValue refuses names as [CheckSecret] does, and values that are empty or too large.
func CheckValue(namespace, name string, value []byte) error {
	if err := CheckSecret(namespace, name); err != nil {
		return err
	}
	if len(value) == 0 {
		return web.Refuse(http.StatusBadRequest, "secret %q has no value; give it one", name)
	}
	if len(value) > MaxSecret {
		return web.Refuse(http.StatusRequestEntityTooLarge, "secret %q has %d bytes; the maximum is %d", name, len(value), MaxSecret)
	}
	return nil
}

// CheckSecret refuses names that a secret cannot have. The error has a status.
func CheckSecret(namespace, name string) error {
	if !annotation.IsName(namespace) {
		return badNamespace(namespace)
	}
	if !annotation.IsSecret(name) {
		return web.Refuse(http.StatusBadRequest, "name is %.80q: %s, for example %q", name, annotation.SecretRule, "api-key")
	}
	return nil
}

func badNamespace(namespace string) error {
	return web.Refuse(http.StatusBadRequest, "namespace is %.80q: it must be at most 63 lower-case letters, digits and hyphens, with no hyphen first or last, for example %q", namespace, "openfaas-fn")
}

func absent(namespace, name string) error {
	return web.Refuse(http.StatusNotFound, "there is no secret %q in namespace %q", name, namespace)
}
