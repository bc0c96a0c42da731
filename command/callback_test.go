package command

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// An anonymous client cannot deploy by having a function's answer posted to a provider without credentials.
func TestCallbackDeploysNothing(t *testing.T) {
	s, r, url := reside(t, time.Minute)
	defer func() {
		if err := s.stop(func() {}); err != nil {
			t.Error(err)
		}
	}()
	close(r.release)
	request, err := http.NewRequest(http.MethodPost, url+"/async-function/slow", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("X-Callback-Url", url+"/system/functions")
	request.Close = true
	answer, err := http.DefaultClient.Do(request)
	if err != nil || answer.StatusCode != http.StatusAccepted {
		t.Fatalf("%v, %v", answer, err)
	}
	answer.Body.Close()
	get := func(path string) string {
		answer, err := http.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		defer http.DefaultClient.CloseIdleConnections()
		text, _ := io.ReadAll(answer.Body)
		return string(text)
	}
	for began := time.Now(); !strings.Contains(get("/metrics"), `async_callbacks_total{class="4xx"} 1`); time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatalf("the callback is not refused: %s", get("/metrics"))
		}
	}
	if list := get("/system/functions"); strings.Contains(list, "taken") {
		t.Errorf("it deployed: %s", list)
	}
}
