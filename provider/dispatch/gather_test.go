package dispatch

import (
	"crypto/tls"
	"net"
	"testing"
)

// TLS gets a batch as one buffer; a socket gets what is there, without a copy.
func TestGathered(t *testing.T) {
	for name, c := range map[string]struct {
		conn net.Conn
		want int
	}{"a socket": {&net.TCPConn{}, 3}, "TLS": {tls.Client(&net.TCPConn{}, &tls.Config{ServerName: "i"}), 1}} {
		got := gathered(c.conn, net.Buffers{[]byte("a"), []byte("bc"), []byte("d")})
		text := ""
		for _, b := range got {
			text += string(b)
		}
		if len(got) != c.want || text != "abcd" {
			t.Errorf("%s: %q", name, got)
		}
	}
}
