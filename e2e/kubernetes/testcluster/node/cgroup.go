package node

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// hierarchies returns the directories at which cgroups are mounted.
func hierarchies() ([]string, error) {
	file, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var all []string
	for s := bufio.NewScanner(file); s.Scan(); {
		before, after, _ := strings.Cut(s.Text(), " - ")
		if fields := strings.Fields(before); strings.HasPrefix(after, "cgroup") && len(fields) > 4 {
			all = append(all, fields[4])
		}
	}
	return all, nil
}

// MakeCgroups makes the cgroup name in every hierarchy.
func MakeCgroups(name string) error {
	tops, err := hierarchies()
	if err != nil {
		return err
	}
	for _, top := range tops {
		dir := filepath.Join(top, name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make a cgroup: %w", err)
		}
		// A new cpuset of version 1 is empty, and no process can run in it.
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			text, err := os.ReadFile(filepath.Join(dir, file))
			if err != nil || strings.TrimSpace(string(text)) != "" || !isVersion1(top) {
				continue
			}
			if text, err = os.ReadFile(filepath.Join(top, file)); err == nil {
				err = os.WriteFile(filepath.Join(dir, file), text, 0)
			}
			if err != nil {
				return fmt.Errorf("fill %s: %w", file, err)
			}
		}
	}
	return nil
}

func isVersion1(top string) bool {
	var s unix.Statfs_t
	return unix.Statfs(top, &s) == nil && s.Type == unix.CGROUP_SUPER_MAGIC
}

// KillCgroups kills every process in the cgroup name of any hierarchy, and below.
func KillCgroups(name string) error {
	return eachCgroup(name, func(dir string) error {
		text, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			return nil // The cgroup was removed meanwhile.
		}
		for _, word := range strings.Fields(string(text)) {
			// 0 is a process of another namespace.
			pid, err := strconv.Atoi(word)
			if err != nil || pid <= 1 {
				continue
			}
			if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("kill process %d of %s: %w", pid, dir, err)
			}
		}
		return nil
	})
}

// RemoveCgroups removes the cgroup name of every hierarchy with all below. It also kills
// processes that start there meanwhile, and waits for ending processes.
func RemoveCgroups(name string) error {
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if err := KillCgroups(name); err != nil {
			return err
		}
		err := eachCgroup(name, func(dir string) error {
			if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("remove a cgroup: %w", err)
			}
			return nil
		})
		if err == nil || time.Now().After(end) {
			return err
		}
	}
}

// eachCgroup visits the cgroup and those below it, the lowest first.
func eachCgroup(name string, visit func(dir string) error) error {
	if name == "" {
		return errors.New("the cgroup's name is empty")
	}
	tops, err := hierarchies()
	if err != nil {
		return err
	}
	var all []string
	for _, top := range tops {
		err := filepath.WalkDir(filepath.Join(top, name), func(dir string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				all = append(all, dir)
			}
			return nil // A cgroup that cannot be read was removed.
		})
		if err != nil {
			return err
		}
	}
	slices.Reverse(all)
	for _, dir := range all {
		if err := visit(dir); err != nil {
			return err
		}
	}
	return nil
}
