package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/openfaas/faas-provider/logs"
)

// messages reads a function's logs with OpenFaaS's client.
func (w *way) messages(t *testing.T, name string, tail int, since *time.Time) []logs.Message {
	t.Helper()
	stream, err := w.faas.GetLogs(t.Context(), name, defaultNamespace, false, tail, since)
	if err != nil {
		t.Fatal(err)
	}
	var all []logs.Message
	for m := range stream {
		all = append(all, m)
	}
	return all
}

// starts reports whether a message begins with text, after an optional time of the logger.
func starts(m logs.Message, text string) bool {
	return strings.HasPrefix(strings.TrimLeft(m.Text, "0123456789/:-.TZ "), text)
}

func count(all []logs.Message, text string) (n int) {
	for _, m := range all {
		if starts(m, text) {
			n++
		}
	}
	return n
}

// For every request, the logs have the same lines as the classic watchdog, in order.
func (w *way) showsLogs(t *testing.T) {
	f := ordinary(w.own("logging"), "cat")
	began := time.Now().Add(-time.Second)
	w.deployed(t, f)
	const requests = 3
	for i := range requests {
		w.answers(t, f.Service, make([]byte, 40+i))
	}
	wrote := func(i int) string { return fmt.Sprintf("Wrote %d Bytes", 40+i) }
	var all []logs.Message
	w.await(t, patience, "the last request's line", func() bool {
		all = w.messages(t, f.Service, 0, nil)
		return count(all, wrote(requests-1)) == 1
	})
	if n := count(all, "Forking fprocess"); n != requests {
		t.Errorf("%d times \"Forking fprocess\" for %d requests", n, requests)
	}
	for i := range requests {
		if count(all, wrote(i)) != 1 {
			t.Errorf("no line %q in %v", wrote(i), all)
		}
	}
	for i, m := range all {
		if m.Name != f.Service || m.Namespace != defaultNamespace || m.Instance == "" || m.Text == "" || strings.HasSuffix(m.Text, "\n") {
			t.Errorf("message %+v", m)
		}
		if m.Timestamp.Before(began) || m.Timestamp.After(time.Now()) || i > 0 && m.Timestamp.Before(all[i-1].Timestamp) {
			t.Errorf("message %d is of %v", i, m.Timestamp)
		}
	}
	w.showsParts(t, f.Service, all)
}

// showsParts requests only some of the messages.
func (w *way) showsParts(t *testing.T, name string, all []logs.Message) {
	t.Helper()
	for _, tail := range []int{1, 2, len(all), len(all) + 100, -1} {
		want := all
		if tail > 0 {
			want = all[max(0, len(all)-tail):]
		}
		if got := w.messages(t, name, tail, nil); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("tail %d shows\n%v, not\n%v", tail, got, want)
		}
	}
	later, earlier := time.Now().Add(time.Minute), all[0].Timestamp.Add(-time.Second)
	if got := w.messages(t, name, 0, &later); len(got) != 0 {
		t.Errorf("there is something since a minute from now: %v", got)
	}
	if got := w.messages(t, name, 0, &earlier); len(got) != len(all) {
		t.Errorf("%d messages since before the first, %d in all", len(got), len(all))
	}
	query := "/system/logs?name=" + name + "&namespace=" + defaultNamespace + "&instance="
	if a := w.system(t, http.MethodGet, query+all[0].Instance, nil); strings.Count(a.body, "\n") != len(all) {
		t.Errorf("of the one instance: %d %s", a.status, a.body)
	} else if kind := a.header.Get("Content-Type"); !w.throughGateway() && !strings.Contains(kind, "ndjson") {
		t.Errorf("logs are %q", kind)
	}
	if a := w.system(t, http.MethodGet, query+"another", nil); a.status != http.StatusOK || a.body != "" {
		t.Errorf("of an instance that is not there: %d %q", a.status, a.body)
	}
	// The gateway makes other codes of these two.
	missing, wrong := http.StatusNotFound, http.StatusBadRequest
	if w.throughGateway() {
		missing, wrong = http.StatusNotImplemented, http.StatusInternalServerError
	}
	if a := w.system(t, http.MethodGet, "/system/logs?name=absent", nil); a.status != missing {
		t.Errorf("of a function that is not there: %d %s", a.status, a.body)
	}
	if a := w.system(t, http.MethodGet, "/system/logs?name="+name+"&tail=many", nil); a.status != wrong {
		t.Errorf("a tail of \"many\": %d %s", a.status, a.body)
	}
}

// Followed logs show a request's lines as soon as they are written, also those of new
// instances, until the client hangs up.
func (w *way) followsLogs(t *testing.T) {
	f := ordinary(w.own("followed"), "cat")
	w.deployed(t, f)
	w.answers(t, f.Service, make([]byte, 7))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, w.base+"/system/logs?follow=1&name="+f.Service, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.SetBasicAuth("admin", w.password)
	response, err := w.http.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	lines := json.NewDecoder(response.Body)
	instance := ""
	until := func(text string) {
		t.Helper()
		for {
			var m logs.Message
			if err := lines.Decode(&m); err != nil {
				t.Fatalf("waiting for %q: %v", text, err)
			}
			if starts(m, text) {
				instance = m.Instance
				return
			}
		}
	}
	until("Wrote 7 Bytes")
	before := instance
	w.answers(t, f.Service, make([]byte, 8))
	until("Wrote 8 Bytes")
	f.EnvVars = map[string]string{"another": "instance"}
	if status, err := w.faas.Update(t.Context(), f); err != nil {
		t.Fatalf("%d, %v", status, err)
	}
	for size := 100; instance == before && ctx.Err() == nil; size++ {
		w.answers(t, f.Service, make([]byte, size))
		until(fmt.Sprintf("Wrote %d Bytes", size))
		time.Sleep(50 * time.Millisecond)
	}
	if instance == before {
		t.Error("no line of the new instance was shown")
	}
}
