package copies

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/filelock/workdir"
	"github.com/faas-infer/faas-infer/model/content"
)

// A provider may send the contents of models to a node ahead of the instances that load them. They lie beside the
// functions' directories, each in a directory of its own, from which all functions of the namespace read it. The agent
// alone writes there, and it compares every file's hash. So a function cannot change what another one loads.

// ModelEnv names, in an instance's environment, the directory that the node's agent has for the instance's content.
const ModelEnv = "FAAS_INFER_NODE_MODEL"

const (
	// modelPrefix begins the name of a content's directory. No function has a dot in its name.
	modelPrefix = "model."
	// modelsPath begins the paths of [Models].
	modelsPath = "/models/"
	// maxArrivals bounds how many contents arrive at a time.
	maxArrivals = 4
	// arrivalIdle is how long a content may get no bytes until it is given up. The part that has arrived stays.
	arrivalIdle = time.Minute
	// beginPatience is how long a new arrival may take until it takes bytes.
	beginPatience = time.Second
	// private is the mode of a content's directory: its owner alone writes there. No instance believes one with another
	// mode, so it is closed while it may have what others put there.
	private, closed = 0o755, 0o700
	// ConfirmAfter is the time after which a provider asks again whether a node has a content that it wants there ahead
	// of instances. Each question counts as a use.
	ConfirmAfter = 10 * time.Minute
	// aheadHeader says that no instance waits for what is sent. Such a content evicts nothing that was used lately.
	aheadHeader = "X-Faas-Infer-Ahead"
)

// errIdle says that nothing was sent for arrivalIdle.
var errIdle = fmt.Errorf("nobody has sent anything for %v", arrivalIdle)

// Ahead marks the requests of a sender that sends ahead of instances. The agent keeps what was used within twice
// [ConfirmAfter] from its content. Otherwise contents that do not fit together would take turns.
func Ahead(header http.Header) { header.Set(aheadHeader, "true") }

// ModelDir names the directory of a content in its namespace's directory.
func ModelDir(content string) string { return modelPrefix + content }

// ModelPath is the path below which a node's agent takes a content for a namespace: what [content.Send] needs beside
// the agent's address.
func ModelPath(namespace, content string) string { return modelsPath + namespace + "/" + content }

// FindModel finds a content in its directory, which only root can write, and holds it: no tidier removes it while the
// file is open. The file is nil if the content is not there, or if others could have written it.
func FindModel(ctx context.Context, dir, name string) (path string, held *os.File) {
	return findModel(ctx, dir, name, 0)
}

func findModel(ctx context.Context, dir, name string, owner int) (path string, held *os.File) {
	r, err := content.NewReceiver(dir, name)
	if err != nil || !isPrivate(dir, owner) {
		return "", nil
	}
	if held, err = workdir.Hold(ctx, dir, time.Second); err != nil {
		return "", nil
	}
	if path = r.Find(); path == "" {
		_ = held.Close()
		return "", nil
	}
	return path, held
}

// isPrivate reports whether a path is a directory into which its owner alone writes.
func isPrivate(path string, owner int) bool {
	var is unix.Stat_t
	err := unix.Lstat(path, &is)
	return err == nil && isDir(is) && int(is.Uid) == owner && is.Mode&0o777 == private
}

// Models takes the contents that a provider sends. It is a handler of the paths of [ModelPath], and bounds how many
// arrive at a time and how much they take. It is safe for concurrent use.
type Models struct {
	// Tidier makes room, and removes what nothing uses.
	Tidier *Tidier
	Log    zerolog.Logger
	// Context ends what arrives.
	Context context.Context
	// KeyFile has the key that senders show; "" or a missing file for none. See [ShowKey].
	KeyFile string

	// mu is held for moments only, and not while files are read.
	mu sync.Mutex
	// arriving and lookups are by the directories below the tidier's Root.
	arriving map[string]*arrival
	lookups  map[string]*lookup
}

// arrival is a content on its way.
type arrival struct {
	receiver *content.Receiver
	// cancel ends it, for a reason.
	cancel context.CancelCauseFunc
	// seen is when the sender asked last.
	seen time.Time
	// use counts the requests that are being served.
	use int
	// ahead: no instance waits for it.
	ahead atomic.Bool
}

// lookup is one look whether a content is here, for all that ask meanwhile. After the machine's start it reads all files.
type lookup struct {
	done  chan struct{}
	found bool
}

// ServeHTTP answers the sender of a content as a [content.Receiver] does. An arrival begins with its index: whoever only
// asks takes no place from those that send.
func (m *Models) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	if known, err := shows(q, m.KeyFile); !known {
		m.Log.Warn().Err(err).Str("from", q.RemoteAddr).Msg("refuses a sender of models that does not show the key")
		http.Error(w, "show the key of this node's agent", http.StatusUnauthorized)
		return
	}
	rest, _ := strings.CutPrefix(q.URL.Path, modelsPath)
	namespace, rest, _ := strings.Cut(rest, "/")
	name, below, _ := strings.Cut(rest, "/")
	if !content.IsName(name) || !strings.HasPrefix("/"+below, content.Path) {
		http.NotFound(w, q)
		return
	}
	if !slices.Contains(m.Tidier.Namespaces, namespace) {
		http.Error(w, "this node keeps no models of the namespace "+namespace, http.StatusNotFound)
		return
	}
	q.URL.Path = "/" + below
	begins := q.Method == http.MethodPut && q.URL.Path == content.IndexPath
	at := path.Join(namespace, ModelDir(name))
	a := m.join(at)
	if a == nil {
		needs := m.look(q.Context(), at, name)
		if needs != content.NeedsIndex || !begins {
			content.Answer(w, content.State{Name: name, Needs: needs})
			return
		}
		var err error
		if a, err = m.begin(at, name); err != nil {
			m.Log.Warn().Err(err).Str("namespace", namespace).Str("model", name).Msg("takes no model now")
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
	}
	defer m.leave(a)
	if begins {
		a.ahead.Store(q.Header.Get(aheadHeader) != "")
	}
	a.receiver.ServeHTTP(w, q)
}

// join returns the arrival into a directory, nil if there is none.
func (m *Models) join(at string) *arrival {
	m.mu.Lock()
	defer m.mu.Unlock()
	a := m.arriving[at]
	if a != nil {
		a.seen, a.use = time.Now(), a.use+1
	}
	return a
}

// look says what is needed of a content that does not arrive. It says that something else is under way while its files
// are still being read.
func (m *Models) look(ctx context.Context, at, name string) content.Need {
	m.mu.Lock()
	l := m.lookups[at]
	if l == nil {
		l = &lookup{done: make(chan struct{})}
		if m.lookups == nil {
			m.lookups = map[string]*lookup{}
		}
		m.lookups[at] = l
		go func() {
			defer close(l.done)
			l.found = m.find(at, name)
			m.mu.Lock()
			defer m.mu.Unlock()
			delete(m.lookups, at)
		}()
	}
	m.mu.Unlock()
	late := time.After(beginPatience)
	select {
	case <-l.done:
		if l.found {
			return content.NeedsNothing
		}
		return content.NeedsIndex
	case <-late:
	case <-ctx.Done():
	}
	return content.NeedsOther
}

// find reports whether a content is here, and notes that it is used.
func (m *Models) find(at, name string) bool {
	ctx, cancel := context.WithTimeout(m.Context, beginPatience)
	defer cancel()
	dir := filepath.Join(m.Tidier.Root, at)
	_, held := findModel(ctx, dir, name, os.Geteuid())
	if held == nil {
		return false
	}
	workdir.Use(dir, time.Now())
	_ = held.Close() // It was read only.
	return true
}

// begin begins the arrival of a content, or joins it.
func (m *Models) begin(at, name string) (*arrival, error) {
	receiver, err := content.NewReceiver(filepath.Join(m.Tidier.Root, at), name)
	if err != nil {
		return nil, err
	}
	life, cancel := context.WithCancelCause(m.Context)
	a := &arrival{receiver: receiver, cancel: cancel, seen: time.Now(), use: 1}
	receiver.Room = func(bytes int64) error {
		err := m.Tidier.makeRoom(at, bytes, a.ahead.Load())
		if err != nil {
			cancel(err) // It leaves its place to others.
		}
		return err
	}
	if present, err := m.enter(a, at); present != a {
		cancel(nil)
		return present, err
	}
	ctx, enough := context.WithTimeout(life, beginPatience)
	defer enough()
	held, err := m.Tidier.receive(ctx, at)
	if err != nil {
		m.end(a, at)
		return nil, err
	}
	go m.wait(life, a, at, held)
	select {
	case <-receiver.Begun():
	case <-ctx.Done():
	}
	return a, nil
}

// enter takes a place for an arrival. It returns the one that has begun meanwhile if there is one, and nil if there is no
// place.
func (m *Models) enter(a *arrival, at string) (*arrival, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if present := m.arriving[at]; present != nil {
		present.seen, present.use = time.Now(), present.use+1
		return present, nil
	}
	if len(m.arriving) >= maxArrivals {
		return nil, fmt.Errorf("%d models arrive already", maxArrivals)
	}
	if m.arriving == nil {
		m.arriving = map[string]*arrival{}
	}
	m.arriving[at] = a
	return a, nil
}

// end ends an arrival.
func (m *Models) end(a *arrival, at string) {
	a.cancel(nil)
	m.Tidier.received(at)
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.arriving, at)
}

// wait follows an arrival to its end.
func (m *Models) wait(life context.Context, a *arrival, at string, held *os.File) {
	defer held.Close()
	go m.giveUpIdle(life, a)
	began := time.Now()
	_, err := a.receiver.Wait(life)
	why := cmp.Or(context.Cause(life), err)
	m.end(a, at)
	switch {
	case err == nil:
		m.Log.Info().Str("directory", at).Dur("took_ms", time.Since(began)).Msg("a model is on the node")
	case m.Context.Err() == nil:
		m.Log.Warn().Err(why).Str("directory", at).Msg("a model has not arrived")
	}
}

// giveUpIdle ends an arrival that nobody brings any more.
func (m *Models) giveUpIdle(life context.Context, a *arrival) {
	tick := time.Tick(arrivalIdle / 4)
	for {
		select {
		case <-life.Done():
			return
		case now := <-tick:
			m.mu.Lock()
			idle := a.use == 0 && now.Sub(a.seen) >= arrivalIdle
			m.mu.Unlock()
			if idle {
				a.cancel(errIdle)
				return
			}
		}
	}
}

func (m *Models) leave(a *arrival) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a.use--
	a.seen = time.Now()
}
