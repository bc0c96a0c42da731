package command

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// A provider serves functions at one address and operators at another one, and ends both.
func TestAddressesOfDataAndAdmin(t *testing.T) {
	r := &resident{dir: t.TempDir(), release: make(chan struct{}), begun: make(chan struct{}, 10)}
	close(r.release)
	f := &ProviderFlags{}
	f.register(pflag.NewFlagSet("", pflag.ContinueOnError))
	f.listen, f.state, f.drain, f.nats.listen, f.logLevel = "off", r.dir, time.Second, "127.0.0.1:0", "error"
	f.doors.admin = "127.0.0.1:0"
	if _, err := f.start(t.Context(), r); err == nil || !strings.Contains(err.Error(), "--listen is off: give --listen-data and --listen-admin") {
		t.Errorf("off alone: %v", err)
	}
	f.doors.data = "127.0.0.1:0"
	s, err := f.start(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if s.doors[0].flag != "--listen-admin" || s.address() != s.doors[0].listener.Addr().String() {
		t.Errorf("the first address is that of %s", s.doors[0].flag)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, d := range s.doors {
		for path, codes := range map[string][2]int{"/function/slow": {404, 200}, "/system/functions": {200, 404}, "/metrics": {200, 404}, "/healthz": {200, 200}} {
			answer, err := client.Get("http://" + d.listener.Addr().String() + path)
			if err != nil {
				t.Fatal(err)
			}
			_ = answer.Body.Close()
			if want := codes[map[string]int{"--listen-admin": 0, "--listen-data": 1}[d.flag]]; answer.StatusCode != want {
				t.Errorf("%s at %s: %d, want %d", path, d.flag, answer.StatusCode, want)
			}
		}
	}
	if err := s.stop(func() {}); err != nil {
		t.Error(err)
	}
	for range s.doors {
		<-s.served
	}
}

// An address that two flags have is refused at once, with the names of both.
func TestOneAddressForTwoFlags(t *testing.T) {
	of := func(pairs ...string) (all []door) {
		for i := 0; i < len(pairs); i += 2 {
			all = append(all, door{flag: pairs[i], address: pairs[i+1]})
		}
		return all
	}
	for _, all := range [][]door{
		of("--listen-admin", "127.0.0.1:9000", "--listen-data", "127.0.0.1:9000"), of("--listen-admin", ":9000", "--listen-data", "127.0.0.1:9000"),
		of("--listen-admin", "[::1]:9000", "--listen", "127.0.0.1:1", "--listen-data", "0.0.0.0:9000"), of("--listen-admin", "127.0.0.1:80", "--listen-data", "127.0.0.1:http"),
	} {
		if err := checkApart(all); err == nil || !strings.Contains(err.Error(), "--listen-admin") || !strings.Contains(err.Error(), "--listen-data") {
			t.Errorf("%+v: %v", all, err)
		}
	}
	for _, all := range [][]door{
		of("--listen", "127.0.0.1:0", "--listen-data", "127.0.0.1:0"), of("--listen", "127.0.0.1:9000", "--listen-data", "127.0.0.2:9000"),
		of("--listen", "127.0.0.1:9000", "--nats-listen", ""), of("--listen", "x", "--listen-data", "x"),
	} {
		if err := checkApart(all); err != nil {
			t.Errorf("%+v: %v", all, err)
		}
	}
	f := &ProviderFlags{listen: "127.0.0.1:65000", doors: doorFlags{data: "127.0.0.1:65000"}}
	if err := (&runningProvider{flags: f}).openDoors(); err == nil || !strings.Contains(err.Error(), "--listen 127.0.0.1:65000 and --listen-data") {
		t.Error(err)
	}
	f = &ProviderFlags{listen: "127.0.0.1:99999"}
	if err := (&runningProvider{flags: f}).openDoors(); err == nil || strings.Contains(err.Error(), "stop") || !strings.Contains(err.Error(), "give an address") {
		t.Error(err)
	}
}
