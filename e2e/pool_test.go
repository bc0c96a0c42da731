package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/openfaas/faas-provider/types"
	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/command/load"
	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/decisions"
)

// pooled lists the instances that a function shares with others, and what its status says of that.
func (d *daemon) pooled(t *testing.T, p *place, name string) (instances []int, says string) {
	t.Helper()
	says = note(d.status(t, name), "com.openfaas.infer.sharing")
	pool, _, _ := strings.Cut(strings.TrimPrefix(says, "shares the instances of "), ".")
	if !strings.HasPrefix(pool, "shared-") {
		return nil, says
	}
	return p.instancesOf(pool), says
}

// tellsMembers wants the start of a shared instance among what was decided about a member.
func (d *daemon) tellsMembers(t *testing.T) {
	t.Helper()
	a := do(t, client(t), http.MethodGet, d.url+"/system/events?namespace=openfaas-fn&function=a", nil)
	var decided provider.Events
	if err := json.Unmarshal([]byte(a.body), &decided); err != nil || !slices.ContainsFunc(decided.Events, func(e decisions.Decision) bool {
		return e.Kind == decisions.Start && slices.Contains(e.Members, "a.openfaas-fn") && strings.Contains(e.Text, "Shared by a")
	}) {
		t.Errorf("no start of a shared instance is told about a: %v, %s", err, a.body)
	}
}

func note(s types.FunctionStatus, key string) string {
	if s.Annotations == nil {
		return ""
	}
	return (*s.Annotations)[key]
}

// sharing is a deployment that asks to share.
func sharing(name, image, slo string) types.FunctionDeployment {
	return function(name, image, slo, "infer.share", "namespace", "infer.max-batch", "8")
}

// Functions of one model share its instances, and batches mix their requests. Each gets its own answers and is counted
// apart, whatever happens to the others: a bad input, an update, a removal, a kill of the provider. One whose model
// differs in a byte shares nothing.
func TestFunctionsShareInstances(t *testing.T) {
	providerTests.takeHere(t)
	p := newPlace(t)
	p.identity(t)
	p.doubling(t)
	p.bundle(t, "near:latest", edited(t, func(g *onnxpb.GraphProto) { g.Name = proto.String(g.GetName() + ".") }))
	p.bundle(t, "same:latest", zooModel(t, "identity"))
	d, whole := p.provider(t, suite.binary), t
	// The objectives are beyond what the machine stands still.
	d.deploy(t, sharing("a", "identity:latest", "10s"))
	d.awaitAnswer(t, "a")
	alone := p.instancesOf("a")
	at := func(name string) load.Target {
		target := identityTarget(d.function(name), map[string]float64{"a": 60, "b": 40, "c": 20}[name])
		target.Name = name
		return target
	}
	first := beside(t, load.Options{Targets: []load.Target{at("a")}, Duration: 4 * time.Second, Seed: 1})
	d.deploy(t, sharing("b", "same:latest", "15s"))
	d.deploy(t, sharing("c", "identity:latest", "20s"))
	d.deploy(t, sharing("near", "near:latest", "20s"))
	wantAnswered(t, (<-first)[0])
	d.await(t, patience, "the function's own instances to go", func() bool { return !overlap(alone, p.instancesOf("a")) && len(p.instancesOf("a")) == 0 })
	for _, name := range []string{"a", "b", "c", "near"} {
		d.awaitAnswer(t, name)
	}
	shared, says := d.pooled(t, p, "a")
	if len(shared) == 0 || len(p.instancesOf("b"))+len(p.instancesOf("c")) > 0 {
		t.Fatalf("the instances are %v; a says %q", shared, says)
	}
	if !strings.Contains(says, "b.openfaas-fn, c.openfaas-fn") {
		t.Errorf("a says %q", says)
	}
	d.tellsMembers(t)
	if _, says := d.pooled(t, p, "near"); !strings.Contains(says, "no other function") || len(p.instancesOf("near")) == 0 {
		t.Errorf("the function whose model differs in a byte says %q", says)
	}

	t.Run("together", func(t *testing.T) {
		before := d.counted(t, "a", "b", "c")
		c := client(t)
		done := beside(t, load.Options{Targets: []load.Target{at("a"), at("b"), at("c")}, Duration: 3 * time.Second, Seed: 2})
		for range 20 {
			if a := do(t, c, http.MethodPost, d.function("b"), []byte("{")); a.status != http.StatusBadRequest {
				t.Fatalf("a bad input: %d %s", a.status, a.body)
			}
		}
		results := <-done
		after := d.counted(t, "a", "b", "c")
		for i, name := range []string{"a", "b", "c"} {
			wantAnswered(t, results[i])
			want := float64(results[i].Requests)
			if name == "b" {
				want += 20
			}
			if got := after[name] - before[name]; got != want {
				t.Errorf("%v requests of %s are counted, %v were sent", got, name, want)
			}
		}
	})
	t.Run("kill", func(t *testing.T) {
		shared, _ = d.pooled(t, p, "a")
		d.kill(t)
		d = p.provider(whole, suite.binary)
		for _, name := range []string{"a", "b", "c"} {
			d.awaitAnswer(t, name)
		}
		if now, says := d.pooled(t, p, "c"); !overlap(now, shared) {
			t.Errorf("after the kill the pool has %v, before %v; c says %q", now, shared, says)
		}
	})
	t.Run("update", func(t *testing.T) {
		a, b, c := at("a"), at("b"), at("c")
		b.Verify = func(i int, body []byte) error {
			if !bytes.HasSuffix(body, doubled(i)) && !bytes.HasSuffix(body, payload(i)) {
				return fmt.Errorf("request %d got another's answer: %q", i, body)
			}
			return nil
		}
		done := beside(t, load.Options{Targets: []load.Target{a, b, c}, Duration: 4 * time.Second, Seed: 3})
		if a := d.put(t, http.MethodPut, sharing("b", "double:latest", "15s")); a.status != http.StatusAccepted {
			t.Fatalf("update: %d %s", a.status, a.body)
		}
		for _, r := range <-done {
			wantAnswered(t, r)
		}
		// The former model answers until the new one can, which takes as long as the machine needs to measure it.
		d.await(t, patience, "the new model to answer", func() bool {
			body, length := identityBody(1)
			a := do(t, client(t), http.MethodPost, d.function("b"), body, load.HeaderLength, fmt.Sprint(length))
			return a.status == http.StatusOK && bytes.HasSuffix([]byte(a.body), doubled(1))
		})
		d.onlyDoubled(t, "b")
		if now, _ := d.pooled(t, p, "a"); !overlap(now, shared) || len(p.instancesOf("b")) == 0 {
			t.Errorf("after the update the pool has %v, before %v; b has %v", now, shared, p.instancesOf("b"))
		}
		if a := d.put(t, http.MethodPut, sharing("b", "identity:latest", "15s")); a.status != http.StatusAccepted {
			t.Fatalf("update back: %d %s", a.status, a.body)
		}
		d.await(t, patience, "the updated function to come back", func() bool {
			_, says := d.pooled(t, p, "b")
			return strings.Contains(says, "a.openfaas-fn") && len(p.instancesOf("b")) == 0
		})
	})
	t.Run("removal", func(t *testing.T) {
		a, c := at("a"), at("c")
		done := beside(t, load.Options{Targets: []load.Target{a, c}, Duration: 3 * time.Second, Seed: 4})
		d.remove(t, "b")
		d.remove(t, "c")
		results := <-done
		wantAnswered(t, results[0])
		wantAnswered(t, results[1], http.StatusNotFound, http.StatusServiceUnavailable)
		if now, says := d.pooled(t, p, "a"); !overlap(now, shared) && len(now) > 0 || strings.Contains(says, "b.openfaas-fn") {
			t.Errorf("the pool has %v, before %v; a says %q", now, shared, says)
		}
		d.remove(t, "a")
		d.remove(t, "near")
	})
	groups := p.cgroups()
	d.stop(t)
	gone(t, groups)
}

// awaitAnswer waits until a model that returns its input answers.
func (d *daemon) awaitAnswer(t *testing.T, name string) {
	t.Helper()
	d.await(t, patience, "an answer of "+name, func() bool { return invokeIdentity(client(t), d.function(name), 7) == nil })
}

// counted returns how many requests of each function were answered.
func (d *daemon) counted(t *testing.T, names ...string) map[string]float64 {
	t.Helper()
	all := map[string]float64{}
	for _, name := range names {
		all[name] = d.status(t, name).InvocationCount
	}
	return all
}

// A function that shares instances spoils nothing for its neighbours: neither with an objective that no execution can
// meet, nor with more requests than the instances carry, nor by its removal meanwhile.
func TestSharersThatMisbehave(t *testing.T) {
	providerTests.takeHere(t)
	p := newPlace(t)
	p.slow(t)
	d := p.provider(t, suite.binary)
	at := func(name string, rate float64) load.Target {
		target := identityTarget(d.function(name), rate)
		target.Name = name
		return target
	}
	// Nobody knows the model's times yet.
	d.deploy(t, sharing("calm", "slow:latest", "20s"))
	d.deploy(t, sharing("never", "slow:latest", "100us"))
	d.deploy(t, sharing("flood", "slow:latest", "4s"))
	d.awaitAnswer(t, "calm")
	words := []string{"com.openfaas.slo.latency", "100µs", "the fastest"}
	body, length := identityBody(1)
	refused := func() answer {
		return do(t, client(t), http.MethodPost, d.function("never"), body, load.HeaderLength, strconv.Itoa(length))
	}
	d.await(t, patience, "the reason why one is refused", func() bool { return strings.Contains(refused().body, "100µs") })
	if a := refused(); a.status != http.StatusServiceUnavailable || strings.Contains(a.body, "shared-") {
		t.Errorf("%d %s", a.status, a.body)
	} else {
		wantWords(t, a.body, words...)
	}
	if a := d.put(t, http.MethodPut, sharing("never", "slow:latest", "100us")); a.status != http.StatusBadRequest || strings.Contains(a.body, "shared-") {
		t.Errorf("deployed again: %d %s", a.status, a.body)
	}
	// The others come and go as if it was not there.
	d.deploy(t, sharing("late", "slow:latest", "10s"))
	d.awaitAnswer(t, "late")
	d.remove(t, "late")
	if _, says := d.pooled(t, p, "calm"); !strings.Contains(says, "flood.openfaas-fn, never.openfaas-fn") {
		t.Errorf("calm says %q", says)
	}

	done := beside(t, load.Options{Targets: []load.Target{at("calm", 5), at("flood", 800)}, Duration: 6 * time.Second, Seed: 1})
	time.AfterFunc(3*time.Second, func() { d.remove(t, "never") })
	results := <-done
	wantAnswered(t, results[0])
	t.Logf("calm: %s; flood: %s", outcome(results[0]), outcome(results[1]))
	for _, m := range d.metrics(t)["faas_infer_drops_total"].GetMetric() {
		labels := map[string]string{}
		for _, l := range m.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		n := m.GetCounter().GetValue()
		if labels["function"] == "calm.openfaas-fn" && labels["reason"] == "queue_full" && n > 0 {
			t.Errorf("%v requests of the neighbour were refused for the flood", n)
		}
		if strings.HasPrefix(labels["function"], "shared-") && n > 0 {
			t.Errorf("the pool counts %v drops, which its members count, too", n)
		}
	}
	d.stop(t)
}
