package engine_test

import (
	"net"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/instance/engine"
)

// No client gets the port of a program that has not begun to listen: it is free, and outside
// the range that the kernel gives to clients. No port is given twice.
func TestFreePort(t *testing.T) {
	first := 32768 // of the kernel's default range
	if text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err == nil {
		first, _ = strconv.Atoi(strings.Fields(string(text))[0])
	}
	if first <= 32000 {
		t.Skipf("this machine gives clients ports from %d on", first)
	}
	seen := map[int]bool{}
	for range 200 {
		port, err := engine.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		if port < 1024 || port >= first {
			t.Errorf("port %d; clients get %d and higher", port, first)
		}
		if seen[port] {
			t.Errorf("port %d is given twice", port)
		}
		seen[port] = true
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
	}
}
