package watchdog

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// upload sends a whole body before it looks at the answer, as many clients do.
func (i *instance) upload(path string, size int) (*http.Response, string, error) {
	conn, err := net.Dial("tcp", strings.TrimPrefix(i.url, "http://"))
	if err != nil {
		return nil, "", err
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", path, size)
	_, _ = conn.Write(make([]byte, size))
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return nil, "", err
	}
	body, err := io.ReadAll(response.Body)
	return response, string(body), err
}

// An answer of the program or the watchdog reaches a client even if its body was not read.
func TestHTTPBodyThatIsNotRead(t *testing.T) {
	for _, c := range []struct {
		path, text, limit string
		code              int
	}{{"/slow", "exec_timeout", "150ms", 504}, {"/curt", "too large", "1m", 413}, {"/nonsense", "did not answer", "1m", 502}, {"/break", "did not answer", "1m", 502}} {
		env := program(t)
		env["exec_timeout"] = c.limit
		i := begin(t, env)
		inTime(t, c.path, 10, func() error {
			response, body, err := i.upload(c.path, 5<<20)
			if err != nil {
				return err
			}
			if response.StatusCode != c.code || !strings.Contains(body, c.text) || !response.Close || response.ContentLength < 0 {
				return fmt.Errorf("%v %q", response, body)
			}
			return nil
		})
		i.stop()
		<-i.stopped
		i.server.Close()
	}
}

// A client that stops sending still gets the answer at the time limit.
func TestHTTPTimeLimitWhileTheBodyComes(t *testing.T) {
	for name, code := range map[string]int{"exec_timeout": http.StatusGatewayTimeout, "read_timeout": http.StatusRequestTimeout} {
		env := program(t)
		env[name] = "200ms"
		i := begin(t, env)
		reader, writer := io.Pipe()
		go func() { _, _ = writer.Write(bytes.Repeat([]byte("x"), 100)) }()
		began := time.Now()
		response, body := i.do("POST", "/slow", reader)
		if response.StatusCode != code || !strings.Contains(body, name) || time.Since(began) > 5*time.Minute {
			t.Errorf("%s: %s %q after %v", name, response.Status, body, time.Since(began))
		}
		_ = writer.Close()
		i.client.CloseIdleConnections()
		i.stop()
		<-i.stopped
		i.server.Close()
	}
}
