package provider

import (
	"container/list"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/metrics"
)

const (
	// maxCachedBody is the maximum size in bytes of a request whose answer is kept. Every body up to it is hashed.
	maxCachedBody = 1 << 20
	// answerOverhead is what a kept answer takes beside its body and header, in bytes.
	answerOverhead = 512
)

// cachedHeaders are the headers on which an answer depends, beside those with the prefix chosenPrefix, whose requests
// are always executed.
var cachedHeaders = []string{"Accept", "Accept-Encoding", "Content-Encoding", "Content-Type", "Inference-Header-Content-Length"}

// chosenPrefix begins the headers by which a request chooses a variant, a model or an objective.
const chosenPrefix = "X-Infer-"

// cacheStatus is the header that says that an answer was kept (RFC 9211).
const cacheStatus, cacheHit = "Cache-Status", "faas-infer; hit"

// answerMemory is the memory that the answers of all functions take together, up to a limit. The least recently used
// one of all makes room for a new one.
type answerMemory struct {
	limit int64

	mu    sync.Mutex
	order list.List // of *keptAnswer, the most recently used first
	size  int64
}

// answers keeps answers of one revision of a function for requests that are equal to earlier ones, up to a size. The
// least recently used answer makes room for a new one. Another deployment of the function begins with none. It is safe
// for concurrent use.
type answers struct {
	memory  *answerMemory
	limit   int64
	metrics *metrics.AnswerMetrics

	// The lock of memory guards what follows.
	kept   map[answerKey]*keptAnswer
	order  list.List // of *keptAnswer, the most recently used first
	size   int64
	closed bool
}

// answerKey is a hash of what an answer depends on.
type answerKey [sha256.Size]byte

// keptAnswer is one answer. It does not change.
type keptAnswer struct {
	of     *answers
	key    answerKey
	status int
	header http.Header
	body   []byte
	size   int64
	// own and all are its places in the orders of its function and of all. The lock of the memory guards them.
	own, all *list.Element
}

// newAnswers returns a cache of limit bytes of a memory that counts its requests, nil if limit is 0. Close it when no
// request uses it any more.
func newAnswers(limit int64, memory *answerMemory, m *metrics.AnswerMetrics) *answers {
	if limit <= 0 {
		return nil
	}
	return &answers{memory: memory, limit: limit, metrics: m, kept: map[answerKey]*keptAnswer{}}
}

// close gives the memory back. Later answers are not kept. a may be nil.
func (a *answers) close() {
	if a == nil {
		return
	}
	a.memory.mu.Lock()
	defer a.memory.mu.Unlock()
	a.closed = true
	for _, k := range a.kept {
		k.remove()
	}
}

// invoke answers a request with the answer to an equal one, or lets the function answer it. a may be nil. While a
// later revision is rolled out, every request is executed: both revisions are compared.
func (a *answers) invoke(ctx context.Context, d *deployed, req *frame.Request) (*frame.Response, error) {
	if a == nil || d.rollout.Load() != nil {
		return d.invoke(ctx, req)
	}
	key, ok := keyOf(req)
	if !ok {
		return d.invoke(ctx, req)
	}
	resp := a.find(key)
	a.metrics.Count(resp != nil)
	if resp != nil {
		return resp, nil
	}
	resp, err := d.invoke(ctx, req)
	// An instance of the revision before may have answered, with another model.
	if err == nil && resp.Status == http.StatusOK && resp.Revision == d.Revision {
		a.keep(key, resp)
	}
	return resp, err
}

// keyOf returns the key of a request's answer, and whether that may be kept at all.
func keyOf(req *frame.Request) (key answerKey, ok bool) {
	if req.Method != http.MethodPost || len(req.Body) == 0 || len(req.Body) > maxCachedBody || req.Parts != nil {
		return key, false
	}
	for name := range req.Header {
		if strings.HasPrefix(name, chosenPrefix) {
			return key, false
		}
	}
	for _, v := range req.Header["Cache-Control"] {
		v = strings.ToLower(v)
		if strings.Contains(v, "no-cache") || strings.Contains(v, "no-store") {
			return key, false
		}
	}
	hash := sha256.New()
	var length [8]byte
	add := func(part string) {
		binary.LittleEndian.PutUint64(length[:], uint64(len(part)))
		hash.Write(length[:])
		hash.Write([]byte(part))
	}
	add(req.Path)
	add(req.Query)
	for _, name := range cachedHeaders {
		add(strings.Join(req.Header[name], "\n"))
	}
	hash.Write(req.Body)
	hash.Sum(key[:0])
	return key, true
}

// find returns a kept answer, nil if there is none. Its body must not be changed.
func (a *answers) find(key answerKey) *frame.Response {
	k := a.use(key)
	if k == nil {
		return nil
	}
	h := k.header.Clone()
	h[cacheStatus] = []string{cacheHit}
	return &frame.Response{Status: k.status, Header: h, Body: k.body}
}

// use returns a kept answer, which is then the most recently used one, nil if there is none.
func (a *answers) use(key answerKey) *keptAnswer {
	a.memory.mu.Lock()
	defer a.memory.mu.Unlock()
	k := a.kept[key]
	if k != nil {
		a.order.MoveToFront(k.own)
		a.memory.order.MoveToFront(k.all)
	}
	return k
}

// keep keeps a copy of an answer, unless it is larger than the cache.
func (a *answers) keep(key answerKey, resp *frame.Response) {
	m := a.memory
	size := int64(len(resp.Body) + headSize("", "", resp.Header) + answerOverhead)
	if size > min(a.limit, m.limit) {
		return
	}
	h := resp.Header.Clone()
	if h == nil {
		h = http.Header{}
	}
	// The body may lie in the request's buffer, which another request gets.
	k := &keptAnswer{of: a, key: key, status: resp.Status, header: h, body: slices.Clone(resp.Body), size: size}
	m.mu.Lock()
	defer m.mu.Unlock()
	if a.closed { // The function was deployed anew or removed meanwhile.
		return
	}
	if before := a.kept[key]; before != nil { // An equal request came at the same time.
		before.remove()
	}
	for a.size+size > a.limit {
		a.order.Back().Value.(*keptAnswer).remove()
	}
	for m.size+size > m.limit {
		m.order.Back().Value.(*keptAnswer).remove()
	}
	k.own, k.all = a.order.PushFront(k), m.order.PushFront(k)
	a.kept[key] = k
	a.size, m.size = a.size+size, m.size+size
}

// remove forgets an answer. The lock is held.
func (k *keptAnswer) remove() {
	a := k.of
	a.order.Remove(k.own)
	a.memory.order.Remove(k.all)
	delete(a.kept, k.key)
	a.size, a.memory.size = a.size-k.size, a.memory.size-k.size
}
