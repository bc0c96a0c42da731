package provider

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/openfaas/faas-provider/types"
)

// listing has every namespace's functions, sorted by name, after so many edits of the
// registry. After another edit, the next call of sorted makes a new listing.
type listing struct {
	edits       uint64
	byNamespace map[string][]*deployed
}

// sorted returns the functions that are deployed now.
func (g *registry) sorted() *listing {
	edits := g.edits.Load()
	if l := g.listing.Load(); l != nil && l.edits == edits {
		return l
	}
	// An edit during the iteration makes this listing old at once.
	l := &listing{edits: edits, byNamespace: map[string][]*deployed{}}
	g.functions.Range(func(key, value any) bool {
		// Functions in the default namespace are in the map twice.
		if d := value.(*deployed); key == d.Name {
			namespace := d.Deployment.Namespace
			l.byNamespace[namespace] = append(l.byNamespace[namespace], d)
		}
		return true
	})
	for list := range maps.Values(l.byNamespace) {
		slices.SortFunc(list, byService)
	}
	g.listing.Store(l)
	return l
}

// byService orders the functions of a namespace by their names.
func byService(a, b *deployed) int {
	return strings.Compare(a.Deployment.Service, b.Deployment.Service)
}

// list is GET /system/functions: one namespace's functions, sorted by name. A namespace
// that does not exist has none. The gateway lists all namespaces every few seconds, and
// one of them may have been deleted since it read their names.
func (s *Server) list(w http.ResponseWriter, r *http.Request) error {
	namespace := cmp.Or(r.URL.Query().Get("namespace"), DefaultNamespace)
	if err := s.restored.wait(r.Context()); err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	text := make([]byte, 1, listChunk+4<<10)
	text[0] = '['
	whole := true
	for i, d := range s.restored.with(namespace, s.sorted) {
		if i > 0 {
			text = append(text, ',')
		}
		if text = d.appendStatus(text, s.statusOf(d)); len(text) < listChunk {
			continue
		}
		whole = false
		if _, err := w.Write(text); err != nil {
			return nil // The client is gone.
		}
		text = text[:0]
	}
	text = append(text, ']', '\n')
	if whole {
		h.Set("Content-Length", strconv.Itoa(len(text)))
	}
	_, _ = w.Write(text)
	return nil
}

// listChunk is the number of bytes of a list that are written at a time.
const listChunk = 64 << 10

// fixedStatus is the part of a function's status that does not change until the next
// deployment, as JSON without its last brace. The first list makes it.
type fixedStatus struct {
	once sync.Once
	text []byte
}

// fixedFields is a status without the fields that change. A field of the outer struct
// hides the inner one with the same name, and is left out because it is empty.
type fixedFields struct {
	types.FunctionStatus
	InvocationCount   *struct{} `json:"invocationCount,omitempty"`
	Replicas          *struct{} `json:"replicas,omitempty"`
	AvailableReplicas *struct{} `json:"availableReplicas,omitempty"`
	Usage             *struct{} `json:"usage,omitempty"`
}

// appendStatus adds a function's present status, without usage, as JSON to text.
func (d *deployed) appendStatus(text []byte, now Status) []byte {
	if now.Problem != "" || now.Arriving != "" || now.Rollout != "" || d.isDownloading() { // These change, too, and few functions have them.
		object, _ := json.Marshal(d.status(now, false))
		return append(text, object...)
	}
	d.fixedStatus.once.Do(func() {
		// Strings, numbers and a time of this era cannot fail to marshal.
		object, _ := json.Marshal(fixedFields{FunctionStatus: d.status(Status{}, false)})
		d.fixedStatus.text = object[:len(object)-1]
	})
	text = append(text, d.fixedStatus.text...)
	for _, field := range []struct {
		name  string
		value uint64
	}{{"invocationCount", d.metrics.Answered()}, {"replicas", now.Replicas}, {"availableReplicas", now.AvailableReplicas}} {
		if field.value != 0 {
			text = append(text, `,"`+field.name+`":`...)
			text = strconv.AppendUint(text, field.value, 10)
		}
	}
	return append(text, '}')
}
