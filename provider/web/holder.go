package web

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// listening is the state of a listening socket in /proc/net/tcp.
const listening = "0A"

// holder returns the process that listens at a port, as in `process 7 ("nginx -g x")`.
// It returns "" if there is none, or if another user's process listens.
func holder(port int) string {
	sockets := map[string]bool{}
	for _, inode := range listeners(connections(), port) {
		sockets["socket:["+inode+"]"] = true
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

// connections returns the machine's tables of TCP sockets.
func connections() string {
	four, _ := os.ReadFile("/proc/net/tcp")
	six, _ := os.ReadFile("/proc/net/tcp6") // Without IPv6 it does not exist.
	return string(four) + string(six)
}

// RefuseUsers refuses a request that a process of one of these users of this machine has sent. The kernel
// says whose the connection's other end is. Somebody who has closed that end already is refused, too,
// because the kernel does not say any more.
func RefuseUsers(r *http.Request, refused func(user int) bool) error {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	at, ok := r.Context().Value(http.LocalAddrContextKey).(interface{ AddrPort() netip.AddrPort })
	if err != nil || !ok || !onMachine(from.Addr()) {
		return nil // It came over no network, or from another machine.
	}
	user, open := owner(connections(), from, at.AddrPort())
	switch {
	case open && refused(user):
		return Refuse(http.StatusForbidden, "functions may not use this route of a provider without credentials")
	case !open:
		return Refuse(http.StatusForbidden, "the client has closed its connection, so the provider without credentials cannot know whether it is a function")
	}
	return nil
}

// onMachine reports whether an address is one of this machine's.
func onMachine(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	addresses, err := net.InterfaceAddrs()
	return err != nil || a.IsLoopback() || slices.ContainsFunc(addresses, func(own net.Addr) bool {
		p, err := netip.ParsePrefix(own.String())
		return err == nil && p.Addr().Unmap().WithZone("") == a
	})
}

// owner returns the user of a connection's end, from the table's eighth field. It returns false if there is
// no such end, or if no process has it open: its inode is 0 then, and its user means nothing.
func owner(table string, end, other netip.AddrPort) (user int, open bool) {
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) < 10 || fields[9] == "0" || !sameEnd(fields[1], end) || !sameEnd(fields[2], other) {
			continue
		}
		user, err := strconv.Atoi(fields[7])
		return user, err == nil
	}
	return 0, false
}

// sameEnd reports whether a field of the table, such as 0100007F:107E, is this address. Its address consists of
// 32-bit words in the machine's order of bytes.
func sameEnd(field string, end netip.AddrPort) bool {
	address, port, _ := strings.Cut(field, ":")
	if n, err := strconv.ParseUint(port, 16, 16); err != nil || uint16(n) != end.Port() {
		return false
	}
	words, err := hex.DecodeString(address)
	if err != nil || len(words)%4 != 0 {
		return false
	}
	for i := 0; i < len(words); i += 4 {
		binary.BigEndian.PutUint32(words[i:], binary.NativeEndian.Uint32(words[i:]))
	}
	a, ok := netip.AddrFromSlice(words)
	return ok && a.Unmap() == end.Addr().Unmap().WithZone("")
}
