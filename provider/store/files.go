package store

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/faas-infer/faas-infer/provider/annotation"
)

// unfinished begins the names of files that are being written. No secret's name begins
// with it.
const unfinished = ".new-"

// clean removes unfinished files.
func (s *Secrets) clean() error {
	namespaces, err := fs.ReadDir(s.root.FS(), ".")
	if err != nil {
		return err
	}
	for _, namespace := range namespaces {
		if !namespace.IsDir() || !annotation.IsName(namespace.Name()) {
			continue
		}
		files, err := fs.ReadDir(s.root.FS(), namespace.Name())
		if err != nil {
			return err
		}
		for _, file := range files {
			if !strings.HasPrefix(file.Name(), unfinished) {
				continue
			}
			if err := s.root.Remove(path.Join(namespace.Name(), file.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// write replaces the value under a name atomically. A reader finds the earlier value or
// this one, even after a power failure.
func (s *Secrets) write(namespace, name string, value []byte) (err error) {
	switch err := s.root.Mkdir(namespace, 0o700); {
	case err == nil:
		if err := s.sync("."); err != nil {
			return err
		}
	case !errors.Is(err, fs.ErrExist):
		return err
	}
	temporary := path.Join(namespace, unfinished+rand.Text())
	file, err := s.root.OpenFile(temporary, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = s.root.Remove(temporary) // The first error matters more, and OpenSecrets removes the file, too.
		}
	}()
	_, err = file.Write(value)
	if err == nil {
		err = file.Sync()
	}
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	if err := s.root.Rename(temporary, path.Join(namespace, name)); err != nil {
		return err
	}
	return s.sync(namespace)
}

// sync writes a directory's names to the disk.
func (s *Secrets) sync(dir string) error {
	d, err := s.root.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// has reports whether a secret exists. It is an error if something other than a file has
// its name.
func (s *Secrets) has(namespace, name string) (bool, error) {
	exists, err := s.hasNamespace(namespace)
	if err != nil || !exists {
		return false, err
	}
	info, err := s.root.Lstat(path.Join(namespace, name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("secret %s: %w", name, err)
	case !info.Mode().IsRegular():
		return false, fmt.Errorf("secret %s: %s is not a plain file; replace it by one", name, filepath.Join(s.dir, namespace, name))
	}
	return true, nil
}

// hasNamespace reports whether a namespace has a directory.
func (s *Secrets) hasNamespace(namespace string) (bool, error) {
	info, err := s.root.Lstat(namespace)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("the secrets of namespace %s: %w", namespace, err)
	case !info.IsDir():
		return false, fmt.Errorf("the secrets of namespace %s: %w", namespace,
			&fs.PathError{Op: "open", Path: filepath.Join(s.dir, namespace), Err: syscall.ENOTDIR})
	}
	return true, nil
}
