package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/instance/engine"
	"github.com/faas-infer/faas-infer/lab/rig"
	"github.com/faas-infer/faas-infer/model/source/origin"
)

const (
	// modelsBucket and modelsKey are where the model is.
	modelsBucket, modelsKey = "models", "team/model.onnx"
	// modelsSecret are the credentials of the server.
	modelsSecret = "aws_access_key_id=key\naws_secret_access_key=secret\n"
	// breaks is how often a broken download breaks.
	breaks = 5
)

// ModelsOptions are those of [Models].
type ModelsOptions struct {
	// Model is an architecture of the zoo. Versitygw is the program of the server of S3.
	Model, Versitygw string
	// Rate is how fast the network is, in MB/s; 0 for as fast as the machine.
	Rate float64
}

// Models measures a function whose model is in S3: from the deployment to the first answer, against the time of the
// bytes alone, again with a connection that breaks, and a second function with the same model.
func Models(ctx context.Context, o rig.Options, m ModelsOptions) (_ *report.Report, err error) {
	s, err := rig.NewSubject(m.Model)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	store, stop, err := startStore(ctx, s, m.Versitygw)
	if err != nil {
		return nil, err
	}
	defer stop()
	n := &network{rate: m.Rate * 1e6}
	files := http.NewServeMux()
	files.Handle("/alone/", http.StripPrefix("/alone/", http.FileServer(http.Dir(s.Dir))))
	files.Handle("/", httputil.NewSingleHostReverseProxy(store))
	front := httptest.NewServer(n.limit(files))
	defer front.Close()
	info, err := os.Stat(s.File)
	if err != nil {
		return nil, err
	}
	fmt.Fprintln(o.Log, "timing the bytes alone")
	alone, err := bytesAlone(ctx, front.URL+"/alone/"+filepath.Base(s.File), filepath.Join(s.Dir, "copy"))
	if err != nil {
		return nil, err
	}
	uri := fmt.Sprintf("s3://%s/%s?endpoint=%s", modelsBucket, modelsKey, front.URL)
	fmt.Fprintln(o.Log, "deploying")
	whole, err := deployFrom(ctx, o, s, uri, true)
	if err != nil {
		return nil, err
	}
	fmt.Fprintln(o.Log, "deploying over a connection that breaks")
	n.mu.Lock()
	n.left, n.each = breaks, info.Size()/(breaks+1)
	n.mu.Unlock()
	broken, err := deployFrom(ctx, o, s, uri, false)
	if err != nil {
		return nil, err
	}
	r := report.New(fmt.Sprintf("bench models --model %s --rate %g", m.Model, m.Rate), time.Now())
	r.Add("size_mb", float64(info.Size())/1e6, "MB", "the model's file")
	r.Add("bytes_s", alone.Seconds(), "s", "a plain download of the file to the disk")
	r.Add("deployed_s", whole.deployed.Seconds(), "s", "from sending the deployment to its answer: "+
		"download, verification, check of the model")
	r.Add("first_answer_s", whole.answered.Seconds(), "s", "to the first answer of the function")
	r.Add("second_s", whole.second.Seconds(), "s", "the same of a second function with the same model")
	r.Add("broken_s", broken.deployed.Seconds(), "s", fmt.Sprintf("as deployed_s, over a connection that "+
		"breaks %d times", breaks))
	r.Add("ratio.first_answer_over_bytes", whole.answered.Seconds()/alone.Seconds(), "", "")
	r.Add("ratio.deployed_over_bytes", whole.deployed.Seconds()/alone.Seconds(), "", "")
	r.Add("ratio.second_over_first", whole.second.Seconds()/whole.answered.Seconds(), "", "")
	r.Add("broken_extra_pct", 100*(broken.deployed.Seconds()/whole.deployed.Seconds()-1), "%", "")
	return r, nil
}

// startStore starts a server of S3 that has the subject's model.
func startStore(ctx context.Context, s *rig.Subject, program string) (at *url.URL, stop func(), err error) {
	root := filepath.Join(s.Dir, "store")
	if err := os.MkdirAll(filepath.Join(root, modelsBucket), 0o755); err != nil {
		return nil, nil, err
	}
	address, err := engine.FreeAddress()
	if err != nil {
		return nil, nil, err
	}
	server := exec.CommandContext(ctx, program, "--access", "key", "--secret", "secret", "--port", address, "posix", root)
	if err := server.Start(); err != nil {
		return nil, nil, fmt.Errorf("--versitygw: %w", err)
	}
	stop = func() {
		_ = server.Process.Kill() // It may have ended.
		_ = server.Wait()
	}
	for end := time.Now().Add(time.Minute); ; {
		connection, err := net.Dial("tcp", address)
		if err == nil {
			at = &url.URL{Scheme: "http", Host: address}
			if err = errors.Join(connection.Close(), upload(ctx, s.File, at)); err != nil {
				stop()
			}
			return at, stop, err
		}
		if time.Now().After(end) {
			stop()
			return nil, nil, fmt.Errorf("versitygw does not listen: %w", err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// upload puts a file into the bucket. Through S3, since the server notes the ETag then.
func upload(ctx context.Context, file string, store *url.URL) error {
	with, err := origin.ReadCredentials(map[string][]byte{origin.S3Secret: []byte(modelsSecret)})
	if err != nil {
		return err
	}
	body, err := os.Open(file)
	if err != nil {
		return err
	}
	defer body.Close()
	info, err := body.Stat()
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, store.JoinPath(modelsBucket, modelsKey).String(), body)
	if err != nil {
		return err
	}
	r.ContentLength = info.Size()
	with.Sign(r, origin.DefaultRegion, origin.UnsignedBody, time.Now())
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("the server of S3 refuses the model: %s", answer.Status)
	}
	return nil
}

// networkCredit is how much time in which nothing was sent the network makes good: one connection would be slower than
// several otherwise, since each sleep takes a little longer than asked for.
const networkCredit = 50 * time.Millisecond

// network limits all answers together to a rate in bytes/s, and breaks connections.
type network struct {
	rate float64

	mu sync.Mutex
	// left is how many connections are to break, one after each so many bytes. sent are those since the last break.
	left       int
	each, sent int64
	// due is when the bytes that were sent so far have passed.
	due time.Time
}

func (n *network) limit(to http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		to.ServeHTTP(&limited{ResponseWriter: w, network: n}, r)
	})
}

// wait waits until the network has room for so many bytes more, of all connections together.
func (n *network) wait(bytes int) {
	if n.rate <= 0 {
		return
	}
	n.mu.Lock()
	now := time.Now()
	if earliest := now.Add(-networkCredit); n.due.Before(earliest) {
		n.due = earliest
	}
	due := n.due
	n.due = n.due.Add(time.Duration(float64(bytes) / n.rate * float64(time.Second)))
	n.mu.Unlock()
	time.Sleep(time.Until(due))
}

// breaks reports whether the connection that carries so many bytes more breaks.
func (n *network) breaks(bytes int) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.left == 0 {
		return false
	}
	if n.sent += int64(bytes); n.sent <= n.each {
		return false
	}
	n.sent, n.left = 0, n.left-1
	return true
}

// limited is one answer.
type limited struct {
	http.ResponseWriter
	network *network
}

// Unwrap lets the proxy flush.
func (l *limited) Unwrap() http.ResponseWriter { return l.ResponseWriter }

// Write implements io.Writer.
func (l *limited) Write(b []byte) (int, error) {
	n := l.network
	if n.breaks(len(b)) {
		panic(http.ErrAbortHandler)
	}
	n.wait(len(b))
	return l.ResponseWriter.Write(b)
}

// bytesAlone times a plain download to a file.
func bytesAlone(ctx context.Context, address, file string) (time.Duration, error) {
	syscall.Sync() // What was written before must not slow it.
	began := time.Now()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return 0, err
	}
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	defer a.Body.Close()
	to, err := os.Create(file)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(to, a.Body)
	err = errors.Join(err, to.Close(), os.Remove(file))
	return time.Since(began), err
}

// deployedIn are times from sending a deployment.
type deployedIn struct{ deployed, answered, second time.Duration }

// deployFrom deploys a URI at a new provider with empty caches, and again under another name if that is asked for.
func deployFrom(ctx context.Context, o rig.Options, s *rig.Subject, uri string, answers bool) (t deployedIn, err error) {
	dir, err := os.MkdirTemp("", "faas-infer-bench-")
	if err != nil {
		return t, err
	}
	defer os.RemoveAll(dir)
	d, err := o.Provider(ctx, dir, "--prepared", filepath.Join(dir, "prepared"), "--model-sources", "127.0.0.1")
	if err != nil {
		return t, err
	}
	defer d.Stop()
	secret := filepath.Join(d.State, "function-secrets", "openfaas-fn", "model-s3")
	if err := errors.Join(os.MkdirAll(filepath.Dir(secret), 0o700), os.WriteFile(secret, []byte(modelsSecret), 0o600)); err != nil {
		return t, err
	}
	one := func(number int) (deployed, answered time.Duration, err error) {
		name := rig.FunctionName + strconv.Itoa(number)
		f := rig.Function(name, "any:name", map[string]string{"com.openfaas.slo.latency": "10s", "com.openfaas.infer.model": uri})
		f.Secrets = []string{"model-s3"}
		syscall.Sync()
		began := time.Now()
		if err := d.DeployFunction(ctx, f); err != nil {
			return 0, 0, err
		}
		if err := awaitModel(ctx, d, name); err != nil {
			return 0, 0, err
		}
		if deployed = time.Since(began); !answers {
			return deployed, 0, nil
		}
		target, err := s.Target(d.URL + "/function/" + name)
		if err == nil {
			_, err = rig.One(ctx, target)
		}
		return deployed, time.Since(began), err
	}
	if t.deployed, t.answered, err = one(1); err == nil && answers {
		_, t.second, err = one(2)
	}
	return t, err
}

// awaitModel waits until a function's model is there: a deployment may be answered before.
func awaitModel(ctx context.Context, d *rig.Deployed, name string) error {
	for ctx.Err() == nil {
		s, err := d.Status(ctx, name)
		if err != nil {
			return err
		}
		if s.Annotations == nil || !strings.Contains((*s.Annotations)["com.openfaas.infer.progress"], "being downloaded") {
			return nil
		}
		time.Sleep(5 * time.Millisecond)
	}
	return ctx.Err()
}
