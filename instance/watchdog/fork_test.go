package watchdog

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestClassicAnswers(t *testing.T) {
	i := begin(t, map[string]string{"mode": "classic", "fprocess": `sh -c 'cat; echo " $OWN $Http_Method $Http_Query $Http_Path $Http_X_Call_Id $Http_Content_Length"; echo warning >&2'`, "OWN": "value"})
	response, body := i.do("PUT", "/some/path?a=b&c", strings.NewReader("input"), header("X-Call-Id", "17"), header("Content-Type", "application/json"))
	if want := "input value PUT a=b&c /some/path 17 5\nwarning\n"; body != want {
		t.Errorf("answer %q, want %q", body, want)
	}
	if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != "application/json" || response.Header.Get("X-Duration-Seconds") == "" {
		t.Errorf("%s %v", response.Status, response.Header)
	}
	i.log.Await(t, "Wrote ", 1)
	got := i.log.lines(t)
	if got[0] != "Forking fprocess." || !regexp.MustCompile(fmt.Sprintf(`^Wrote %d Bytes - Duration: \d+\.\d{6}s`, len(body))).MatchString(got[1]) {
		t.Errorf("log %q", got)
	}
}

func TestAnswersOfProcessesThatFail(t *testing.T) {
	for process, want := range map[string]struct {
		code int
		body string
	}{
		"sh -c 'echo partly; exit 3'": {500, "partly\n"},
		"sh -c 'exit 3'":              {500, "exit status 3\n"},
		"sh -c 'kill -TERM $$'":       {500, "signal: terminated\n"},
		"sh -c 'sleep 60 & exit 0'":   {200, ""},
	} {
		for _, mode := range []string{"classic", "streaming"} {
			i := begin(t, map[string]string{"mode": mode, "fprocess": process})
			response, body := i.do("GET", "/", nil)
			if mode == "streaming" && want.body == "partly\n" {
				if response.StatusCode != 200 || !strings.Contains(body, "partly\n ... ") {
					t.Errorf("streaming %s: %s %q; it should break off", process, response.Status, body)
				}
			} else if response.StatusCode != want.code || body != want.body {
				t.Errorf("%s %s: %s %q, want %+v", mode, process, response.Status, body, want)
			}
			i.stop()
			<-i.stopped
			i.server.Close()
		}
	}
}

func TestProgramThatCannotBeStarted(t *testing.T) {
	i := prepare(t, map[string]string{"mode": "classic", "fprocess": "true"})
	for name, text := range map[string]string{"no-such-program": "not found", "./missing": "no such file", "./file": "chmod +x", ".//": "not executable"} {
		if err := os.WriteFile("file", nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := lookUp(name, "", os.Environ()); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", name, err)
		}
	}
	i.server.Close()
}

func TestContentTypes(t *testing.T) {
	for _, c := range []struct{ mode, given, requested, want string }{
		{"classic", "", "", "text/plain; charset=utf-8"},
		{"classic", "", "image/png", "image/png"},
		{"classic", "text/css", "image/png", "text/css"},
		{"serializing", "", "image/png", "application/octet-stream"},
		{"streaming", "", "", "application/octet-stream"},
		{"streaming", "text/css", "", "text/css"},
	} {
		i := begin(t, map[string]string{"mode": c.mode, "fprocess": "echo hello", "content_type": c.given})
		response, _ := i.do("POST", "/", nil, header("Content-Type", c.requested))
		if got := response.Header.Get("Content-Type"); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
		i.stop()
		<-i.stopped
		i.server.Close()
	}
}

func TestStandardErrorGoesToTheLog(t *testing.T) {
	i := begin(t, map[string]string{"mode": "classic", "combine_output": "false", "fprocess": "sh -c 'echo oops >&2; printf unended >&2; echo out'"})
	if _, body := i.do("GET", "/", nil); body != "out\n" {
		t.Errorf("answer %q", body)
	}
	for _, want := range []string{" Wrote ", " stderr: oops\n", " stderr: unended\n"} {
		i.log.Await(t, want, 1)
	}
}

func TestTimeLimitKillsTheWholeGroup(t *testing.T) {
	for _, mode := range []string{"classic", "streaming"} {
		mark := "WATCHDOG_TEST_MARK=" + fmt.Sprint(rand.Uint64())
		i := begin(t, map[string]string{
			"mode": mode, "exec_timeout": "10m", "WATCHDOG_TEST_MARK": mark[len("WATCHDOG_TEST_MARK="):],
			"fprocess": "sh -c 'for i in 1 2 3; do (sh -c \"sleep 600; true\"; true) & done; wait'",
		})
		began := time.Now()
		response, body := i.do("GET", "/", nil, header("X-Timeout", "100ms"))
		if response.StatusCode != http.StatusGatewayTimeout || !strings.Contains(body, "exec_timeout") || time.Since(began) > 5*time.Minute {
			t.Errorf("%s: %s %q after %v", mode, response.Status, body, time.Since(began))
		}
		gone(t, mark)
		i.stop()
		<-i.stopped
		i.server.Close()
	}
}

// gone waits until no process carries the mark.
func gone(t *testing.T, mark string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); processes(t, mark) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d processes are left", processes(t, mark))
		}
	}
}

func TestClientThatHangsUpEndsAStreamingProcess(t *testing.T) {
	mark := "WATCHDOG_TEST_MARK=" + fmt.Sprint(rand.Uint64())
	i := begin(t, map[string]string{"mode": "streaming", "fprocess": "sh -c 'echo begun; sleep 600; true'", "WATCHDOG_TEST_MARK": mark[len("WATCHDOG_TEST_MARK="):]})
	ctx, cancel := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, "GET", i.url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := i.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	first := make([]byte, 6)
	if _, err := io.ReadFull(response.Body, first); err != nil || string(first) != "begun\n" {
		t.Errorf("%q, %v", first, err)
	}
	cancel()
	_ = response.Body.Close()
	gone(t, mark)
}

// A classic function finishes even if the client hangs up.
func TestClientThatHangsUpLeavesAClassicProcess(t *testing.T) {
	// It goes on for a while after the client has gone.
	i := begin(t, map[string]string{"mode": "classic", "fprocess": "sh -c 'while [ ! -e go ]; do sleep 0.01; done; sleep 0.3; echo done > file'"})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	asked := make(chan error, 1)
	go func() {
		request, _ := http.NewRequestWithContext(ctx, "GET", i.url, nil)
		response, err := i.client.Do(request)
		if err == nil {
			_ = response.Body.Close()
		}
		asked <- err
	}()
	i.log.Await(t, "Forking", 1)
	cancel()
	if err := <-asked; err == nil {
		t.Error("it has answered already")
	}
	if err := touch("go"); err != nil {
		t.Fatal(err)
	}
	i.log.Await(t, "Wrote 0 Bytes", 1)
	if text, err := os.ReadFile("file"); err != nil || string(text) != "done\n" {
		t.Errorf("%q, %v", text, err)
	}
}

// But it does not run on for ever, with all that it has started.
func TestAbandonedClassicProcessIsKilled(t *testing.T) {
	mark := "WATCHDOG_TEST_MARK=" + fmt.Sprint(rand.Uint64())
	i := begin(t, map[string]string{"mode": "classic", "fprocess": "sh -c 'sleep 600 & sleep 600'", "WATCHDOG_TEST_MARK": mark[len("WATCHDOG_TEST_MARK="):]})
	i.server.handler.(*ForkingHandler).Abandoned = 10 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		request, _ := http.NewRequestWithContext(ctx, "GET", i.url, nil)
		if response, err := i.client.Do(request); err == nil {
			_ = response.Body.Close()
		}
	}()
	i.log.Await(t, "Forking", 1)
	cancel()
	<-asked
	i.log.Await(t, errAbandoned.Error(), 1)
	gone(t, mark)
}

func TestBrokenBodyIsNotTakenForAWholeOne(t *testing.T) {
	for _, mode := range []string{"classic", "streaming"} {
		i := begin(t, map[string]string{"mode": mode, "fprocess": "sh -c 'cat > /dev/null; echo took all > all'"})
		read, write := io.Pipe()
		go func() {
			_, _ = write.Write([]byte("half"))
			_ = write.CloseWithError(io.ErrUnexpectedEOF)
		}()
		if response, body := i.do("POST", "/", read); response != nil && response.StatusCode < 400 {
			t.Errorf("%s: %s %q", mode, response.Status, body)
		}
		i.log.Await(t, "fprocess failed: the request's body broke off", 1)
		if _, err := os.Stat("all"); err == nil {
			t.Error(mode, "it took half a body for all of it")
		}
		i.stop()
		<-i.stopped
		i.server.Close()
	}
}

// A process that ignores its input, or closes it early, still answers. The rest of the body
// does not disturb the connection's next request.
func TestProcessesThatDoNotReadTheirInput(t *testing.T) {
	for _, mode := range []string{"classic", "streaming"} {
		i := begin(t, map[string]string{"mode": mode, "fprocess": "sh -c 'head -c 3; exec <&-; echo fine'"})
		for _, size := range []int{0, 10, 64 << 10, 1 << 20, 8 << 20} {
			input, want := strings.Repeat("GET / HTTP/1.1\r\n\r\n", size/18+1)[:size], "GET"[:min(3, size)]+"fine\n"
			inTime(t, fmt.Sprint(mode, size), 1, func() error { return i.says(input, want) })
		}
		// One whose sender has stopped in the middle.
		read, write := io.Pipe()
		go func() { _, _ = write.Write([]byte("GET ")) }()
		if response, body := i.do("POST", "/", read); response == nil || response.StatusCode != 200 || body != "GETfine\n" {
			t.Errorf("%s: %v %q", mode, response, body)
		}
		_ = write.Close()
		i.stop()
		<-i.stopped
		i.server.Close()
	}
}

func TestLargeClassicAnswerBreaksOffIfItsProcessFails(t *testing.T) {
	i := begin(t, map[string]string{"mode": "classic", "fprocess": "sh -c 'head -c 6000000 /dev/zero; exit $Http_Query'"})
	if response, body := i.do("GET", "/?0", nil); response.StatusCode != 200 || len(body) != 6000000 {
		t.Errorf("%s, %d bytes", response.Status, len(body))
	}
	if _, body := i.do("GET", "/?1", nil); !strings.Contains(body, " ... ") {
		t.Errorf("%d bytes that did not break off", len(body))
	}
}

// Every request is answered once, with its own answer, whatever others do.
func TestEachRequestIsAnsweredOnce(t *testing.T) {
	for _, mode := range []string{"classic", "streaming"} {
		i := begin(t, map[string]string{"mode": mode, "fprocess": "cat", "exec_timeout": "5m"})
		var work sync.WaitGroup
		for n := range 8 {
			work.Go(func() {
				random := rand.New(rand.NewPCG(1, uint64(n)))
				for k := range 12 {
					input := strings.Repeat(fmt.Sprintf("%d/%d ", n, k), 1+random.IntN(30000))
					ctx, cancel := context.WithCancel(t.Context())
					if random.IntN(4) == 0 {
						time.AfterFunc(time.Duration(random.IntN(2000))*time.Microsecond, cancel)
					}
					body, err := post(ctx, i, input)
					if ctx.Err() == nil && (err != nil || body != input) {
						t.Errorf("%s %d/%d: %d bytes instead of %d, %v", mode, n, k, len(body), len(input), err)
					}
					cancel()
				}
			})
		}
		work.Wait()
		i.stop()
		<-i.stopped
		if i.err != nil {
			t.Error(i.err)
		}
		i.server.Close()
	}
}

func post(ctx context.Context, i *instance, input string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, "POST", i.url, strings.NewReader(input))
	if err != nil {
		return "", err
	}
	response, err := i.client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}
