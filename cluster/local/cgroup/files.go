package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// childGroups lists the groups below a group's directory; none if it does not
// exist.
func childGroups(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list cgroups: %w", err)
	}
	var names []string
	for _, entry := range entries {
		if entry.IsDir() {
			names = append(names, entry.Name())
		}
	}
	return names, nil
}

// removeDir removes one group's directory. It returns no error if the group does
// not exist or still has groups below it.
func removeDir(dir string) error {
	err := syscall.Rmdir(dir)
	if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.EBUSY) || errors.Is(err, syscall.ENOTEMPTY) {
		return nil
	}
	return fmt.Errorf("remove cgroup %s: %w", dir, err)
}
