package podspec

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/openfaas/faas-provider/types"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// The prefixes of the annotations that set an ordinary function's liveness and readiness
// probes. One of these names follows: path, initialDelaySeconds (or initialDelay),
// periodSeconds, timeoutSeconds, failureThreshold or, for readiness only,
// successThreshold.
const (
	HealthPrefix = "com.openfaas.health.http."
	ReadyPrefix  = "com.openfaas.ready.http."
	// HealthPath is the liveness probe's path without an annotation. The readiness
	// probe's default is the liveness probe's path.
	HealthPath = "/_/health"
)

// maxProbeTime bounds the times of the annotations.
const maxProbeTime = time.Hour

// The defaults without annotations. An instance that does not answer gets no more requests
// after some seconds, because a mistake there costs nothing. It is killed only after half a
// minute without an answer: on an overloaded node all instances answer slowly, and killing
// them would lose their requests and add to the load.
var (
	defaultReadiness = corev1.Probe{PeriodSeconds: 2, TimeoutSeconds: 1, FailureThreshold: 3, SuccessThreshold: 1}
	defaultLiveness  = corev1.Probe{PeriodSeconds: 10, TimeoutSeconds: 5, FailureThreshold: 3, SuccessThreshold: 1}
)

// Probes reads the probes of an ordinary function's instances. A time may be a number of
// seconds or a Go duration.
func Probes(d types.FunctionDeployment) (liveness, readiness *corev1.Probe, err error) {
	if liveness, err = probe(d, HealthPrefix, HealthPath, defaultLiveness); err != nil {
		return nil, nil, err
	}
	if readiness, err = probe(d, ReadyPrefix, liveness.HTTPGet.Path, defaultReadiness); err != nil {
		return nil, nil, err
	}
	if liveness.SuccessThreshold > 1 {
		return nil, nil, &Error{Key: HealthPrefix + "successThreshold", Value: strconv.Itoa(int(liveness.SuccessThreshold)),
			Why: "it must be 1 for the liveness probe; leave it out, or set " + ReadyPrefix + "successThreshold"}
	}
	return liveness, readiness, nil
}

// probe returns p changed by the annotations with a prefix.
func probe(d types.FunctionDeployment, prefix, path string, p corev1.Probe) (*corev1.Probe, error) {
	p.HTTPGet = &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt32(Port), Scheme: corev1.URISchemeHTTP}
	if value, ok := annotation(d, prefix+"path"); ok {
		if !strings.HasPrefix(value, "/") || strings.ContainsAny(value, " \x00\r\n") {
			return nil, &Error{Key: prefix + "path", Value: value, Why: "it must be a path on the function's port 8080 that begins with a slash", Example: HealthPath}
		}
		p.HTTPGet.Path = value
	}
	for _, field := range []struct {
		name  string
		value *int32
		min   int32
	}{
		{"initialDelay", &p.InitialDelaySeconds, 0}, {"initialDelaySeconds", &p.InitialDelaySeconds, 0},
		{"periodSeconds", &p.PeriodSeconds, 1}, {"timeoutSeconds", &p.TimeoutSeconds, 1},
	} {
		if err := seconds(d, prefix+field.name, field.value, field.min); err != nil {
			return nil, err
		}
	}
	if err := count(d, prefix+"failureThreshold", &p.FailureThreshold); err != nil {
		return nil, err
	}
	return &p, count(d, prefix+"successThreshold", &p.SuccessThreshold)
}

// seconds reads a time of at least lower seconds, rounded up to seconds.
func seconds(d types.FunctionDeployment, key string, to *int32, lower int32) error {
	value, ok := annotation(d, key)
	if !ok {
		return nil
	}
	t, err := time.ParseDuration(value)
	if n, isNumber := strconv.ParseUint(value, 10, 31); isNumber == nil {
		t, err = time.Duration(n)*time.Second, nil
	}
	if err != nil || t < time.Duration(lower)*time.Second || t > maxProbeTime {
		return &Error{Key: key, Value: value, Why: fmt.Sprintf("it must be a number of seconds from %d to %d, or a duration in that range", lower, maxProbeTime/time.Second), Example: "5"}
	}
	*to = int32(math.Ceil(t.Seconds()))
	return nil
}

func count(d types.FunctionDeployment, key string, to *int32) error {
	value, ok := annotation(d, key)
	if !ok {
		return nil
	}
	n, err := strconv.ParseUint(value, 10, 16)
	if err != nil || n < 1 || n > 1000 {
		return &Error{Key: key, Value: value, Why: "it must be a whole number from 1 to 1000", Example: "3"}
	}
	*to = int32(n)
	return nil
}
