package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/command/load"
	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/e2e/graphs"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// question is a request with its right answer.
type question struct {
	what   string
	body   []byte
	length int
	want   []graphs.Want
}

// questions are a case's requests: of one row and of three, in all its sizes, with values of
// very different scale.
func questions(t *testing.T, c *graphs.Case) (all []question) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, uint64(len(c.Name))))
	rows := []int64{1, 1}
	if c.Batched {
		rows = []int64{1, 1, 3, 1, 3}
	}
	for i, n := range rows {
		in := graphs.Request(c.Inputs, n, c.Sizes[i%len(c.Sizes)], []float64{1, 50, 0.02}[i%3], rng)
		body, length, err := load.EncodeBinary(in)
		if err != nil {
			t.Fatal(err)
		}
		q := question{what: fmt.Sprintf("request %d of %d rows", i, n), body: body, length: length}
		for _, out := range c.Answer(in) {
			q.want = append(q.want, graphs.Want{Name: out.Name, Type: out.Type, Shape: out.Shape, Data: out.Data, Moved: out.Data})
		}
		all = append(all, q)
	}
	return all
}

// ask sends the question until the answer is no 503, for a bounded time: the model may still be
// measured, and a busy machine is late.
func (q question) ask(c *http.Client, url string) error {
	var a answer
	var err error
	within(time.Minute, func() bool {
		a, err = try(c, http.MethodPost, url, q.body, "Content-Type", "application/octet-stream", load.HeaderLength, strconv.Itoa(q.length))
		return err != nil || a.status != http.StatusServiceUnavailable
	})
	if err != nil {
		return err
	}
	if a.status != http.StatusOK {
		return fmt.Errorf("%s: %d %s", q.what, a.status, a.body)
	}
	got, err := graphs.DecodeBinary([]byte(a.body), a.header.Get(load.HeaderLength))
	if err == nil {
		err = graphs.Compare(got, q.want)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", q.what, err)
	}
	return nil
}

// Models that others make have a fixed batch, none, or one on another axis, rows that see each
// other, strings, maps, and sizes that divide by nothing. Each request gets the answer that it
// gets alone, also among others.
func TestModelsOfStrangers(t *testing.T) {
	providerTests.takeHere(t)
	p := newPlace(t)
	d := p.provider(t, suite.binary)
	c := client(t)
	c.Timeout = 30 * time.Second
	cases := graphs.Cases()
	for _, m := range cases {
		made, err := model.FromProto(m.Model)
		if err != nil {
			t.Fatal(err)
		}
		p.bundle(t, m.Name+":latest", made)
	}
	for _, m := range cases {
		t.Run(m.Name, func(t *testing.T) {
			if a := d.put(t, http.MethodPost, function(m.Name, m.Name+":latest", "20s")); a.status != http.StatusAccepted {
				t.Fatalf("deploy: %d %s", a.status, a.body)
			}
			defer d.remove(t, m.Name)
			url := d.function(m.Name) + "/v2/models/" + m.Name + "/infer"
			all := questions(t, m)
			for _, q := range all {
				if err := q.ask(c, url); err != nil {
					t.Fatalf("alone: %v", err)
				}
			}
			var clients sync.WaitGroup
			for i := range 4 {
				clients.Go(func() {
					for at := range 3 * len(all) {
						if err := all[(i+at)%len(all)].ask(c, url); err != nil {
							t.Errorf("among others: %v", err)
							return
						}
					}
				})
			}
			clients.Wait()
			switch m.Name {
			case "labels":
				stringsInJSON(t, c, url)
			case "bf16":
				noJSON(t, c, url)
			}
		})
	}
	d.stop(t)
}

// stringsInJSON sends strings as JSON.
func stringsInJSON(t *testing.T, c *http.Client, url string) {
	t.Helper()
	request := map[string]any{"inputs": []any{map[string]any{"name": "s", "shape": []int{3}, "datatype": tensor.Bytes, "data": []string{"cat", "", "dog"}}}}
	var reply struct {
		Outputs []struct {
			Type  tensor.Type `json:"datatype"`
			Shape []int64     `json:"shape"`
			Data  []int64     `json:"data"`
		} `json:"outputs"`
	}
	if err := askWith(c, url, request, &reply); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(reply.Outputs); got != "[{INT64 [3] [1 -1 2]}]" {
		t.Error(got)
	}
}

// noJSON sends bfloat16 as JSON, which has no such number: the client's mistake.
func noJSON(t *testing.T, c *http.Client, url string) {
	t.Helper()
	body := `{"inputs":[{"name":"x","shape":[1,2],"datatype":"BF16","data":[1,2]}]}`
	a := do(t, c, http.MethodPost, url, []byte(body), "Content-Type", "application/json")
	if a.status != http.StatusBadRequest {
		t.Errorf("bfloat16 in JSON: %d %s", a.status, a.body)
	}
	wantWords(t, a.body, "BF16", "binary")
}

// The bench of strangers' models serves a random graph of each kind as ONNX Runtime does.
func TestRandomGraphs(t *testing.T) {
	providerTests.takeHere(t)
	count := len(graphs.Kinds())
	var complaint strings.Builder
	c := exec.Command(suite.lab, "bench", "strangers", "--no-fetch", "--random", strconv.Itoa(count), "--rounds", "1", "--json")
	c.Stderr = &complaint
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, complaint.String())
	}
	var r report.Report
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("not one JSON object: %v: %s", err, out)
	}
	found := map[string]float64{}
	for _, x := range r.Results {
		found[x.Name] = x.Value
		if strings.HasPrefix(x.Name, "model.") || strings.HasPrefix(x.Name, "not_run.") {
			t.Errorf("%s: %s: %s", x.Name, x.Unit, x.Note)
		}
	}
	for name, want := range map[string]float64{
		"random.right": float64(count), "random.runs": float64(count), "wrong": 0, "crashed": 0, "refused_without_way": 0, "refused": 0, "unanswered": 0,
	} {
		if got, ok := found[name]; !ok || got != want {
			t.Errorf("%s is %g, want %g", name, got, want)
		}
	}
}
