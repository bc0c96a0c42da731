package testcluster

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
)

// Processes finds the processes of a model's pods on the node, by the function's name. A pod's name, which its
// programs have as HOSTNAME, is the function's and a part without a hyphen.
func Processes(function string) (pids []int) {
	all, _ := filepath.Glob("/proc/[0-9]*/environ") // The pattern is right.
	for _, file := range all {
		text, err := os.ReadFile(file) // The process may have ended.
		if err != nil {
			continue
		}
		_, rest, _ := bytes.Cut(append([]byte{0}, text...), []byte("\x00HOSTNAME="+function+"-"))
		part, _, _ := bytes.Cut(rest, []byte{0})
		if len(part) == 0 || bytes.ContainsRune(part, '-') || !isInstance(filepath.Dir(file)) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// isInstance reports whether a process, by its directory below /proc, serves a model.
func isInstance(process string) bool {
	text, err := os.ReadFile(filepath.Join(process, "cmdline"))
	return err == nil && bytes.Contains(text, []byte("\x00instance\x00"))
}
