package watchdog

import (
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
)

// ownsPort reports whether a process of user listens at a URL of this machine. It returns
// true if it cannot tell. Two instances on one machine may choose the same port, and then
// one would answer for the other.
func ownsPort(user int, u *url.URL) bool {
	host, port, err := net.SplitHostPort(hostPort(u))
	if err != nil {
		return true
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return true
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return true
	}
	found := false
	for _, file := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for _, owner := range listeners(string(text), uint16(number)) {
			if owner == user {
				return true
			}
			found = true
		}
	}
	return !found
}

// listeners returns the users that listen at a port, from one of the kernel's tables
// (proc_net(5)).
func listeners(table string, port uint16) (users []int) {
	const listening = "0A"
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) < 8 || fields[3] != listening {
			continue
		}
		_, local, _ := strings.Cut(fields[1], ":")
		if number, err := strconv.ParseUint(local, 16, 16); err != nil || uint16(number) != port {
			continue
		}
		if user, err := strconv.Atoi(fields[7]); err == nil {
			users = append(users, user)
		}
	}
	return users
}
