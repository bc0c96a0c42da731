package web

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// listening is the state of a socket that listens, in /proc/net/tcp.
const listening = "0A"

// holder says which process listens at a port, as in `process 7 ("nginx -g x")`;
// "" if none does, or if it is another user's and cannot be seen.
func holder(port int) string {
	sockets := map[string]bool{}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, _ := os.ReadFile(table) // There is none without IPv6.
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

// listeners are the inodes of the sockets that listen at a port, of a table in
// the form of /proc/net/tcp: number, local address, remote address, state, ...,
// with the inode as the tenth field.
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
	const most = 60
	arguments := string(bytes.TrimSpace(bytes.ReplaceAll(text, []byte{0}, []byte{' '})))
	if len(arguments) > most {
		arguments = arguments[:most] + "…"
	}
	return fmt.Sprintf("process %s (%q)", pid, arguments)
}
