package command

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestWhyCommand(t *testing.T) {
	defer func(period time.Duration) { whyPeriod = period }(whyPeriod)
	whyPeriod = time.Millisecond
	looks := 0
	ctx, cancel := context.WithCancel(t.Context())
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/system/function/app":
			io.WriteString(w, `{"name":"app","namespace":"team","image":"app:1","replicas":3,"availableReplicas":2,"annotations":{"com.openfaas.infer.problem":"no node\u001b[2J has room"}}`)
		case "/system/namespaces":
			io.WriteString(w, `["team"]`)
		case "/system/functions":
			io.WriteString(w, `[{"name":"app","namespace":"team"},{"name":"other","namespace":"team"}]`)
		case "/system/events":
			looks++
			switch since := r.URL.Query().Get("since"); {
			case since == "0":
				io.WriteString(w, `{"events":[{"id":4,"at":1790000000,"function":"app","namespace":"team","kind":"start","text":"Started an instance.","fields":{}}],"next":7}`)
			case since == "7" && looks == 2:
				io.WriteString(w, `{"events":[{"id":8,"at":1790000009,"function":"app","namespace":"team","kind":"stop","text":"Stopped it.","fields":{}}],"next":8}`)
			case since == "8":
				cancel()
				io.WriteString(w, `{"events":[],"next":8}`)
			default:
				t.Errorf("look %d: since=%s", looks, since)
			}
		default:
			http.Error(w, "there is no such function", http.StatusNotFound)
		}
	}))
	defer s.Close()
	t.Setenv("COLUMNS", "")
	for _, c := range []struct {
		args  string
		want  []string
		wrong string
	}{
		{"app", []string{"app.team: 2 of 3 instances ready, image app:1\n", "Problem: no node [2J has room\n", "  Started an instance.\n"}, ""},
		{"app -o json", []string{`"name": "app"`, `"text": "Started an instance."`, `"next": 7`}, ""},
		{"appp.team", nil, `there is no function appp.team; did you mean app?`},
		{"nothing", nil, `there is no function nothing.openfaas-fn; faas-infer list`},
		{"app -o yaml", []string{"name: app", "text: Started an instance."}, ""},
		{"app -o xml", nil, "--output"},
		{"app --limit 0", nil, "--limit"},
		{"app --follow", []string{"Started an instance.", "Stopped it."}, ""},
	} {
		var out bytes.Buffer
		looks = 0
		root := newWhyCommand()
		root.SetOut(&out)
		root.SetErr(io.Discard)
		root.SetArgs(append(strings.Fields(c.args), "--url", s.URL))
		err := root.ExecuteContext(ctx)
		if (c.wrong == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("why %s: %v", c.args, err)
		}
		for _, want := range c.want {
			if !strings.Contains(out.String(), want) {
				t.Errorf("why %s: no %q in %q", c.args, want, out.String())
			}
		}
	}
}
