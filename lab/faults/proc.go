package faults

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// proc is one process.
type proc struct {
	parent int
	name   string
	state  byte
}

// processes are all of them, by pid.
func processes() (map[int]proc, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	all := map[int]proc{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		text, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue // It has ended meanwhile.
		}
		if p, ok := parseProc(text); ok {
			all[pid] = p
		}
	}
	return all, nil
}

// parseProc reads the first fields of /proc/PID/stat: a name may hold blanks and
// parentheses.
func parseProc(stat []byte) (p proc, ok bool) {
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if open < 0 || end < open {
		return p, false
	}
	fields := strings.Fields(string(stat[end+1:]))
	if len(fields) < 2 {
		return p, false
	}
	parent, err := strconv.Atoi(fields[1])
	return proc{parent: parent, name: string(stat[open+1 : end]), state: fields[0][0]}, err == nil
}

// descendants are the processes below one, itself not included.
func descendants(all map[int]proc, root int) (below []int) {
	children := map[int][]int{}
	for pid, p := range all {
		children[p.parent] = append(children[p.parent], pid)
	}
	next := children[root]
	for len(next) > 0 {
		pid := next[0]
		next = append(next[1:], children[pid]...)
		below = append(below, pid)
	}
	return below
}

// connections counts those that are established to an address of IPv4.
func connections(address string) (n int, err error) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return 0, err
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		return 0, err
	}
	text, err := os.ReadFile("/proc/self/net/tcp")
	if err != nil {
		return 0, err
	}
	const established = "01"
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) > 3 && strings.HasSuffix(fields[2], fmt.Sprintf(":%04X", number)) && fields[3] == established {
			n++ // The client's end.
		}
	}
	return n, nil
}

// cgroupMount is where every distribution mounts cgroups.
const cgroupMount = "/sys/fs/cgroup"

// cgroupDir is the directory of the cgroup that a process is in, for a controller. version
// is that of cgroups, 1 or 2.
func cgroupDir(pid int, controller string) (dir string, version int, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return "", 0, err
	}
	unified := ""
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		parts := strings.SplitN(s.Text(), ":", 3)
		if len(parts) != 3 {
			continue
		}
		if parts[1] == "" {
			unified = parts[2]
		}
		for name := range strings.SplitSeq(parts[1], ",") {
			if name == controller {
				return filepath.Join(cgroupMount, controller, parts[2]), 1, nil
			}
		}
	}
	dir = filepath.Join(cgroupMount, unified)
	if _, err := os.Stat(filepath.Join(dir, "cgroup.procs")); err != nil || unified == "" {
		return "", 0, fmt.Errorf("process %d is in no cgroup of the controller %s", pid, controller)
	}
	return dir, 2, nil
}

// within reports whether a process is in the cgroup of one of the instances, or below it.
func within(instances map[string]bool, pid int) bool {
	dir, _, err := cgroupDir(pid, "memory")
	if err != nil {
		return false
	}
	return slices.ContainsFunc(strings.Split(dir, "/"), func(name string) bool { return instances[name] })
}

// treeOf is the cgroup of a provider that a cgroup of its instance is in: the part of the
// path up to the name that providers give it.
func treeOf(dir string) (tree string, ok bool) {
	for at := dir; at != "/" && at != "."; at = filepath.Dir(at) {
		if name := filepath.Base(at); strings.HasPrefix(name, "faas-infer-") && !strings.HasSuffix(name, "-provider") && !strings.HasSuffix(name, "-background") {
			return at, true
		}
	}
	return "", false
}
