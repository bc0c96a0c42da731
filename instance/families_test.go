package instance

import (
	"context"
	"net"
	"strconv"
	"testing"
)

// An instance listens on both families of addresses, as far as the machine has them.
func TestListensOnBothFamilies(t *testing.T) {
	l, err := Listen(context.Background(), "tcp://:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	for _, host := range []string{"127.0.0.1", "::1"} {
		if probe, err := net.Listen("tcp", net.JoinHostPort(host, "0")); err != nil {
			t.Logf("this machine has no %s: %v", host, err)
			continue
		} else if err := probe.Close(); err != nil {
			t.Fatal(err)
		}
		c, err := net.Dial("tcp", net.JoinHostPort(host, port))
		if err != nil {
			t.Errorf("%s: %v", host, err)
			continue
		}
		_ = c.Close()
	}
}
