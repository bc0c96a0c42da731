// Package podlogs reads what a function's instances printed from their kubelets, through
// the API server. It finds pods of models and of ordinary functions by the same label. It
// stores nothing: a pod's output is kept as long as the pod. Begin reading at
// [Source.Query].
package podlogs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/openfaas/faas-provider/logs"
	"github.com/rs/zerolog"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/podspec"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
)

const (
	// pending is how many messages may wait for a client that reads slowly. Beyond
	// that, the streams wait for the client.
	pending = 256
	// maxOpening is how many streams are opened at the same time.
	maxOpening = 16
	// openTimeout is how long a node may take to begin with a log.
	openTimeout = 10 * time.Second
)

// Source reads logs of pods.
type Source struct {
	Client clientset.Interface
	Logger zerolog.Logger
}

// query is one request for logs and the channel for its messages.
type query struct {
	logs.Request
	client   clientset.Interface
	log      zerolog.Logger
	messages chan<- logs.Message
}

// Query returns messages from the oldest to the newest, at most the last q.Tail of
// them if that is above 0. With q.Follow, it then delivers new messages until ctx ends,
// including those of instances that start later. It closes the channel after the last
// message. A function without logs has no messages.
func (s Source) Query(ctx context.Context, q logs.Request) (<-chan logs.Message, error) {
	list, err := s.Client.CoreV1().Pods(q.Namespace).List(ctx, metav1.ListOptions{LabelSelector: label(q.Name)})
	if err != nil {
		return nil, fmt.Errorf("list the instances of %s.%s: %w", q.Name, q.Namespace, err)
	}
	messages := make(chan logs.Message, pending)
	a := &query{Request: q, client: s.Client, log: s.Logger, messages: messages}
	go func() {
		defer close(messages)
		read := a.past(ctx, list.Items)
		if q.Follow && ctx.Err() == nil {
			a.follow(ctx, read)
		}
	}()
	return messages, nil
}

func label(function string) string { return v1alpha1.FunctionLabel + "=" + function }

// wanted reports whether the query asks for a pod and the pod's container has started.
func (q *query) wanted(pod *corev1.Pod) bool {
	if q.Instance != "" && pod.Name != q.Instance {
		return false
	}
	s := podspec.Status(pod)
	return s != nil && (s.State.Running != nil || s.State.Terminated != nil || s.LastTerminationState.Terminated != nil)
}

// over reports whether a pod will print nothing more.
func over(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// open reads a pod's log from a time on, to its end or for as long as it runs.
func (q *query) open(ctx context.Context, pod *corev1.Pod, since time.Time, follow bool) (io.ReadCloser, error) {
	o := &corev1.PodLogOptions{Container: podspec.ContainerName(pod), Timestamps: true, Follow: follow}
	if !since.IsZero() {
		o.SinceTime = &metav1.Time{Time: since}
	}
	if tail := int64(q.Tail); tail > 0 && !follow {
		o.TailLines = &tail
	}
	ctx, cancel := context.WithCancel(ctx)
	late := time.AfterFunc(openTimeout, cancel)
	stream, err := q.client.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, o).Stream(ctx)
	if err == nil && late.Stop() {
		return opened{stream, cancel}, nil
	}
	cancel()
	if err == nil {
		err = errors.Join(fmt.Errorf("its node has not answered for %v", openTimeout), stream.Close())
	}
	return nil, fmt.Errorf("log of pod %s/%s: %w", pod.Namespace, pod.Name, err)
}

// opened is a stream whose request ends when it is closed.
type opened struct {
	io.ReadCloser
	cancel context.CancelFunc
}

// Close implements [io.Closer].
func (o opened) Close() error {
	defer o.cancel()
	return o.ReadCloser.Close()
}

// since returns the time from which lines are wanted; zero for all.
func (q *query) since() time.Time {
	if q.Since == nil {
		return time.Time{}
	}
	return *q.Since
}

// emit sends a line to the client; false if ctx has ended.
func (q *query) emit(ctx context.Context, instance string, l line) bool {
	if l.time.Before(q.since()) {
		return true // The API's SinceTime has a resolution of seconds.
	}
	select {
	case q.messages <- logs.Message{Name: q.Name, Namespace: q.Namespace, Instance: instance, Timestamp: l.time, Text: l.text}:
		return true
	case <-ctx.Done():
		return false
	}
}

// complain logs that a pod's log could not be read, unless the pod has been deleted.
func (q *query) complain(ctx context.Context, err error) {
	if ctx.Err() == nil && !apierrors.IsNotFound(err) {
		q.log.Warn().Err(err).Msg("logs could not be read to their end")
	}
}
