package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/command/load"
)

// stormSize is the number of requests at once.
const stormSize = 10000

// Ten thousand requests come at once to a function without an instance. As many as may wait
// are answered, the others are told to retry, and each has an answer. The provider keeps
// working. One function gets an instance meanwhile, the other does not.
func TestTenThousandRequestsAtOnce(t *testing.T) {
	allowOpenFiles(t, stormSize+500)
	p := newPlace(t)
	p.identity(t)
	const limit, coldWait = 7000, 5 * time.Second
	d := p.provider(t, suite.binary, "--queue-limit", fmt.Sprint(limit), "--cold-wait", coldWait.String(), "--max-connections", fmt.Sprint(stormSize*5/4+100)) // An address may have four times what is free.
	// A moment before the storm nothing runs. On a machine that stands still no instance
	// may be ready in time, but not each time.
	for try := 1; ; try++ {
		cold := fmt.Sprint("cold-", try)
		d.deploy(t, function(cold, "identity:latest", "20s"))
		codes, _ := d.storm(t, cold)
		if err := invokeIdentity(client(t), d.function(cold), 5); err != nil {
			t.Errorf("after the storm: %v", err)
		}
		if codes[http.StatusOK] >= limit/2 {
			break
		}
		if try == 3 {
			t.Fatalf("answers by status: %v", codes)
		}
	}
	d.deploy(t, oversized("never"))
	codes, took := d.storm(t, "never")
	// Whoever is late enough to get the place of one who has given up gives up that much
	// later.
	wait, more := codes[http.StatusServiceUnavailable], took >= 2*coldWait
	if wait < limit || wait > limit && !more || codes[http.StatusTooManyRequests] == 0 {
		t.Errorf("answers by status within %v: %v", took, codes)
	}
	if err := invokeIdentity(client(t), d.function("cold-1"), 5); err != nil {
		t.Errorf("after the storms: %v", err)
	}
	d.stop(t)
}

// storm sends a request on each of stormSize connections before it reads the first answer.
// It returns the number of answers by status, and the time of all.
func (d *daemon) storm(t *testing.T, function string) (codes map[int]int, took time.Duration) {
	t.Helper()
	goroutines, memory := d.gauge(t, "go_goroutines"), d.gauge(t, "process_resident_memory_bytes")
	connections := dialMany(t, strings.TrimPrefix(d.url, "http://"), stormSize)
	began := time.Now()
	for i, c := range connections {
		body, length := identityBody(i)
		head := fmt.Sprintf("POST /function/%s HTTP/1.1\r\nHost: provider\r\n%s: %d\r\nContent-Length: %d\r\n\r\n", function, load.HeaderLength, length, len(body))
		if _, err := c.Write(append([]byte(head), body...)); err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
	}
	sent := time.Since(began)
	peak := d.gauge(t, "process_resident_memory_bytes")
	codes = map[int]int{}
	for i, c := range connections {
		codes[stormAnswer(t, c, i)]++
	}
	took = time.Since(began)
	t.Logf("%s: sent within %v, answered within %v: %v; memory %.0f MiB before, %.0f MiB with all in flight",
		function, sent, took, codes, memory/(1<<20), peak/(1<<20))
	// Ten thousand connections with their buffers are some 200 MiB.
	if peak > 1<<30 {
		t.Errorf("the provider took %.0f MiB", peak/(1<<20))
	}
	d.await(t, patience, "goroutines to be back", func() bool { return d.gauge(t, "go_goroutines") <= goroutines+10 })
	return codes, took
}

// stormAnswer reads one answer and hangs up. It starts no goroutine, because the race
// detector allows only 8128.
func stormAnswer(t *testing.T, c net.Conn, i int) int {
	t.Helper()
	defer c.Close()
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReaderSize(c, 1024), nil)
	if err != nil {
		t.Fatalf("request %d has no answer: %v", i, err)
	}
	defer response.Body.Close()
	body := make([]byte, max(0, response.ContentLength))
	if _, err := io.ReadFull(response.Body, body); err != nil {
		t.Fatalf("request %d: %v", i, err)
	}
	switch response.StatusCode {
	case http.StatusOK:
		if !strings.HasSuffix(string(body), string(payload(i))) {
			t.Errorf("request %d got another's answer", i)
		}
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		if response.Header.Get("Retry-After") == "" {
			t.Errorf("request %d: %d without Retry-After", i, response.StatusCode)
		}
	default:
		t.Errorf("request %d: %d %s", i, response.StatusCode, body)
	}
	return response.StatusCode
}

func dialMany(t *testing.T, address string, n int) []net.Conn {
	t.Helper()
	var connections []net.Conn
	t.Cleanup(func() {
		for _, c := range connections {
			c.Close()
		}
	})
	for range n {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatalf("connection %d: %v", len(connections), err)
		}
		connections = append(connections, c)
	}
	return connections
}

// allowOpenFiles raises the limit of open files to at least n.
func allowOpenFiles(t *testing.T, n uint64) {
	t.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if limit.Max < n {
		t.Fatalf("%d open files are allowed, %d are needed: raise ulimit -n", limit.Max, n)
	}
	if limit.Cur < n {
		limit.Cur = n
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
	}
}
