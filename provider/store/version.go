package store

import (
	"fmt"
	"path"
)

// Version returns a text that changes when a secret's file is replaced, "" if there is no
// such secret.
func (s *Secrets) Version(namespace, name string) string {
	if CheckSecret(namespace, name) != nil {
		return ""
	}
	info, err := s.root.Stat(path.Join(namespace, name))
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%d %d", info.ModTime().UnixNano(), info.Size())
}
