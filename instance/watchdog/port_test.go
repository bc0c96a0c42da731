package watchdog

import (
	"net"
	"net/url"
	"os"
	"slices"
	"testing"
)

func TestListenersAreFound(t *testing.T) {
	const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 11 1 0000 100 0 0 10 0
   1: 0100007F:1F90 0100007F:9999 01 00000000:00000000 00:00000000 00000000  1001        0 12 1 0000 100 0 0 10 0
   2: 00000000:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1900000007        0 13 1 0000 100 0 0 10 0
   3: 00000000:1F91 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1002        0 13 1 0000 100 0 0 10 0
broken
`
	if got := listeners(table, 8080); !slices.Equal(got, []int{1000, 1900000007}) {
		t.Errorf("got %v", got)
	}
}

func TestPortOfAnotherUserIsNotOurs(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	u := &url.URL{Scheme: "http", Host: l.Addr().String()}
	if !ownsPort(os.Geteuid(), u) {
		t.Error("our own listener is not ours")
	}
	if ownsPort(os.Geteuid()+1, u) {
		t.Error("our listener is another's")
	}
	for _, elsewhere := range []string{"http://10.1.2.3", "https://function.example:8443", "http://127.0.0.1:1"} {
		if u, _ := url.Parse(elsewhere); !ownsPort(1, u) {
			t.Errorf("%s: nobody can tell whose it is", elsewhere)
		}
	}
}
