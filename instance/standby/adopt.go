package standby

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// adopt moves this process into the control groups and onto the cores of another. Memory that it has
// counts in its former groups.
func adopt(pid int) error {
	groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return err
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return err
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	have := strings.Split(string(own), "\n")
	for line := range strings.Lines(string(groups)) {
		if line = strings.TrimSuffix(line, "\n"); slices.Contains(have, line) {
			continue
		}
		dir, err := groupDir(line, string(mounts))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0); err != nil {
			return err
		}
	}
	return moveThreads(pid)
}

// groupDir returns the directory of a control group: a line of /proc/PID/cgroup. mounts is
// /proc/self/mountinfo.
func groupDir(line, mounts string) (string, error) {
	parts := strings.SplitN(line, ":", 3)
	if len(parts) != 3 {
		return "", fmt.Errorf("the control group %q is unreadable", line)
	}
	controllers, path := parts[1], parts[2]
	for m := range strings.Lines(mounts) {
		before, after, ok := strings.Cut(m, " - ")
		at, kind := strings.Fields(before), strings.Fields(after)
		if !ok || len(at) < 5 || len(kind) < 3 {
			continue
		}
		options := strings.Split(kind[2], ",")
		hierarchy := controllers == "" && kind[0] == "cgroup2" ||
			controllers != "" && kind[0] == "cgroup" && !slices.ContainsFunc(strings.Split(controllers, ","), func(c string) bool { return !slices.Contains(options, c) })
		if !hierarchy {
			continue
		}
		// at[3] is the group that the mount shows as its root, at[4] where.
		below, err := filepath.Rel(at[3], path)
		if err != nil || strings.HasPrefix(below, "..") {
			continue
		}
		return filepath.Join(at[4], below), nil
	}
	return "", fmt.Errorf("the control group %q is not mounted here", line)
}

// moveThreads lets all threads of this process run on another's cores.
func moveThreads(pid int) error {
	var cores unix.CPUSet
	if err := unix.SchedGetaffinity(pid, &cores); err != nil {
		return err
	}
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, t := range threads {
		id, err := strconv.Atoi(t.Name())
		if err != nil {
			return err
		}
		if err := unix.SchedSetaffinity(id, &cores); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return nil
}
