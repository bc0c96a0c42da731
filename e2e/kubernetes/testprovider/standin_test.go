package testprovider

import (
	"io"
	"net/http"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/faas-infer/faas-infer/instance/frame"
)

// noLeaks fails the test if it leaves goroutines. It ignores those of clients of clusters
// in parallel tests.
func noLeaks(t *testing.T) {
	there := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, there) })
}

func start(t *testing.T) *StandIns {
	t.Helper()
	i, err := StartStandIns(func(batch int) time.Duration { return time.Duration(batch) * time.Millisecond })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := i.Close(); err != nil {
			t.Error(err)
		}
	})
	return i
}

func standInClient(t *testing.T, i *StandIns) *http.Client {
	c := &http.Client{Transport: &http.Transport{DialContext: i.Dial}}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

func TestAnswersBatches(t *testing.T) {
	noLeaks(t)
	i := start(t)
	c := standInClient(t, i)
	body, _ := frame.EncodeRequests([]frame.Request{{Method: "POST", Path: "/", Body: []byte("a")}, {Method: "POST", Path: "/", Body: []byte("b")}})
	response, err := c.Post("http://10.1.2.3:8080"+frame.Path, frame.ContentType, &body)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	answers, err := frame.DecodeResponses(text)
	if err != nil || len(answers) != 2 || string(answers[1].Body) != "b" || response.Header.Get(frame.ExecHeader) != "2000" {
		t.Errorf("%v, %v, %v", answers, response.Header, err)
	}
	if got := i.Served()["10.1.2.3:8080"]; got != 1 {
		t.Errorf("%d batches served at the address, want 1", got)
	}
	well, err := c.Get("http://10.1.2.4:8080/v2/health/ready")
	if err != nil || well.StatusCode != http.StatusOK {
		t.Errorf("health: %v, %v", well, err)
	}
	well.Body.Close()
}

func TestNoBatch(t *testing.T) {
	noLeaks(t)
	response, err := standInClient(t, start(t)).Post("http://10.1.2.3:8080"+frame.Path, frame.ContentType, http.NoBody)
	if err != nil || response.StatusCode != http.StatusBadRequest {
		t.Errorf("%v, %v, want 400", response, err)
	}
	response.Body.Close()
}

// Lost instances lose their connections and cannot be reached. The others keep serving.
func TestLose(t *testing.T) {
	noLeaks(t)
	i := start(t)
	lost, kept := "10.1.2.3:8080", "10.1.2.4:8080"
	conn, err := i.Dial(t.Context(), "tcp", lost)
	if err != nil {
		t.Fatal(err)
	}
	i.Lose(lost)
	if _, err := conn.Write([]byte("x")); err == nil {
		t.Error("a connection to what is gone goes on")
	}
	if _, err := i.Dial(t.Context(), "tcp", lost); err == nil {
		t.Error("what is gone is reached")
	}
	other, err := i.Dial(t.Context(), "tcp", kept)
	if err != nil {
		t.Fatal(err)
	}
	other.Close()
	i.Restore(lost)
	again, err := i.Dial(t.Context(), "tcp", lost)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}
