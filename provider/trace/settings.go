package trace

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	commonpb "go.opentelemetry.io/proto/slim/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/slim/otlp/resource/v1"
)

// DefaultSample is the share of requests that are sampled if nothing says how many.
const DefaultSample = 0.01

// settings are what flags and the environment say.
type settings struct {
	// traces and metrics send to the collector; nil: these are not exported.
	traces, metrics *sender
	// parentBased: the caller's decision counts if there is one. bound is that of takes.
	parentBased bool
	bound       uint64
	resource    *resourcepb.Resource
	// delay is the longest time that spans wait for others, interval the time between two exports of metrics.
	delay, interval time.Duration
	// queueSize is the maximum number of traces that wait, batchSize that of spans in one export.
	queueSize, batchSize int
}

// environment reads a variable.
type environment func(name string) string

// otlp reads a variable of a signal, or else that of all signals.
func (e environment) otlp(signal, name string) string {
	return cmp.Or(e("OTEL_EXPORTER_OTLP_"+signal+"_"+name), e("OTEL_EXPORTER_OTLP_"+name))
}

// positive reads a whole number above 0.
func (e environment) positive(name string, otherwise int) (int, error) {
	text := e(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n <= 0 {
		return 0, fmt.Errorf("%s is %q: it must be a whole number above 0", name, text)
	}
	return n, nil
}

// parse reads the settings. Both senders are nil if there is no collector.
func parse(o Options) (s settings, err error) {
	e := environment(o.Getenv)
	if strings.EqualFold(e("OTEL_SDK_DISABLED"), "true") {
		return s, nil
	}
	if s.traces, err = e.sender("TRACES", "v1/traces", o.Endpoint); err != nil {
		return s, err
	}
	if s.metrics, err = e.sender("METRICS", "v1/metrics", o.Endpoint); err != nil {
		return s, err
	}
	if s.traces == nil && s.metrics == nil {
		return s, nil
	}
	if err := s.sampler(e, o.Sample); err != nil {
		return s, err
	}
	if s.resource, err = e.resource(o.Version); err != nil {
		return s, err
	}
	var delay, interval int
	for _, n := range []struct {
		into      *int
		name      string
		otherwise int
	}{
		{&delay, "OTEL_BSP_SCHEDULE_DELAY", 5000}, {&interval, "OTEL_METRIC_EXPORT_INTERVAL", 60000},
		{&s.queueSize, "OTEL_BSP_MAX_QUEUE_SIZE", DefaultQueue}, {&s.batchSize, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512},
	} {
		if *n.into, err = e.positive(n.name, n.otherwise); err != nil {
			return s, err
		}
	}
	s.delay, s.interval = time.Duration(delay)*time.Millisecond, time.Duration(interval)*time.Millisecond
	return s, nil
}

// DefaultQueue is the maximum number of traces that wait for their export by default.
const DefaultQueue = 2048

// sampler reads how to sample. share is that of the flag, negative without it.
func (s *settings) sampler(e environment, share float64) error {
	name, arg := cmp.Or(e("OTEL_TRACES_SAMPLER"), "parentbased_traceidratio"), e("OTEL_TRACES_SAMPLER_ARG")
	of := "--trace-sample"
	switch {
	case share >= 0:
		name = "parentbased_traceidratio"
	case arg != "":
		of = "OTEL_TRACES_SAMPLER_ARG"
		var err error
		if share, err = strconv.ParseFloat(arg, 64); err != nil {
			return fmt.Errorf("%s is %q: it must be a number from 0 to 1", of, arg)
		}
	case e("OTEL_TRACES_SAMPLER") == "":
		share = DefaultSample
	default:
		share = 1
	}
	kind, parentBased := strings.CutPrefix(name, "parentbased_")
	switch kind {
	case "always_on":
		share = 1
	case "always_off":
		share = 0
	case "traceidratio":
	default:
		return fmt.Errorf("OTEL_TRACES_SAMPLER is %q: it must be always_on, always_off or traceidratio, or one of these after parentbased_", name)
	}
	if !(share >= 0 && share <= 1) {
		return fmt.Errorf("%s is %v: it must be a number from 0 to 1", of, share)
	}
	s.parentBased, s.bound = parentBased, uint64(share*(1<<63))
	return nil
}

// sender returns what sends a signal, nil if it goes nowhere.
func (e environment) sender(signal, path, endpoint string) (*sender, error) {
	switch exporter := e("OTEL_" + signal + "_EXPORTER"); exporter {
	case "none":
		return nil, nil
	case "", "otlp":
	default:
		return nil, fmt.Errorf("OTEL_%s_EXPORTER is %q: it must be otlp or none", signal, exporter)
	}
	name, text := "--otlp-endpoint", endpoint
	if text == "" {
		name, text = "OTEL_EXPORTER_OTLP_ENDPOINT", e("OTEL_EXPORTER_OTLP_ENDPOINT")
	}
	if own := e("OTEL_EXPORTER_OTLP_" + signal + "_ENDPOINT"); own != "" && endpoint == "" {
		name, text, path = "OTEL_EXPORTER_OTLP_"+signal+"_ENDPOINT", own, ""
	}
	if text == "" {
		return nil, nil
	}
	to, err := url.Parse(text)
	if err != nil || to.Scheme != "http" && to.Scheme != "https" || to.Host == "" {
		return nil, fmt.Errorf("%s: it must be the URL of a collector for OTLP over HTTP, such as http://127.0.0.1:4318", name)
	}
	if protocol := e.otlp(signal, "PROTOCOL"); protocol != "" && protocol != "http/protobuf" {
		return nil, fmt.Errorf("the OTLP protocol is %q: only http/protobuf is supported, at port 4318 of most collectors", protocol)
	}
	s := &sender{to: to.JoinPath(path).String(), name: to.Redacted(), header: http.Header{"Content-Type": {"application/x-protobuf"}, "User-Agent": {"faas-infer"}}}
	if path == "" {
		s.to = text
	}
	if s.timeout, err = e.timeout(signal); err != nil {
		return nil, err
	}
	switch c := e.otlp(signal, "COMPRESSION"); c {
	case "gzip":
		s.header.Set("Content-Encoding", c)
	case "", "none":
	default:
		return nil, fmt.Errorf("the OTLP compression is %q: it must be gzip or none", c)
	}
	headers, err := pairs(e.otlp(signal, "HEADERS"))
	if err != nil {
		return nil, errors.New("OTEL_EXPORTER_OTLP_HEADERS: it must be name=value pairs with commas between them") // They may be secret.
	}
	for _, h := range headers {
		s.header.Set(h[0], h[1])
	}
	s.client, err = e.client(signal)
	return s, err
}

func (e environment) timeout(signal string) (time.Duration, error) {
	name := "OTEL_EXPORTER_OTLP_" + signal + "_TIMEOUT"
	if e(name) == "" {
		name = "OTEL_EXPORTER_OTLP_TIMEOUT"
	}
	ms, err := e.positive(name, 10000)
	return time.Duration(ms) * time.Millisecond, err
}

// client returns a client with the certificates that the environment names.
func (e environment) client(signal string) (*http.Client, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	if file := e.otlp(signal, "CERTIFICATE"); file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_CERTIFICATE: %w", err)
		}
		transport.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !transport.TLSClientConfig.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_CERTIFICATE: %s has no certificate in PEM form", file)
		}
	}
	if certificate, key := e.otlp(signal, "CLIENT_CERTIFICATE"), e.otlp(signal, "CLIENT_KEY"); certificate != "" || key != "" {
		pair, err := tls.LoadX509KeyPair(certificate, key)
		if err != nil {
			return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE and _KEY: %w", err)
		}
		transport.TLSClientConfig.Certificates = []tls.Certificate{pair}
	}
	return &http.Client{Transport: transport}, nil
}

// pairs reads name=value pairs whose values are percent-encoded, as in W3C Baggage.
func pairs(text string) (all [][2]string, err error) {
	for pair := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		name, value, found := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if name = strings.TrimSpace(name); !found || name == "" || err != nil {
			return nil, fmt.Errorf("%q is no name=value", pair)
		}
		all = append(all, [2]string{name, value})
	}
	return all, nil
}

// resource says what exports: its name, version and the environment's attributes.
func (e environment) resource(version string) (*resourcepb.Resource, error) {
	given, err := pairs(e("OTEL_RESOURCE_ATTRIBUTES"))
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	if name := e("OTEL_SERVICE_NAME"); name != "" {
		given = append(given, [2]string{"service.name", name})
	}
	values, order := map[string]string{}, []string{}
	own := [][2]string{{"service.name", "faas-infer"}, {"service.version", version}, {"service.instance.id", uuid.NewString()}}
	for _, a := range append(own, given...) {
		if _, ok := values[a[0]]; !ok {
			order = append(order, a[0])
		}
		values[a[0]] = a[1]
	}
	r := &resourcepb.Resource{}
	for _, name := range order {
		r.Attributes = append(r.Attributes, text(name, values[name]))
	}
	return r, nil
}

func text(key, value string) *commonpb.KeyValue {
	return &commonpb.KeyValue{Key: key, Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: valid(value)}}}
}
