package forward

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider/metrics"
)

// curt is an instance that reads a request's head, answers and closes.
func curt(t *testing.T, answer string) *function {
	t.Helper()
	in := &function{id: "curt", address: filepath.Join(t.TempDir(), "s"), server: &http.Server{}}
	listener, err := net.Listen("unix", in.address)
	if err != nil {
		t.Fatal(err)
	}
	in.listener = listener
	t.Cleanup(in.kill)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				http.ReadRequest(bufio.NewReader(conn))
				io.WriteString(conn, answer)
			}()
		}
	}()
	return in
}

// upload sends a head and a whole body before it reads the answer, as many clients do.
// It ignores errors of sending.
func (r *rig) upload(head string, body []byte) (*http.Response, string, error) {
	conn, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(r.url, "http://"), "/f"))
	if err != nil {
		return nil, "", err
	}
	defer conn.Close()
	reader := bufio.NewReader(conn)
	fmt.Fprintf(conn, "POST /f/ HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n%s\r\n", len(body), head)
	conn.Write(body)
	resp, err := http.ReadResponse(reader, nil)
	for err == nil && resp.StatusCode == http.StatusContinue {
		resp, err = http.ReadResponse(reader, nil)
	}
	if err != nil {
		return nil, "", err
	}
	text, err := io.ReadAll(resp.Body)
	return resp, string(text), err
}

// An instance may answer before it has read the request and read no more. That answer
// counts.
func TestAnswerOfAnInstanceThatDoesNotRead(t *testing.T) {
	body := make([]byte, 5<<20)
	for _, c := range []struct {
		answer, text string
		code         int
	}{
		{"HTTP/1.1 504 Gateway Timeout\r\nConnection: close\r\nContent-Length: 4\r\n\r\nlate", "late", 504},
		{"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n", "", 413},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nfine\r\n0\r\n\r\n", "fine", 200},
		{"nonsense\r\n\r\n", ErrInstanceLost.Error() + "\n", 502},
		{"", ErrInstanceLost.Error() + "\n", 502},
	} {
		r := newRig(t, Options{})
		r.up(curt(t, c.answer))
		for _, head := range []string{"", "Expect: 100-continue\r\n"} {
			for range 10 {
				resp, text, err := r.upload(head, body)
				if err != nil || resp.StatusCode != c.code || text != c.text || resp.Header.Get("Connection") != "close" && !resp.Close {
					t.Errorf("%q %q: %v %q, %v", c.answer, head, resp, text, err)
					break
				}
			}
		}
		r.settled()
	}
}

// guarded is a body that detects reads after the handler has returned.
type guarded struct {
	io.ReadCloser
	returned atomic.Bool
	misused  *atomic.Int64
}

func (g *guarded) Read(p []byte) (int, error) {
	n, err := g.ReadCloser.Read(p)
	if g.returned.Load() {
		g.misused.Add(1)
	}
	return n, err
}

// After Forward has returned, only net/http may read the body, however the exchange
// ended: two readers cause a panic in a goroutine that nobody recovers.
func TestNobodyReadsTheBodyAfterwards(t *testing.T) {
	f := New(Options{ColdWait: time.Second, Recorder: &record{}})
	for _, in := range []*function{curt(t, ""), curt(t, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), curt(t, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")} {
		in.id += cluster.InstanceID(in.address)
		f.Up(in.id, "unix", in.address, 1)
	}
	var misused atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body := &guarded{ReadCloser: q.Body, misused: &misused}
		q.Body = body
		defer body.returned.Store(true)
		f.Forward(w, q, "/", 0, nil)
	}))
	t.Cleanup(server.Close)
	t.Cleanup(f.Close)
	r := &rig{t: t, url: server.URL + "/f"}
	for range 20 {
		conn, err := net.Dial("tcp", strings.TrimPrefix(server.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n")
		io.WriteString(conn, "a")
		go func() {
			for range 20 {
				time.Sleep(time.Millisecond)
				if _, err := io.WriteString(conn, "b"); err != nil {
					break
				}
			}
			io.WriteString(conn, strings.Repeat("c", 79))
		}()
		io.Copy(io.Discard, conn)
		conn.Close()
		r.upload("", make([]byte, 1<<20))
	}
	if n := misused.Load(); n > 0 {
		t.Errorf("it was read %d times after the handler had returned", n)
	}
}

// slowly sends a body of n bytes, one in each pause, and returns the answer.
func (r *rig) slowly(n int, pause time.Duration) (int, string, error) {
	reader, writer := io.Pipe()
	answered := make(chan struct{})
	defer close(answered)
	go func() {
		defer writer.Close()
		for range n {
			writer.Write([]byte("x"))
			select {
			case <-time.After(pause):
			case <-answered:
				return
			}
		}
	}()
	resp, err := client.Post(r.url+"/", "text/plain", reader)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// A body may be slow, but it must not stop: then the client would keep an instance
// waiting.
func TestASlowBody(t *testing.T) {
	r := newRig(t, Options{BodyIdle: 500 * time.Millisecond})
	r.up(start(t, "a", echo))
	// Try again, since the machine may stand still for longer than BodyIdle.
	for try := 1; ; try++ {
		code, text, err := r.slowly(20, 50*time.Millisecond)
		if code == 200 && len(text) == 20 && err == nil {
			break
		}
		if try == 5 {
			t.Fatalf("one that is slow: %d %q, %v", code, text, err)
		}
	}
	codes := make(chan int, 1)
	r.codes = codes
	if code, text, err := r.slowly(2, 5*time.Second); code != 408 || !strings.Contains(text, "--body-timeout") {
		t.Errorf("one that stops: %d %q, %v", code, text, err)
	}
	if code := <-codes; code != 408 {
		t.Errorf("it is counted as %d", code)
	}
	if r.record.drops[metrics.InstanceLost] != 0 {
		t.Error("the instance is blamed")
	}
	r.settled()
}

// A client need not send while an answer flows. After that it is cut off.
func TestASilentClientThatIsAnswered(t *testing.T) {
	const idle, parts = 300 * time.Millisecond, 10
	r := newRig(t, Options{BodyIdle: idle})
	r.up(start(t, "a", func(w http.ResponseWriter, q *http.Request) {
		control := http.NewResponseController(w)
		control.EnableFullDuplex()
		for range parts {
			io.WriteString(w, "part")
			control.Flush()
			time.Sleep(idle / 3)
		}
		io.Copy(io.Discard, q.Body)
	}))
	// Try again, since the machine may stand still for longer than BodyIdle.
	for try := 1; ; try++ {
		text, err := r.silent()
		if string(text) == strings.Repeat("part", parts) && err != nil {
			break
		}
		if try == 5 {
			t.Fatalf("%q, %v", text, err)
		}
	}
	r.settled()
}

// silent begins a body, does not end it, and returns all it receives until it is cut off.
func (r *rig) silent() ([]byte, error) {
	reader, writer := io.Pipe()
	defer writer.Close()
	go io.WriteString(writer, "x")
	resp, err := client.Post(r.url+"/", "text/plain", reader)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}

// The rest of an unfinished body would be taken for the other protocol.
func TestAProtocolSwitchWithABody(t *testing.T) {
	r := newRig(t, Options{})
	r.up(curt(t, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"))
	resp, text, err := r.upload("Connection: Upgrade\r\nUpgrade: echo\r\n", bytes.Repeat([]byte("x"), 5<<20))
	if err != nil || resp.StatusCode != 502 || !strings.Contains(text, "switched protocols") {
		t.Errorf("%v %q, %v", resp, text, err)
	}
	r.settled()
}
