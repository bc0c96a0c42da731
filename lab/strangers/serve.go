package strangers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/faas-infer/faas-infer/command/load"
	"github.com/faas-infer/faas-infer/e2e/graphs"
	"github.com/faas-infer/faas-infer/lab/rig"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/provider/annotation"
)

// outcome is what came of one model.
type outcome struct {
	kind string
	// said is the provider's word, or the first difference.
	said string
	// first is how long the first right answer took from the deployment on, 0 without one.
	first time.Duration
}

// server is the provider that serves one model after the other.
type server struct {
	*rig.Deployed
	client *http.Client
	// patience bounds how long a model's first answer may take, and each later one.
	patience time.Duration
	slo      time.Duration
	// rounds is how often each client of the mixed traffic sends each request.
	rounds int
}

// clients is the number of clients of the mixed traffic.
const clients = 6

// serve deploys a model whose bundle is there, sends its requests one by one and then mixed, and
// removes it. An error says that the provider does not do what it always must.
func (v *server) serve(ctx context.Context, s *subject, requests [][]tensor.Tensor, answers []Answer) (outcome, error) {
	name := functionName(s.name)
	annotations := map[string]string{"com.openfaas.slo.latency": v.slo.String()}
	if s.shapes != "" {
		annotations["com.openfaas.infer.shapes"] = s.shapes
	}
	began := time.Now()
	if err := v.DeployFunction(ctx, rig.Function(name, name+":latest", annotations)); err != nil {
		if ctx.Err() != nil {
			return outcome{}, err
		}
		return outcome{kind: verdictOf(http.StatusBadRequest, err.Error()), said: v.clean(err.Error())}, nil
	}
	o := v.ask(ctx, name, requests, answers, began)
	if o.kind == unanswered {
		o.said = v.problem(ctx, name, o.said)
	}
	if o.kind != wrong {
		death, err := v.deaths(ctx, name)
		if err != nil {
			return o, err
		}
		if death != "" {
			o.kind, o.said = crashed, strings.TrimSpace(o.said+" (an instance's log: "+death+")")
		}
	}
	return o, v.Remove(ctx, name)
}

// fatal matches what a process writes that ends against its will.
var fatal = regexp.MustCompile(signals + `|panic: |fatal error:|terminate called`)

// deaths returns the first line of the function's log that tells of an instance's death, "" if
// there is none: the provider may have answered from another instance.
func (v *server) deaths(ctx context.Context, name string) (string, error) {
	status, text, err := rig.Get(ctx, v.client, v.URL+"/system/logs?follow=false&name="+name)
	if err != nil || status != http.StatusOK {
		return "", errors.Join(err, fmt.Errorf("the log of %s: %d", name, status))
	}
	for line := range strings.Lines(string(text)) {
		var one struct {
			Text string `json:"text"`
		}
		if json.Unmarshal([]byte(line), &one) == nil && fatal.MatchString(one.Text) {
			return clean(one.Text), nil
		}
	}
	return "", nil
}

// problem adds to what was said what the provider says of the function, if that is more.
func (v *server) problem(ctx context.Context, name, said string) string {
	s, err := v.Status(ctx, name)
	if err != nil || s.Annotations == nil {
		return said
	}
	problem := v.clean((*s.Annotations)[annotation.InferProblem])
	if problem == "" || strings.Contains(said, problem) {
		return said
	}
	return said + " (described as: " + problem + ")"
}

// bundle makes a bundle of the model's files, as a user would who copies them: nothing looks
// at the model before the provider does. remove removes it.
func (v *server) bundle(s *subject) (remove func() error, err error) {
	root, name, file := filepath.Join(v.State, "bundles"), functionName(s.name), s.file
	_, err = bundle.WriteFiles(root, name+":latest", bundle.Manifest{Engine: bundle.EngineONNX, Model: filepath.Base(file)}, func(dir string) error {
		all, err := files(file)
		for _, one := range all {
			text, failed := os.ReadFile(one)
			err = errors.Join(err, failed, os.WriteFile(filepath.Join(dir, filepath.Base(one)), text, 0o644))
		}
		return err
	})
	return func() error { return os.RemoveAll(filepath.Join(root, name)) }, err
}

// ask sends the requests alone and mixed.
func (v *server) ask(ctx context.Context, name string, requests [][]tensor.Tensor, answers []Answer, began time.Time) outcome {
	first := time.Duration(0)
	for i := range requests {
		o := v.one(ctx, name, requests[i], answers[i], false)
		if o.kind == right && fitsJSON(requests[i], answers[i].Outputs) {
			if o = v.one(ctx, name, requests[i], answers[i], true); o.kind != right {
				o.said = "in JSON, " + o.said
			}
		}
		if o.kind != right {
			o.said = fmt.Sprintf("alone, %s: %s", shapesOf(requests[i]), o.said)
			o.first = first
			return o
		}
		if first == 0 {
			first = time.Since(began)
		}
	}
	var mutex sync.Mutex
	worst := outcome{kind: right, first: first}
	var all sync.WaitGroup
	for c := range clients {
		all.Go(func() {
			for round := range v.rounds * len(requests) {
				// Clients begin with different requests and go on in different steps.
				i := (c + round*(1+c%2)) % len(requests)
				if o := v.one(ctx, name, requests[i], answers[i], false); o.kind != right {
					mutex.Lock()
					defer mutex.Unlock()
					if worst.kind == right || o.kind == wrong {
						worst.kind, worst.said = o.kind, fmt.Sprintf("in traffic, %s: %s", shapesOf(requests[i]), o.said)
					}
					return
				}
			}
		})
	}
	all.Wait()
	return worst
}

// one sends one request until it is answered, at most for the patience: a provider that is
// busy may ask to send again. The kind is right or says what is wrong.
func (v *server) one(ctx context.Context, name string, request []tensor.Tensor, want Answer, asJSON bool) outcome {
	ctx, cancel := context.WithTimeout(ctx, v.patience)
	defer cancel()
	last := outcome{kind: unanswered, said: fmt.Sprintf("no answer within %v", v.patience)}
	for {
		status, got, said, err := v.post(ctx, name, request, asJSON)
		switch {
		case err != nil && ctx.Err() != nil:
			return last
		case err != nil:
			return outcome{kind: crashed, said: v.clean(err.Error())}
		case status == http.StatusOK && said != "":
			return outcome{kind: wrong, said: said}
		case status == http.StatusOK:
			if err := graphs.Compare(got, want.Outputs); err != nil {
				return outcome{kind: wrong, said: err.Error()}
			}
			return outcome{kind: right}
		}
		last = outcome{kind: verdictOf(status, said), said: fmt.Sprintf("%d %s", status, v.clean(said))}
		if status != http.StatusServiceUnavailable && status != http.StatusTooManyRequests {
			return last
		}
		if rig.Pause(ctx, 100*time.Millisecond) != nil {
			return last
		}
	}
}

// post sends one request of v2, in binary form or as JSON. said is the text of an answer that
// is no 200, or what is wrong with the form of one that is.
func (v *server) post(ctx context.Context, name string, request []tensor.Tensor, asJSON bool) (status int, got []tensor.Tensor, said string, err error) {
	header := http.Header{"Content-Type": {"application/json"}}
	body, length := []byte(nil), 0
	if asJSON {
		body, err = encodeJSON(request)
	} else {
		body, length, err = load.EncodeBinary(request)
		header = http.Header{"Content-Type": {"application/octet-stream"}, load.HeaderLength: {strconv.Itoa(length)}}
	}
	if err != nil {
		return 0, nil, "", err
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, v.URL+"/function/"+name+"/v2/models/"+name+"/infer", bytes.NewReader(body))
	if err != nil {
		return 0, nil, "", err
	}
	q.Header = header
	response, err := v.client.Do(q)
	if err != nil {
		return 0, nil, "", err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, nil, "", err
	}
	if response.StatusCode != http.StatusOK {
		return response.StatusCode, nil, string(answer), nil
	}
	if asJSON {
		got, err = decodeJSON(answer)
	} else {
		got, err = graphs.DecodeBinary(answer, response.Header.Get(load.HeaderLength))
	}
	if err != nil {
		return response.StatusCode, nil, err.Error(), nil
	}
	return response.StatusCode, got, "", nil
}

// shapesOf writes a request's shapes.
func shapesOf(request []tensor.Tensor) string {
	var all []string
	for _, t := range request {
		all = append(all, fmt.Sprintf("%s%v", t.Name, t.Shape))
	}
	return strings.Join(all, " ")
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// functionName is a model's name as one of a function.
func functionName(name string) string {
	return strings.Trim(notInNames.ReplaceAllString(strings.ToLower(name), "-"), "-")
}

// clean is [clean] without the provider's directories.
func (v *server) clean(said string) string {
	return clean(strings.ReplaceAll(said, filepath.Join(v.State, "bundles")+"/", ""))
}

// clean puts a text on one line of at most some hundred bytes.
func clean(said string) string {
	said = strings.Join(strings.Fields(said), " ")
	if len(said) > 300 {
		said = strings.ToValidUTF8(said[:300], "") + " …"
	}
	return said
}
