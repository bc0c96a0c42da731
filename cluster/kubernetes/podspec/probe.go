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

// The beginnings of the annotations that say how an ordinary function is asked
// whether it lives and whether it can take requests. After them comes path,
// initialDelaySeconds (or initialDelay), periodSeconds, timeoutSeconds,
// failureThreshold or, for readiness only, successThreshold.
const (
	HealthPrefix = "com.openfaas.health.http."
	ReadyPrefix  = "com.openfaas.ready.http."
	// HealthPath is what is asked where the annotations say nothing; readiness is
	// asked where health is.
	HealthPath = "/_/health"
)

// longestProbe bounds the times of the annotations.
const longestProbe = time.Hour

// Defaults where annotations say nothing. An instance that does not answer gets no requests after
// some seconds, as it costs nothing to be wrong about that. It is killed only once it was
// silent for half a minute: on a node that is overloaded all are slow to answer, and
// to kill them all loses what they have begun and adds to the load.
var (
	defaultReadiness = corev1.Probe{PeriodSeconds: 2, TimeoutSeconds: 1, FailureThreshold: 3, SuccessThreshold: 1}
	defaultLiveness  = corev1.Probe{PeriodSeconds: 10, TimeoutSeconds: 5, FailureThreshold: 3, SuccessThreshold: 1}
)

// Probes reads how an ordinary function's instances are asked. A time may be a
// number of seconds or a Go duration.
func Probes(d types.FunctionDeployment) (liveness, readiness *corev1.Probe, err error) {
	if liveness, err = probe(d, HealthPrefix, HealthPath, defaultLiveness); err != nil {
		return nil, nil, err
	}
	if readiness, err = probe(d, ReadyPrefix, liveness.HTTPGet.Path, defaultReadiness); err != nil {
		return nil, nil, err
	}
	if liveness.SuccessThreshold > 1 {
		return nil, nil, &Error{Key: HealthPrefix + "successThreshold", Value: strconv.Itoa(int(liveness.SuccessThreshold)),
			Why: "one answer is enough to live; leave it out, or say it of " + ReadyPrefix + "successThreshold"}
	}
	return liveness, readiness, nil
}

// probe is p with what the annotations of a prefix say.
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
		least int32
	}{
		{"initialDelay", &p.InitialDelaySeconds, 0}, {"initialDelaySeconds", &p.InitialDelaySeconds, 0},
		{"periodSeconds", &p.PeriodSeconds, 1}, {"timeoutSeconds", &p.TimeoutSeconds, 1},
	} {
		if err := seconds(d, prefix+field.name, field.value, field.least); err != nil {
			return nil, err
		}
	}
	if err := count(d, prefix+"failureThreshold", &p.FailureThreshold); err != nil {
		return nil, err
	}
	return &p, count(d, prefix+"successThreshold", &p.SuccessThreshold)
}

// seconds reads a time, rounded up to seconds.
func seconds(d types.FunctionDeployment, key string, to *int32, least int32) error {
	value, ok := annotation(d, key)
	if !ok {
		return nil
	}
	t, err := time.ParseDuration(value)
	if n, isNumber := strconv.ParseUint(value, 10, 31); isNumber == nil {
		t, err = time.Duration(n)*time.Second, nil
	}
	if err != nil || t < time.Duration(least)*time.Second || t > longestProbe {
		return &Error{Key: key, Value: value, Why: fmt.Sprintf("it must be a number of seconds from %d to %d, or such a duration", least, longestProbe/time.Second), Example: "5"}
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
