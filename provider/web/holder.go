package web

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// listening is the state of a listening socket in /proc/net/tcp.
const listening = "0A"

// holder returns the process that listens at a port, as in `process 7 ("nginx -g x")`.
// It returns "" if there is none, or if another user's process listens.
func holder(port int) string {
	sockets := map[string]bool{}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, _ := os.ReadFile(table) // Without IPv6, tcp6 does not exist.
		for _, inode := range listeners(string(text), port) {
			sockets["socket:["+inode+"]"] = true
		}
	}
	if len(sockets) == 0 {
		return ""
	}
	open, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, file := range open {
		// A file that cannot be read is another user's, or gone.
		if target, _ := os.Readlink(file); sockets[target] {
			return process(strings.Split(file, "/")[2])
		}
	}
	return ""
}

// listeners returns the inodes of the sockets that listen at a port. The table has the
// form of /proc/net/tcp: number, local address, remote address, state, ..., with the
// inode as the tenth field.
func listeners(table string, port int) (inodes []string) {
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) < 10 || fields[3] != listening {
			continue
		}
		_, text, _ := strings.Cut(fields[1], ":")
		if n, err := strconv.ParseUint(text, 16, 16); err == nil && int(n) == port {
			inodes = append(inodes, fields[9])
		}
	}
	return inodes
}

// process describes a process by its number and the beginning of its arguments.
func process(pid string) string {
	text, _ := os.ReadFile(filepath.Join("/proc", pid, "cmdline"))
	const maximum = 60
	arguments := string(bytes.TrimSpace(bytes.ReplaceAll(text, []byte{0}, []byte{' '})))
	if len(arguments) > maximum {
		arguments = arguments[:maximum] + "…"
	}
	return fmt.Sprintf("process %s (%q)", pid, arguments)
}
