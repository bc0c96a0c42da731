package decisions

import (
	"cmp"
	"container/list"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"
)

const (
	// maxPerFunction and maxDecisions bound the entries of a log, of one function and in all.
	maxPerFunction = 200
	maxDecisions   = 10_000
	// maxText bounds each text in an entry, in bytes.
	maxText = 1024
	// joinWithin is the longest time between two equal decisions in a row that are joined.
	joinWithin = 5 * time.Minute
)

// Log has the latest decisions. Beyond its bounds it forgets the oldest, first the function's own. It is safe
// for concurrent use, and a nil Log forgets everything. Make it with NewLog.
type Log struct {
	mu   sync.Mutex
	last uint64
	// all has every *Decision by ID, of the elements of each function too, by full name.
	all        *list.List
	byFunction map[string][]*list.Element
	changed    chan struct{}
	// merged has the last ID that came of each other log.
	merged map[string]uint64
	// sharing has the members of the functions that answer for others (Share), shared those with entries for members.
	sharing map[string][]string
	shared  map[string]bool
}

// NewLog returns an empty log.
func NewLog() *Log {
	return &Log{
		all: list.New(), byFunction: map[string][]*list.Element{}, changed: make(chan struct{}), merged: map[string]uint64{},
		sharing: map[string][]string{}, shared: map[string]bool{},
	}
}

// Add adds a decision about a function, by full name, or about none. Equal ones of one instant are of one plan:
// their instances add up. Equal ones in a row are counted. It takes microseconds and waits for no reader.
func (l *Log) Add(now time.Time, function string, kind Kind, f Fields) {
	if l == nil {
		return
	}
	f.clip()
	d := &Decision{At: Time{now}, Kind: kind, Fields: f}
	d.Function, d.Namespace = splitName(function)
	l.mu.Lock()
	defer l.mu.Unlock()
	d.Members = l.sharing[function]
	if i := l.equal(function, d); i >= 0 {
		d.join(l.byFunction[function][i].Value.(*Decision))
		l.forget(function, i)
	}
	if d.Text = Sentence(kind, d.Fields) + d.sharedBy(); d.Count > 1 {
		d.Text += " (×" + strconv.Itoa(d.Count) + ")"
	}
	l.push(function, d)
}

// Merge adds decisions of another log ([Log.Own]), whose program run identifies.
func (l *Log) Merge(run string, found []Decision) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range found {
		if d.ID <= l.merged[run] {
			continue
		}
		l.merged[run] = d.ID
		function, replaced := fullName(&d), origin{run, d.Replaces}
		d.origin, d.Replaces = origin{run, d.ID}, 0
		own := l.byFunction[function]
		for i := len(own) - 1; i >= 0 && replaced.id > 0; i-- {
			if was := own[i].Value.(*Decision); was.origin == replaced {
				d.Replaces = was.ID
				l.forget(function, i)
				break
			}
		}
		l.push(function, &d)
	}
}

// Restore adds the decisions of an earlier run of the provider, oldest first, to a log that has none yet. They keep
// their IDs, so that a page which knows them asks for those that follow.
func (l *Log) Restore(found []Decision) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last > 0 {
		return
	}
	for _, d := range found {
		if d.ID > l.last {
			l.last = d.ID - 1
			l.push(fullName(&d), &d)
		}
	}
}

// push adds an entry under the next ID.
func (l *Log) push(function string, d *Decision) {
	l.last++
	d.ID = l.last
	l.byFunction[function] = append(l.byFunction[function], l.all.PushBack(d))
	if d.Members != nil {
		l.shared[function] = true
	}
	if len(l.byFunction[function]) > maxPerFunction {
		l.forget(function, 0)
	}
	if l.all.Len() > maxDecisions {
		oldest := l.all.Front().Value.(*Decision)
		l.forget(fullName(oldest), 0)
	}
	close(l.changed)
	l.changed = make(chan struct{})
}

// forget removes the i-th entry of a function.
func (l *Log) forget(function string, i int) {
	own := l.byFunction[function]
	l.all.Remove(own[i])
	if len(own) == 1 {
		delete(l.byFunction, function)
		delete(l.shared, function)
		return
	}
	copy(own[i:], own[i+1:])
	own[len(own)-1] = nil
	l.byFunction[function] = own[:len(own)-1]
}

// equal returns the index of the entry to which a decision is joined, -1 if there is none: the function's latest, or
// one of the same instant.
func (l *Log) equal(function string, d *Decision) int {
	own := l.byFunction[function]
	for i := len(own) - 1; i >= 0; i-- {
		was := own[i].Value.(*Decision)
		if was.equals(d) {
			return i
		}
		if !was.At.Equal(d.At.Time) {
			break
		}
	}
	return -1
}

// join makes a decision stand for an equal one, too.
func (d *Decision) join(was *Decision) {
	d.Count, d.Replaces, d.FirstAt = was.Count, was.ID, was.FirstAt
	if was.At.Equal(d.At.Time) {
		d.Fields.Instances += was.Fields.Instances
		return
	}
	if d.Count = max(1, d.Count) + 1; d.FirstAt == nil {
		d.FirstAt = &Time{was.At.Time}
	}
}

// Since returns the entries after an ID, oldest first, at most limit of them if that is above 0: the latest
// ones. next is the ID to ask with for those that follow. namespace and function, a name without its namespace, choose
// ([Decision.About]), unless they are "". An ID that this log has not given yet is of an earlier run of the provider, and
// counts as 0.
func (l *Log) Since(id uint64, namespace, function string, limit int) (found []Decision, next uint64) {
	full := ""
	if function != "" && namespace != "" {
		full = function + "." + namespace
	}
	return l.latest(id, full, limit, func(d *Decision) bool { return d.About(namespace, function) })
}

// Own is [Log.Since] for all functions, without what came by [Log.Merge].
func (l *Log) Own(id uint64, limit int) (found []Decision, next uint64) {
	return l.latest(id, "", limit, func(d *Decision) bool { return d.origin == origin{} })
}

// latest returns the latest wanted entries after an ID, oldest first. full is the full name of a function to which
// all belong, "" if there is none.
func (l *Log) latest(id uint64, full string, limit int, wanted func(*Decision) bool) (found []Decision, next uint64) {
	if l == nil {
		return nil, 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if id > l.last {
		id = 0
	}
	take := func(d *Decision) (more bool) {
		if d.ID <= id {
			return false
		}
		if wanted(d) {
			found = append(found, *d)
		}
		return true
	}
	if full == "" {
		for e := l.all.Back(); e != nil && (limit <= 0 || len(found) < limit) && take(e.Value.(*Decision)); e = e.Prev() {
		}
		slices.Reverse(found)
		return found, l.last
	}
	takeOf := func(function string) {
		from, own := len(found), l.byFunction[function]
		for i := len(own) - 1; i >= 0 && (limit <= 0 || len(found)-from < limit) && take(own[i].Value.(*Decision)); i-- {
		}
	}
	takeOf(full)
	for function := range l.shared {
		if function != full {
			takeOf(function)
		}
	}
	slices.SortFunc(found, func(a, b Decision) int { return cmp.Compare(a.ID, b.ID) })
	if limit > 0 && len(found) > limit {
		found = slices.Delete(found, 0, len(found)-limit)
	}
	return found, l.last
}

// Changed returns a channel that is closed at the next entry. Ask for it before [Log.Since].
func (l *Log) Changed() <-chan struct{} {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

// splitName splits a full name at its last dot.
func splitName(full string) (name, namespace string) {
	if i := strings.LastIndexByte(full, '.'); i >= 0 {
		return full[:i], full[i+1:]
	}
	return full, ""
}

// fullName is the name under which a log has a decision.
func fullName(d *Decision) string {
	if d.Namespace == "" {
		return d.Function
	}
	return d.Function + "." + d.Namespace
}

var number = regexp.MustCompile(`[0-9]+(\.[0-9]+)?`)

// equals reports whether a decision that follows one is the same again: the measured figures may differ, and within
// an instant the number of instances.
func (d *Decision) equals(next *Decision) bool {
	if d.Kind != next.Kind || d.Fields.Node != next.Fields.Node || next.At.Sub(d.At.Time) > joinWithin {
		return false
	}
	if !slices.Equal(d.Members, next.Members) {
		return false
	}
	a, b := d.Fields.constant(), next.Fields.constant()
	if d.At.Equal(next.At.Time) && a.Instances > 0 && b.Instances > 0 {
		a.Instances = b.Instances
	}
	return a == b
}

// constant returns the fields without measured figures and IDs.
func (f Fields) constant() Fields {
	if f.Replicas != nil {
		f.Instances, f.Replicas = int(*f.Replicas), nil
	}
	f.Load, f.Needed, f.Carries, f.Waiting, f.InFlight, f.Idle, f.Took, f.Level, f.Ratio, f.Instance = 0, 0, 0, 0, 0, 0, 0, 0, 0, ""
	f.Detail, f.Error = number.ReplaceAllString(f.Detail, "0"), number.ReplaceAllString(f.Error, "0")
	return f
}

// Same reports whether two sentences differ at most in their numbers.
func Same(a, b string) bool {
	return a == b || number.ReplaceAllString(a, "0") == number.ReplaceAllString(b, "0")
}

// Printable replaces control characters other than newlines, by which a text could change a terminal, and what is
// no UTF-8.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' || r == utf8.RuneError {
			return ' '
		}
		return r
	}, text)
}

// clip shortens the texts and makes them valid UTF-8 without control characters: they may come from a model or
// a client.
func (f *Fields) clip() {
	for _, text := range []*string{&f.Why, &f.Node, &f.Instance, &f.Variant, &f.For, &f.Image, &f.Detail, &f.Error} {
		*text = strings.ReplaceAll(Printable(*text), "\n", " ")
		if len(*text) > maxText {
			cut := maxText
			for !utf8.RuneStart((*text)[cut]) {
				cut--
			}
			*text = (*text)[:cut] + "…"
		}
	}
}
