package e2e

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// processes lists the place's processes: those with its state directory in their arguments
// or environment.
func (p *place) processes() []int { return p.matching(func(int, [][]byte) bool { return true }) }

// instances lists the processes that are instances of models or of ordinary functions.
func (p *place) instances() []int {
	if onCluster != nil {
		return onCluster.instances("")
	}
	return p.matching(func(_ int, arguments [][]byte) bool { return isInstance(arguments) })
}

func isInstance(arguments [][]byte) bool {
	return len(arguments) > 1 && (string(arguments[1]) == "instance" || string(arguments[1]) == "watchdog")
}

// instancesOf lists the instances of one function.
func (p *place) instancesOf(function string) []int {
	if onCluster != nil {
		return onCluster.instances(function)
	}
	return p.matching(func(_ int, arguments [][]byte) bool {
		return isInstance(arguments) && slices.ContainsFunc(arguments, func(a []byte) bool { return string(a) == function })
	})
}

// mounts lists this machine's mounts at or from below the place's directories. Mounts of
// instances are in their own mount namespaces.
func (p *place) mounts() []string {
	var all []string
	for line := range strings.Lines(readAll("/proc/self/mountinfo")) {
		if strings.Contains(line, p.dir+"/") && !strings.Contains(line, " "+p.state+" ") {
			all = append(all, strings.TrimSpace(line))
		}
	}
	return all
}

func (p *place) matching(want func(pid int, arguments [][]byte) bool) []int {
	entries, _ := os.ReadDir("/proc")
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		// Either may be gone by now, which makes them empty.
		arguments, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		environment, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if !bytes.Contains(arguments, []byte(p.state)) && !bytes.Contains(environment, []byte(p.state)) {
			continue
		}
		if want(pid, splitArguments(arguments)) {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}

// splitArguments splits the arguments of a process in the form of /proc.
func splitArguments(text []byte) [][]byte { return bytes.Split(text, []byte{0}) }

// cgroups lists the directories of the control groups with the place's instances. It lists
// none without the rights for control groups. It also lists none on a cluster: there they
// are the kubelet's and outlive the provider.
func (p *place) cgroups() []string {
	if onCluster != nil {
		return nil
	}
	var all []string
	for _, pid := range p.instances() {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		for line := range strings.Lines(string(text)) {
			fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
			if len(fields) < 3 || !strings.Contains(fields[2], "faas-infer-") {
				continue
			}
			// The parent of all instances' groups, with each mount's name for
			// version 1 and none for version 2.
			parent := filepath.Dir(fields[2])
			dirs, _ := filepath.Glob(filepath.Join("/sys/fs/cgroup/*", parent))
			if found, err := filepath.Glob(filepath.Join("/sys/fs/cgroup", parent)); err == nil {
				dirs = append(dirs, found...)
			}
			all = append(all, dirs...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// sockets lists the sockets below the place's directory.
func (p *place) sockets() []string {
	var found []string
	_ = filepath.WalkDir(p.dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type()&fs.ModeSocket != 0 {
			found = append(found, path)
		}
		return nil
	})
	return found
}

// nothingLeft fails the test for every process, socket and mount that a stopped provider
// has left.
func (p *place) nothingLeft(t *testing.T) {
	t.Helper()
	for _, pid := range p.processes() {
		t.Errorf("process %d is left: %s", pid, commandLine(pid))
	}
	for _, s := range p.sockets() {
		t.Errorf("socket %s is left", s)
	}
	for _, m := range p.mounts() {
		t.Errorf("mount %s is left", m)
	}
	entries, _ := os.ReadDir(filepath.Join(p.state, "local", "instances"))
	for _, e := range entries {
		t.Errorf("directory of instance %s is left", e.Name())
	}
	// The directory is that of its temporary files, too.
	temporary, _ := filepath.Glob(filepath.Join(p.dir, "faas-infer-*"))
	for _, file := range temporary {
		t.Errorf("temporary file %s is left", file)
	}
}

// gone fails the test for every directory that still exists.
func gone(t *testing.T, dirs []string) {
	t.Helper()
	for _, dir := range dirs {
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("cgroup %s is left", dir)
		}
	}
}

func commandLine(pid int) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return string(bytes.ReplaceAll(text, []byte{0}, []byte{' '}))
}

// killAll kills the leftovers of a failed test by pid, and removes its cgroups.
func (p *place) killAll(t *testing.T) {
	groups := p.cgroups()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		pids := p.processes()
		if len(pids) == 0 || time.Now().After(end) {
			break
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	for _, parent := range groups {
		children, _ := os.ReadDir(parent)
		for _, c := range children {
			if c.IsDir() {
				_ = syscall.Rmdir(filepath.Join(parent, c.Name()))
			}
		}
		_ = syscall.Rmdir(parent)
	}
	if left := p.processes(); len(left) > 0 {
		t.Errorf("processes %v cannot be killed", left)
	}
}
