package command

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestVariantsCommand(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/system/variants/app":
			io.WriteString(w, `[{"name":"precise","model":"net","accuracy":80,"state":"interfered","instances":3,"nodes":[{"node":"n1","state":"interfered","instances":1},{"node":"n2","state":"active","instances":2}],"config":"⟨8,1000m,0%⟩","latencyMs":12.5,"rps":2000,"loadMs":1350,"holds":{"cpuMillicores":3000,"memoryBytes":314572800}},{"name":"slim","state":"inactive","nodes":[],"holds":{}}]`)
		case "/system/variants/new":
			io.WriteString(w, `[]`)
		default:
			http.Error(w, "there is no such function", http.StatusNotFound)
		}
	}))
	defer s.Close()
	for _, c := range []struct{ args, want, wrong string }{
		{"app", "precise  net    80%       interfered  n1: 1 interfered, n2: 2 active  ⟨8,1000m,0%⟩  12.5ms   2000  1350ms  3000m, 0% GPU, 300 MiB", ""},
		{"app", "slim     -      -         inactive    -", ""},
		{"app --json", `"state":"interfered"`, ""},
		{"new", "not known yet", ""},
		{"none", "", "there is no function none.openfaas-fn"},
		{"", "", "accepts 1 arg"},
	} {
		var out bytes.Buffer
		root := newVariantsCommand()
		root.SetOut(&out)
		root.SetErr(io.Discard)
		root.SetArgs(append(strings.Fields(c.args), "--url", s.URL))
		err := root.Execute()
		if !strings.Contains(out.String(), c.want) || (c.wrong == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("variants %s: %v\n%s", c.args, err, out.String())
		}
	}
}
