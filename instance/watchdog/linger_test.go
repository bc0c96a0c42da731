package watchdog

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/instance/duplex"
)

// A client that still sends an unread body is not cut off. Otherwise it would see a failure
// and lose the answer.
func TestRestOfABodyIsTaken(t *testing.T) {
	for _, mode := range []string{"classic", "streaming"} {
		i := begin(t, map[string]string{"mode": mode, "fprocess": "echo fine"})
		inTime(t, mode, 8, func() error { return i.sendsLate(1 << 20) })
		i.stop()
		<-i.stopped
		i.server.Close()
	}
}

// inTime repeats try until it has succeeded times times. It repeats a failed try that took
// longer than the watchdog waits for the rest of a body: it may have been cut off.
func inTime(t *testing.T, what string, times int, try func() error) {
	t.Helper()
	for end := time.Now().Add(5 * time.Minute); times > 0; {
		began := time.Now()
		err := try()
		if err == nil {
			times--
			continue
		}
		if took := time.Since(began); took < duplex.Linger || time.Now().After(end) {
			t.Errorf("%s: %v after %v", what, err, took)
			return
		}
	}
}

// says sends a body and returns an error unless the answer is as wanted.
func (i *instance) says(input, want string) error {
	response, body := i.do("POST", "/", strings.NewReader(input))
	if response == nil || response.StatusCode != http.StatusOK || body != want {
		return fmt.Errorf("%v %.100q", response, body)
	}
	return nil
}

// sendsLate sends a request's body when the answer has come.
func (i *instance) sendsLate(size int) error {
	conn, err := net.Dial("tcp", strings.TrimPrefix(i.url, "http://"))
	if err != nil {
		return err
	}
	defer conn.Close()
	fmt.Fprint(conn, "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n")
	reader := bufio.NewReader(conn)
	response, err := http.ReadResponse(reader, nil)
	if err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	if line, err := bufio.NewReader(response.Body).ReadString('\n'); err != nil || line != "fine\n" {
		return fmt.Errorf("answer %q: %w", line, err)
	}
	if _, err := fmt.Fprintf(conn, "%x\r\n%s\r\n0\r\n\r\n", size, strings.Repeat("x", size)); err != nil {
		return fmt.Errorf("the rest of the body: %w", err)
	}
	if _, err := io.Copy(io.Discard, reader); err != nil {
		return fmt.Errorf("behind the answer: %w", err)
	}
	return nil
}
