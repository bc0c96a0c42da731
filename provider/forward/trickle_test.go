package forward

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// An answer whose instance pauses reaches the client as far as it has come, whether its
// length is known or not, and so does its head.
func TestTrickledAnswers(t *testing.T) {
	for name, header := range map[string]http.Header{
		"known length": {"Content-Length": {"12"}}, "unknown length": {},
		"events": {"Content-Type": {"text/event-stream"}, "Content-Length": {"12"}},
	} {
		t.Run(name, func(t *testing.T) {
			proceed, late := make(chan bool, 3), make(chan bool)
			r := newRig(t, Options{})
			r.up(start(t, "a", func(w http.ResponseWriter, _ *http.Request) {
				for key, values := range header {
					w.Header()[key] = values
				}
				w.WriteHeader(http.StatusOK)
				for _, part := range []string{"", "one\n", "two\n", "six\n"} {
					_, _ = io.WriteString(w, part)
					_ = http.NewResponseController(w).Flush()
					select {
					case <-proceed:
					case <-late:
					}
				}
			}))
			// Otherwise a client that gets nothing would wait for ever.
			held := time.AfterFunc(20*time.Second, func() { close(late) })
			resp, err := client.Get(r.url + "/")
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			lines := bufio.NewReader(resp.Body)
			for _, want := range []string{"one\n", "two\n", "six\n"} {
				proceed <- true
				if got, err := lines.ReadString('\n'); got != want || err != nil {
					t.Errorf("read %q, %v; want %q", got, err, want)
				}
			}
			proceed <- true
			if !held.Stop() {
				t.Error("the answer was held back")
			}
			if _, err := lines.ReadByte(); err != io.EOF {
				t.Errorf("after the end: %v", err)
			}
		})
	}
}

// BenchmarkForward measures a request's way through the forwarder, with net/http's server
// before it and an instance behind it, by the size of an answer of known length.
func BenchmarkForward(b *testing.B) {
	for _, size := range []int{16, 64 << 10, 4 << 20} {
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) {
			text := strings.Repeat("x", size)
			r := newRig(b, Options{})
			r.up(start(b, "a", func(w http.ResponseWriter, _ *http.Request) {
				w.Header()["Content-Length"] = []string{fmt.Sprint(size)}
				_, _ = io.WriteString(w, text)
			}))
			transport := &http.Transport{}
			defer transport.CloseIdleConnections()
			keeping := &http.Client{Transport: transport}
			b.ReportAllocs()
			b.SetBytes(int64(size))
			for b.Loop() {
				resp, err := keeping.Get(r.url + "/")
				if err != nil {
					b.Fatal(err)
				}
				if n, err := io.Copy(io.Discard, resp.Body); n != int64(size) || err != nil {
					b.Fatalf("%d bytes, %v", n, err)
				}
				resp.Body.Close()
			}
		})
	}
}
