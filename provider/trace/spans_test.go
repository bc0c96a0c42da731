package trace

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	tracepb "go.opentelemetry.io/proto/slim/otlp/trace/v1"

	"github.com/faas-infer/faas-infer/instance/frame"
)

// shown writes a span as "NAME KIND from-to" in ms after the beginning.
func shown(s *tracepb.Span) string {
	ms := func(ns uint64) int64 { return time.Unix(0, int64(ns)).Sub(at(0)).Milliseconds() }
	kind := strings.ToLower(strings.TrimPrefix(s.Kind.String(), "SPAN_KIND_"))
	return fmt.Sprintf("%s %s %d-%d", s.Name, kind, ms(s.StartTimeUnixNano), ms(s.EndTimeUnixNano))
}

func attribute(s *tracepb.Span, key string) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			return strings.Trim(fmt.Sprint(a.Value.GetValue()), "&{}")
		}
	}
	return ""
}

// Each kind of request has its spans, and all but the first are its children.
func TestSpansOfEachStep(t *testing.T) {
	execution := &frame.Execution{Began: at(40), Ended: at(90), Waited: 10 * time.Millisecond, Engine: 30 * time.Millisecond, Size: 4, Instance: "i", Variant: "int8", Revision: 7}
	for _, c := range []struct {
		name   string
		step   frame.Step
		change func(*frame.Trace)
		want   []string
	}{
		{"answered from a batch", frame.Served, func(t *frame.Trace) {
			t.Queued, t.Sent, t.Batch = at(1), at(40), execution
		}, []string{"POST /function/f.ns server 0-100", "queue internal 1-40", "execute client 50-90"}},
		{"cold", frame.Served, func(t *frame.Trace) {
			t.Queued, t.Cold, t.Up, t.Sent, t.Batch = at(1), true, at(30), at(40), execution
		}, []string{"POST /function/f.ns server 0-100", "cold start internal 1-30", "queue internal 30-40", "execute client 50-90"}},
		{"cold, and no instance came", frame.Served, func(t *frame.Trace) {
			t.Queued, t.Cold, t.Status = at(1), true, 503
		}, []string{"POST /function/f.ns server 0-100 error", "cold start internal 1-100"}},
		{"refused in the queue", frame.Served, func(t *frame.Trace) {
			t.Queued, t.Status = at(1), 429
		}, []string{"POST /function/f.ns server 0-100", "queue internal 1-100"}},
		{"refused before", frame.Served, func(t *frame.Trace) { t.Status = 413 }, []string{"POST /function/f.ns server 0-100"}},
		{"a program's", frame.Served, func(t *frame.Trace) {
			t.Queued, t.Sent, t.Batch = at(1), at(2), &frame.Execution{Began: at(2), Ended: at(99), Instance: "i"}
		}, []string{"POST /function/f.ns server 0-100", "execute client 2-99"}},
		{"a program's, cold", frame.Served, func(t *frame.Trace) {
			t.Queued, t.Sent, t.Cold, t.Batch = at(1), at(60), true, &frame.Execution{Began: at(60), Ended: at(99), Instance: "i"}
		}, []string{"POST /function/f.ns server 0-100", "cold start internal 1-60", "execute client 60-99"}},
		{"stored", frame.Published, func(t *frame.Trace) { t.Status = 202 }, []string{"publish f.ns producer 0-100"}},
		{"executed from the queue", frame.Processed, func(t *frame.Trace) {
			t.Stored, t.Try, t.Queued, t.Sent, t.Batch = at(-500), 1, at(1), at(40), execution
		}, []string{"process f.ns consumer 0-100", "queued internal -500-0", "queue internal 1-40", "execute client 50-90"}},
		{"tried again", frame.Processed, func(t *frame.Trace) { t.Stored, t.Try, t.Status = at(-500), 2, 0 }, []string{"process f.ns consumer 0-100 error"}},
		{"called back", frame.CalledBack, func(t *frame.Trace) { t.Status = 404 }, []string{"callback f.ns client 0-100 error"}},
		{"handed on", frame.Handed, func(t *frame.Trace) { t.Queued, t.Sent, t.Batch = at(1), at(40), execution }, []string{"dispatch f.ns server 0-100", "queue internal 1-40", "execute client 50-90"}},
	} {
		of := traceAt(c.step)
		c.change(of)
		spans := appendSpans(nil, of)
		var got []string
		for i, s := range spans {
			text := shown(s)
			if s.Status.GetCode() == tracepb.Status_STATUS_CODE_ERROR {
				text += " error"
			}
			got = append(got, text)
			parent := of.SpanID[:]
			if i == 0 || s.Name == "queued" {
				parent = of.ParentID[:]
			}
			if !bytes.Equal(s.TraceId, of.TraceID[:]) || !bytes.Equal(s.ParentSpanId, parent) || (i == 0) != bytes.Equal(s.SpanId, of.SpanID[:]) {
				t.Errorf("%s: %s has the wrong identity: %v", c.name, s.Name, s)
			}
			if remote := s.Flags&flagRemote != 0; remote != (bytes.Equal(parent, of.ParentID[:]) && c.step != frame.CalledBack) {
				t.Errorf("%s: %s has a remote parent: %v", c.name, s.Name, remote)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		if n := count(of); n != len(spans) {
			t.Errorf("%s: counts as %d spans, has %d", c.name, n, len(spans))
		}
	}
}

// A batch has one span, a child of its first sampled member, with links to all of them. The executions of all members
// link to it.
func TestSpanOfABatch(t *testing.T) {
	x := &frame.Execution{Began: at(40), Ended: at(90), Engine: 30 * time.Millisecond, Size: 5, Instance: "i", Variant: "int8", Revision: 7}
	for i := range 3 {
		m := traceAt(frame.Served)
		m.TraceID[1], m.SpanID[1], m.Batch, m.State = byte(i), byte(i), x, "s=\xff"
		x.Members = append(x.Members, m)
	}
	var id []byte
	for i, m := range slices.Backward(x.Members) { // The first member's is not the first to be exported.
		spans := appendSpans(nil, m)
		execute := spans[1]
		if len(execute.Links) != 1 || !bytes.Equal(execute.Links[0].TraceId, x.Members[0].TraceID[:]) {
			t.Fatalf("member %d links to %v", i, execute.Links)
		}
		if id == nil {
			id = execute.Links[0].SpanId
		}
		if !bytes.Equal(id, execute.Links[0].SpanId) {
			t.Errorf("member %d links to %x, the others to %x", i, execute.Links[0].SpanId, id)
		}
		if attribute(execute, "faas.instance") != "i" || attribute(execute, "faas_infer.variant") != "int8" || attribute(execute, "faas_infer.revision") != "7" || attribute(execute, "faas_infer.engine_seconds") != "0.03" {
			t.Errorf("execution %v", execute)
		}
		if n := count(m); n != len(spans) || (n == 3) != (i == 0) {
			t.Errorf("member %d has %d spans and counts as %d", i, len(spans), n)
		}
		if i > 0 {
			continue
		}
		batch := spans[2]
		if shown(batch) != "batch internal 40-90" || !bytes.Equal(batch.SpanId, id) || !bytes.Equal(batch.ParentSpanId, m.SpanID[:]) || attribute(batch, "faas_infer.batch_size") != "5" {
			t.Errorf("batch %v", batch)
		}
		for k, l := range batch.Links {
			if !bytes.Equal(l.TraceId, x.Members[k].TraceID[:]) || !bytes.Equal(l.SpanId, x.Members[k].SpanID[:]) || l.TraceState != "s=\ufffd" {
				t.Errorf("link %d: %v", k, l)
			}
		}
		if len(batch.Links) != 3 {
			t.Errorf("%d links", len(batch.Links))
		}
	}
}
