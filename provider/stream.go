package provider

import (
	"context"
	"encoding/json"
	"hash/maphash"
	"net/http"
	"time"

	"github.com/faas-infer/faas-infer/provider/decisions"
	"github.com/faas-infer/faas-infer/provider/web"
)

// The bounds of GET /system/stream. A viewer that has not taken maxBehind events is dropped. pingPeriod is how many
// seconds apart comments are sent, which show that a connection is there.
const (
	maxViewers = 1024
	maxBehind  = 8
	pingPeriod = 15
)

// everyNamespace selects all namespaces.
const everyNamespace = "*"

// audienceKey says what viewers watch: the functions of a namespace, or one of them with details.
type audienceKey struct{ namespace, function string }

func (k audienceKey) selects(namespace, function string) bool {
	return (k.namespace == everyNamespace || k.namespace == namespace) && (k.function == "" || k.function == function)
}

// about reports whether a decision is about what viewers watch.
func (k audienceKey) about(d *decisions.Decision) bool {
	namespace := k.namespace
	if namespace == everyNamespace {
		namespace = ""
	}
	return d.About(namespace, k.function)
}

// audience is all who watch the same.
type audience struct {
	viewers map[*viewer]struct{}
	// sent has the hash of the latest text of each function, and nodes that of the machines.
	sent  map[statsName]uint64
	nodes uint64
	// first are the events with which those begin who come in the second firstAt, nil once later ones are sent: many who
	// come at once share them.
	first   []byte
	firstAt int64
}

// viewer is one open stream. frames is closed when the viewer is dropped.
type viewer struct{ frames chan []byte }

// errViewers answers a viewer that is one too many.
var errViewers = web.Unavailable(10*time.Second,
	"too many streams are open: the maximum is %d; close some, or ask /system/stats now and then", maxViewers)

// join makes a viewer of those who watch k. first are the events that it gets before those on its channel.
func (w *watcher) join(ctx context.Context, now time.Time, k audienceKey) (v *viewer, first []byte, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.viewers >= maxViewers {
		return nil, nil, errViewers
	}
	w.sampleAll(now)
	a := w.audiences[k]
	if a == nil {
		a = &audience{viewers: map[*viewer]struct{}{}, sent: map[statsName]uint64{}}
		w.audiences[k] = a
		w.news(ctx, k, a)
	}
	v = &viewer{frames: make(chan []byte, maxBehind)}
	a.viewers[v] = struct{}{}
	w.viewers++
	if a.first == nil || a.firstAt != w.at {
		a.first, a.firstAt = w.firstEvents(ctx, now, k), w.at
	}
	return v, a.first, nil
}

// firstEvents are those with which a viewer begins. The lock is held.
func (w *watcher) firstEvents(ctx context.Context, now time.Time, k audienceKey) []byte {
	hello, _ := json.Marshal(struct {
		Started float64 `json:"started"`
		Version string  `json:"version"`
	}{w.started(), w.server.version.Release})
	var all [][]byte
	for _, f := range w.selected(k) {
		all = append(all, w.textFor(k, f))
	}
	return event(event(nil, "hello", hello), "stats", w.appendStats(nil, now, defaultStepS, all, nil, w.machines(ctx)))
}

// leave ends a viewer, also one that was dropped.
func (w *watcher) leave(k audienceKey, v *viewer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drop(k, v)
}

// drop ends a viewer. The lock is held.
func (w *watcher) drop(k audienceKey, v *viewer) {
	a := w.audiences[k]
	if a == nil {
		return
	}
	if _, ok := a.viewers[v]; !ok {
		return
	}
	delete(a.viewers, v)
	close(v.frames)
	w.viewers--
	if len(a.viewers) == 0 {
		delete(w.audiences, k)
	}
}

// textFor is what those who watch k are shown of a function. The lock is held.
func (w *watcher) textFor(k audienceKey, f *watchedFunction) []byte {
	if k.function != "" {
		return w.renderMore(f, true, span{})
	}
	return w.render(f)
}

// hashSeed is that of the hashes of what was sent.
var hashSeed = maphash.MakeSeed()

// news returns the texts of functions that have changed since they were sent, those that are gone, and the nodes
// if they have changed. The lock is held.
func (w *watcher) news(ctx context.Context, k audienceKey, a *audience) (texts [][]byte, gone []statsName, nodes []byte) {
	all := w.selected(k)
	for _, f := range all {
		text, name := w.textFor(k, f), f.name()
		if h := maphash.Bytes(hashSeed, text); a.sent[name] != h {
			a.sent[name] = h
			texts = append(texts, text)
		}
	}
	if len(a.sent) != len(all) {
		there := map[statsName]bool{}
		for _, f := range all {
			there[f.name()] = true
		}
		for name := range a.sent {
			if !there[name] {
				delete(a.sent, name)
				gone = append(gone, name)
			}
		}
	}
	if now := w.machines(ctx); now != nil {
		if h := maphash.Bytes(hashSeed, now); h != a.nodes {
			a.nodes, nodes = h, now
		}
	}
	return texts, gone, nodes
}

// publish makes the events of a second, once for all who watch the same, and passes them on. It waits for no
// viewer. The lock is held.
func (w *watcher) publish(now time.Time) {
	var made []decisions.Decision
	made, w.decided = w.server.events.log.Since(w.decided, "", "", maxEvents)
	texts := make([][]byte, len(made))
	for k, a := range w.audiences {
		frame := []byte(nil)
		a.first = nil
		if news, gone, nodes := w.news(context.Background(), k, a); len(news) > 0 || len(gone) > 0 || nodes != nil {
			frame = event(frame, "stats", w.appendStats(nil, now, defaultStepS, news, gone, nodes))
		}
		for i := range made {
			if !k.about(&made[i]) {
				continue
			}
			if texts[i] == nil {
				texts[i], _ = json.Marshal(made[i]) // It has no field that could fail.
			}
			frame = event(frame, "decision", texts[i])
		}
		if now.Unix()%pingPeriod == 0 {
			frame = append(frame, ": ping\n\n"...)
		}
		if len(frame) == 0 {
			continue
		}
		w.frames++
		for v := range a.viewers {
			select {
			case v.frames <- frame:
			default:
				w.drop(k, v)
			}
		}
	}
}

// event appends one server-sent event. data has no line break, as JSON.
func event(to []byte, name string, data []byte) []byte {
	to = append(append(append(to, "event: "...), name...), "\ndata: "...)
	return append(append(to, data...), "\n\n"...)
}

// follow sends a viewer its events until it is gone or dropped, or the provider shuts down. Like any client, one that takes
// nothing of an answer loses its connection after --answer-timeout.
func (w *watcher) follow(out http.ResponseWriter, r *http.Request, first []byte, v *viewer) {
	control := http.NewResponseController(out)
	defer hurryAtShutdown(w.server.inFlight, control)()
	for frame := first; ; {
		if _, err := out.Write(frame); err != nil {
			return
		}
		if control.Flush() != nil {
			return
		}
		var ok bool
		select {
		case frame, ok = <-v.frames:
			if !ok {
				return
			}
		case <-r.Context().Done():
			return
		case <-w.server.inFlight.Shut():
			return
		}
	}
}
