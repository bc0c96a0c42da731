package podlogs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/openfaas/faas-provider/logs"
	corev1 "k8s.io/api/core/v1"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
)

func at(second int) time.Time { return time.Date(2026, 11, 22, 4, 0, second, 5, time.UTC) }

func stamped(second int, text string) string {
	return at(second).Format(time.RFC3339Nano) + " " + text + "\n"
}

func TestLines(t *testing.T) {
	long := strings.Repeat("x", maxLine+5000)
	r := newReader(strings.NewReader(stamped(1, "a b ") + "no time\n" + stamped(2, "") + stamped(3, long) + strings.TrimSuffix(stamped(4, "end"), "\n")))
	var got []line
	for {
		l, err := r.next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, l)
	}
	if len(got) != 5 {
		t.Fatalf("%d lines", len(got))
	}
	if n := len(got[3].text); n > maxLine || n < maxLine-100 {
		t.Errorf("a long line has %d bytes", n)
	}
	got[3].text = ""
	want := []line{{at(1), "a b "}, {at(1), "no time"}, {at(2), ""}, {at(3), ""}, {at(4), "end"}}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func sources(texts ...io.Reader) (all []*source) {
	for i, text := range texts {
		all = append(all, &source{instance: fmt.Sprint(i), lines: newReader(text), close: func() error { return nil }})
	}
	return all
}

func TestMerge(t *testing.T) {
	broken := errors.New("broken")
	all := sources(
		strings.NewReader(stamped(1, "a")+stamped(4, "d")),
		strings.NewReader(""),
		io.MultiReader(strings.NewReader(stamped(2, "b")+stamped(3, "c")), iotest.ErrReader(broken)),
	)
	var got []string
	var complaint error
	last := ring{size: 2}
	merge(all, func(e entry) bool {
		got = append(got, e.instance+e.text)
		last.add(e)
		return true
	}, func(err error) { complaint = err })
	if want := []string{"0a", "2b", "2c", "0d"}; !slices.Equal(got, want) || !errors.Is(complaint, broken) {
		t.Errorf("%v, %v", got, complaint)
	}
	if tail := last.all(); len(tail) != 2 || tail[0].text != "c" || tail[1].text != "d" {
		t.Errorf("tail %v", tail)
	}
	if !all[0].last.Equal(at(4)) || !all[2].last.Equal(at(3)) {
		t.Errorf("read up to %v and %v", all[0].last, all[2].last)
	}
}

func TestSince(t *testing.T) {
	since := at(2)
	messages := make(chan logs.Message, 3)
	q := &query{Request: logs.Request{Name: "f", Namespace: "n", Since: &since}, messages: messages}
	for second := range 3 {
		if !q.emit(t.Context(), "i", line{at(second + 1), "x"}) {
			t.Fatal("it gave up")
		}
	}
	if len(messages) != 2 {
		t.Errorf("%d messages, want 2", len(messages))
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	full := &query{messages: nil}
	if full.emit(ended, "i", line{at(1), "x"}) {
		t.Error("a client that is gone was written to")
	}
}

func TestWanted(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "sidecar"}, {Name: "f"}}}}
	pod.Name, pod.Labels = "p", map[string]string{v1alpha1.FunctionLabel: "f"}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "sidecar", State: running}, {Name: "f"}}
	q := &query{}
	if q.wanted(pod) {
		t.Error("what has not begun was asked")
	}
	pod.Status.ContainerStatuses[1].State = running
	if !q.wanted(pod) {
		t.Error("what runs was not asked")
	}
	if q.Instance = "other"; q.wanted(pod) {
		t.Error("another instance was asked")
	}
}
