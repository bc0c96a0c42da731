package copies

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
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
	// private is the mode of a content's directory: its owner alone writes there.
	private = 0o755
)

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
	return err == nil && isDir(is) && int(is.Uid) == owner && is.Mode&0o022 == 0
}

// Models takes the contents that a provider sends. It is a handler of the paths of [ModelPath], and bounds how many
// arrive at a time and how much they take. It is safe for concurrent use.
type Models struct {
	// Tidier makes room, and removes what nothing uses.
	Tidier *Tidier
	Log    zerolog.Logger
	// Context ends what arrives.
	Context context.Context

	mu       sync.Mutex
	arriving map[string]*arrival
}

// arrival is a content on its way.
type arrival struct {
	receiver *content.Receiver
	// seen is when the sender asked last.
	seen time.Time
	// use counts the requests that are being served.
	use int
}

// ServeHTTP answers the sender of a content as a [content.Receiver] does.
func (m *Models) ServeHTTP(w http.ResponseWriter, q *http.Request) {
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
	a, err := m.arrive(namespace, name)
	if err != nil {
		m.Log.Warn().Err(err).Str("namespace", namespace).Str("model", name).Msg("takes no model now")
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	if a == nil {
		content.Answer(w, content.State{Name: name, Needs: content.NeedsNothing})
		return
	}
	defer m.leave(a)
	q.URL.Path = "/" + below
	a.receiver.ServeHTTP(w, q)
}

// arrive returns the arrival of a content, which begins now if it must. It returns nil if the content is here.
func (m *Models) arrive(namespace, name string) (*arrival, error) {
	dir := filepath.Join(m.Tidier.Root, namespace, ModelDir(name))
	m.mu.Lock()
	defer m.mu.Unlock()
	if a := m.arriving[dir]; a != nil {
		a.seen, a.use = time.Now(), a.use+1
		return a, nil
	}
	ctx, cancel := context.WithTimeout(m.Context, beginPatience)
	defer cancel()
	if _, held := findModel(ctx, dir, name, os.Geteuid()); held != nil {
		workdir.Use(dir, time.Now())
		return nil, held.Close()
	}
	if len(m.arriving) >= maxArrivals {
		return nil, fmt.Errorf("%d models arrive already", maxArrivals)
	}
	if err := seal(dir); err != nil {
		return nil, err
	}
	a := &arrival{seen: time.Now(), use: 1}
	var err error
	if a.receiver, err = content.NewReceiver(dir, name); err != nil {
		return nil, err
	}
	held, err := workdir.Hold(ctx, dir, beginPatience)
	if err != nil {
		return nil, err
	}
	a.receiver.Room = m.Tidier.makeRoom
	if m.arriving == nil {
		m.arriving = map[string]*arrival{}
	}
	m.arriving[dir] = a
	go m.wait(a, dir, held)
	select {
	case <-a.receiver.Begun():
	case <-ctx.Done():
	}
	return a, nil
}

// seal makes a directory that nobody else can write. What others may have put there goes: the kubelet makes the
// directory for everybody, if an instance mounts it before its content comes.
func seal(dir string) error {
	if err := os.Mkdir(dir, private); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if isPrivate(dir, os.Geteuid()) {
		return nil
	}
	f, err := os.OpenFile(dir, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Chmod(private); err != nil {
		return err
	}
	if !isPrivate(dir, os.Geteuid()) { // Another user has made it.
		return errors.Join(os.RemoveAll(dir), os.Mkdir(dir, private))
	}
	names, err := f.Readdirnames(-1)
	for _, name := range names {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, name)))
	}
	return err
}

// wait follows an arrival to its end.
func (m *Models) wait(a *arrival, dir string, held *os.File) {
	defer held.Close()
	ctx, cancel := context.WithCancel(m.Context)
	defer cancel()
	go m.giveUpIdle(ctx, cancel, a)
	began := time.Now()
	_, err := a.receiver.Wait(ctx)
	m.mu.Lock()
	delete(m.arriving, dir)
	m.mu.Unlock()
	switch {
	case err == nil:
		m.Log.Info().Str("directory", dir).Dur("took_ms", time.Since(began)).Msg("a model is on the node")
	case m.Context.Err() == nil:
		m.Log.Warn().Err(err).Str("directory", dir).Msg("a model has not arrived")
	}
}

// giveUpIdle ends an arrival that nobody brings any more.
func (m *Models) giveUpIdle(ctx context.Context, cancel context.CancelFunc, a *arrival) {
	tick := time.NewTicker(arrivalIdle / 4)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			m.mu.Lock()
			idle := a.use == 0 && now.Sub(a.seen) >= arrivalIdle
			m.mu.Unlock()
			if idle {
				cancel()
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
