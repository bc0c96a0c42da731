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

// unfinished begins the names of files that are being written. No secret's name
// begins like it.
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

// write puts the value under its name at once: whoever reads the file, also
// after a power cut, finds the earlier value or this one.
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
			_ = s.root.Remove(temporary) // The first error matters more, and Open removes it too.
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

// sync writes a directory's names to disk.
func (s *Secrets) sync(dir string) error {
	d, err := s.root.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// has reports whether there is a secret. Where its file ought to be there may
// also be something else, which is nobody's secret.
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
		return false, fmt.Errorf("secret %s: %s is no plain file; put one in its place", name, filepath.Join(s.dir, namespace, name))
	}
	return true, nil
}

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
