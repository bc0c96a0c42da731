package watchdog

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// Whoever still sends what the process does not read is not cut off: it would
// take that for a failure, and lose an answer that is there.
func TestRestOfABodyIsTaken(t *testing.T) {
	for _, mode := range []string{"classic", "streaming"} {
		i := begin(t, map[string]string{"mode": mode, "fprocess": "echo fine"})
		// Where the machine is busy this test may be slower than the watchdog waits.
		const tries, wanted = 10, 8
		var failed []error
		for range tries {
			if err := i.sendsLate(1 << 20); err != nil {
				failed = append(failed, err)
			}
		}
		if tries-len(failed) < wanted {
			t.Errorf("%s: %d of %d were cut off, for example: %v", mode, len(failed), tries, failed[0])
		}
		i.stop()
		<-i.stopped
		i.server.Close()
	}
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
