package watchdog

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// killOrphans kills the children of this process.
func killOrphans() {
	for _, pid := range children() {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}

// children lists this process's children. It returns none if the kernel does not list them.
func children() []int {
	// A child belongs to the thread that forked it.
	files, _ := filepath.Glob("/proc/self/task/*/children")
	var pids []int
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for _, field := range strings.Fields(string(text)) {
			if pid, err := strconv.Atoi(field); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids)
}
